"""Feature vectors in `.npy` files: `file.npy` holds one, `file.npy#7` is row 7 of a table of them."""

import csv
import math
import re
import zipfile
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TextIO

import numpy as np
from numpy.typing import NDArray

from leco.data.manifest.problems import Fault
from leco.errors import LecoError

_ROW = re.compile(r"(.+\.npy)#([0-9]{1,18})", re.IGNORECASE | re.DOTALL)
_AT_ONCE = 4_000_000  # numbers
_LONGEST = 1_000_000  # numbers of one vector

Tick = Callable[[int, int], object]


def parse_features(reference: str) -> tuple[str, int | None] | Fault:
    """Take a reference apart into file and row.

    >>> parse_features("birds.npy#007")
    ('birds.npy', 7)
    """
    if found := _ROW.fullmatch(reference):
        return found[1], int(found[2])
    if reference.lower().endswith(".npy"):
        return reference, None
    return Fault("not .npy", "is not `file.npy`, or `file.npy#ROW` with a row from 0 on")


def load_features(root: Path, references: Sequence[str]) -> NDArray[np.float32]:
    """Read checked references, (n, d), opening each file once."""
    rows: NDArray[np.float32] | None = None
    for file, places in _by_file(references).items():
        for some, block in _blocks(open_array(root / file), places):
            if rows is None:
                rows = np.empty((len(references), block.shape[1]), dtype=np.float32)
            if block.shape[1] != rows.shape[1]:
                raise LecoError(f"{root / file}: holds {block.shape[1]} numbers per sample, others {rows.shape[1]}")
            rows[some] = block
    return np.empty((0, 0), dtype=np.float32) if rows is None else rows


def inspect_features(root: Path, references: Sequence[str], tick: Tick, width: int | None = None) -> dict[str, Fault]:
    """What is wrong with each of some distinct references: the array, the row, its numbers, or how many they are.

    They must be as many as a model takes, its `width`, or else as in most samples.
    """
    faults: dict[str, Fault] = {}
    widths: dict[str, int] = {}
    files = _by_file(references)
    for number, (file, places) in enumerate(files.items(), start=1):
        try:
            array = open_array(root / file)
        except LecoError as error:
            fault = Fault("not .npy", str(error).removeprefix(f"{root / file}: "))
            faults |= {references[place]: fault for place in places}
        else:
            wrong = {place: found for place, row in places.items() if (found := _row_fault(array, row))}
            good = {place: row for place, row in places.items() if place not in wrong}
            wrong |= _number_faults(array, good)
            faults |= {references[place]: fault for place, fault in wrong.items()}
            widths |= {references[place]: int(array.shape[-1]) for place in good}
        tick(number, len(files))
    if widths:
        wanted = width or Counter(widths.values()).most_common(1)[0][0]
        who = "the model takes" if width else "most samples have"
        for reference, number in widths.items():
            if number != wanted:
                faults[reference] = Fault("wrong size", f"has {number} numbers, but {who} {wanted}")
    return faults


def _by_file(references: Sequence[str]) -> dict[str, dict[int, int | None]]:
    """For every file, the positions that refer to it and their rows."""
    files: dict[str, dict[int, int | None]] = defaultdict(dict)
    for place, reference in enumerate(references):
        parsed = parse_features(reference)
        if isinstance(parsed, Fault):
            raise LecoError(f"{reference}: {parsed.message}")
        files[parsed[0]][place] = parsed[1]
    return files


def open_array(path: Path) -> NDArray[Any]:
    """Map an array into memory; pickled objects, which could run code, are refused."""
    try:
        array = np.load(path, mmap_mode="r", allow_pickle=False)
    except Exception as error:  # a broken header can make numpy raise almost anything
        hint = "holds Python objects" if "bject" in str(error) or "ickle" in str(error) else "is not a .npy array"
        raise LecoError(f"{path}: {hint}: {error}") from None
    if not isinstance(array, np.ndarray):
        raise LecoError(f"{path}: is an archive of arrays (.npz), not a .npy array")
    check_array(path, array)
    return array


def check_array(path: Path, array: NDArray[Any]) -> None:
    """Refuse what is neither a vector of numbers nor a table of them."""
    if array.dtype.kind not in "fiu":
        raise LecoError(f"{path}: holds {array.dtype}, not numbers")
    if array.ndim not in (1, 2) or not array.size or array.shape[-1] > _LONGEST:
        raise LecoError(
            f"{path}: has the shape {array.shape}; one vector, or a table with a vector in each row, is meant, of at "
            f"most {_LONGEST:,} numbers each"
        )


def _row_fault(array: NDArray[Any], row: int | None) -> Fault | None:
    if row is None and array.ndim == 2:
        return Fault("no row", f"holds {len(array)} vectors; say which one: `#0` to `#{len(array) - 1}` after the name")
    if row is not None and array.ndim == 1:
        return Fault("row out of range", f"holds one vector; leave out `#{row}`")
    if row is not None and row >= len(array):
        return Fault("row out of range", f"row {row} is not there; the nearest is {len(array) - 1}, the last")
    return None


def _number_faults(array: NDArray[Any], places: Mapping[int, int | None]) -> dict[int, Fault]:
    faults = {}
    for some, block in _blocks(array, places):
        finite = np.isfinite(block)
        for index in np.flatnonzero(~finite.all(axis=1)).tolist():
            row, column = places[some[index]], int(np.argmin(finite[index]))
            value = array[column] if row is None else array[row, column]
            what = f"number {column} is {value}" + (", too large for 32 bits" if np.isfinite(value) else "")
            faults[some[index]] = Fault("NaN or infinity", what)
    return faults


def _blocks(array: NDArray[Any], places: Mapping[int, int | None]) -> Iterator[tuple[list[int], NDArray[np.float32]]]:
    """Read rows as 32-bit floats, many at once but never more than fit into memory."""
    chosen = list(places)
    step = max(1, _AT_ONCE // array.shape[-1])
    for start in range(0, len(chosen), step):
        some = chosen[start : start + step]
        rows = [places[place] or 0 for place in some]
        with np.errstate(over="ignore"):
            yield some, np.atleast_2d(array)[rows].astype(np.float32)


SUFFIXES = (".npy", ".npz", ".csv")
_LARGEST_ARCHIVE = 4_000_000_000  # bytes of arrays in a .npz, which must be unpacked to be read
_ROWS = 512
_UNREADABLE = "\N{REPLACEMENT CHARACTER}"

Block = tuple[list[str], NDArray[np.float32]]  # names such as file.npy#7, and vectors (n, d)


def vector_blocks(path: Path, name: str, width: int) -> Iterator[Block | LecoError]:
    """The vectors of a file, some at a time, and what is wrong with others; each must have `width` numbers."""
    suffix = path.suffix.lower()
    if suffix == ".npy":
        yield from _rows(open_array(path), name, width)
    elif suffix == ".npz":
        for key, array in _archive(path):
            yield from _rows(array, f"{name}/{key}", width)
    elif suffix == ".csv":
        yield from _csv(path, name, width)
    else:
        raise LecoError(f"{path}: is none of {', '.join(SUFFIXES)}")


def check_width(source: str, found: int, width: int) -> None:
    """Refuse vectors of another length than the model takes."""
    if found != width:
        raise LecoError(f"{source}: has {found} numbers for each sample, but the model takes {width}")


def _rows(array: NDArray[Any], name: str, width: int) -> Iterator[Block | LecoError]:
    table = np.atleast_2d(array)
    try:
        check_width(name, table.shape[1], width)
    except LecoError as error:
        yield error
        return
    for start in range(0, len(table), _ROWS):
        block = _as_floats(table[start : start + _ROWS])
        yield [name if array.ndim == 1 else f"{name}#{start + row}" for row in range(len(block))], block


def _archive(path: Path) -> Iterator[tuple[str, NDArray[Any]]]:
    try:
        with zipfile.ZipFile(path) as archive:
            size = sum(member.file_size for member in archive.infolist())
        if size > _LARGEST_ARCHIVE:
            raise LecoError(
                f"{path}: would unpack to {size / 1e9:.1f} GB; save the array as .npy, which is not unpacked"
            )
        with np.load(path, allow_pickle=False) as content:
            for key in content.files:
                array = content[key]
                check_array(Path(f"{path}/{key}"), array)
                yield key, array
    except LecoError:
        raise
    except Exception as error:  # a broken archive can make numpy raise almost anything
        raise LecoError(f"{path}: cannot be read as arrays: {error}") from None


def _csv(path: Path, name: str, width: int) -> Iterator[Block | LecoError]:
    """The rows that are vectors; a row that is none is told about, and those around it are read."""
    names: list[str] = []
    rows: list[list[float]] = []
    number = 0
    with path.open(encoding="utf-8-sig", errors="replace", newline="") as file:
        for line, cells in enumerate(_lines(file), start=1):
            if not cells or (line == 1 and not isinstance(cells, str) and not any(map(_is_number, cells))):
                continue  # an empty line, or a header
            if isinstance(found := _numbers(cells, width), str):
                yield LecoError(f"{path}: row {line} {found}")
            else:
                names.append(f"{name}#{number}")
                rows.append(found)
            number += 1
            if len(rows) == _ROWS:
                yield names, _as_floats(rows)
                names, rows = [], []
    if rows:
        yield names, _as_floats(rows)


def _lines(file: TextIO) -> Iterator[list[str] | str]:
    """The cells of each line, or why they cannot be told apart."""
    lines = csv.reader(file, strict=True)
    while True:
        try:
            yield next(lines)
        except csv.Error as error:
            yield f"is not CSV: {error}"
        except StopIteration:
            return


def _numbers(cells: list[str] | str, width: int) -> list[float] | str:
    """The numbers of a row, or what is wrong with it."""
    if isinstance(cells, str):
        return cells
    if any(_UNREADABLE in cell for cell in cells):
        return "is not UTF-8; save the file as UTF-8"
    if len(cells) != width:
        return f"has {len(cells)} numbers, but the model takes {width}"
    return [float(cell) if _is_number(cell) else math.nan for cell in cells]


def _as_floats(rows: Any) -> NDArray[np.float32]:
    """32-bit floats; what is too large for them becomes infinity, which is noticed later."""
    with np.errstate(over="ignore"):
        return np.asarray(rows).astype(np.float32)


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True
