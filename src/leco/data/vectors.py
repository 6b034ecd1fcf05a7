"""Feature vectors: `file.npy` is one vector, `file.npy#7` is row 7 of a two-dimensional array."""

import math
import re
import zipfile
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from leco.data.manifest.table import Fault, csv_records
from leco.errors import LecoError

SUFFIXES = (".npy", ".npz", ".csv")
_ROW = re.compile(r"(.+\.npy)#([0-9]{1,18})", re.IGNORECASE | re.DOTALL)
_AT_ONCE = 4_000_000  # values in memory
_LONGEST = 1_000_000  # values of one vector
_LARGEST_ARCHIVE = 4_000_000_000  # bytes of the arrays in a .npz, which must be unpacked to be read
_ROWS = 512
_UNREADABLE = "\N{REPLACEMENT CHARACTER}"

Tick = Callable[[int, int], object]  # done, total
Block = tuple[list[str], NDArray[np.float32]]  # names such as file.npy#7, and vectors (n, d)


def parse_features(reference: str) -> tuple[str, int | None] | Fault:
    """Split a reference into file and row.

    >>> parse_features("birds.npy#007")
    ('birds.npy', 7)
    """
    if found := _ROW.fullmatch(reference):
        return found[1], int(found[2])
    if reference.lower().endswith(".npy"):
        return reference, None
    return Fault("not .npy", "is neither `file.npy` nor `file.npy#ROW`")


def load_features(root: Path, references: Sequence[str]) -> NDArray[np.float32]:
    """Read the vectors of checked references, (n, d), opening each file once."""
    rows: NDArray[np.float32] | None = None
    for file, places in _by_file(references).items():
        for some, block in _blocks(_open_array(root / file), places):
            if rows is None:
                rows = np.empty((len(references), block.shape[1]), dtype=np.float32)
            if block.shape[1] != rows.shape[1]:
                raise LecoError(
                    f"{root / file}: vectors have {block.shape[1]} values, those of other files {rows.shape[1]}"
                )
            rows[some] = block
    return np.empty((0, 0), dtype=np.float32) if rows is None else rows


def inspect_features(root: Path, references: Sequence[str], tick: Tick, width: int | None = None) -> dict[str, Fault]:
    """Return the faults of distinct references: of the array, the row, its values or their number.

    Vectors must have `width` values, those that a model takes, or by default as many as most vectors have.
    """
    faults: dict[str, Fault] = {}
    widths: dict[str, int] = {}
    files = _by_file(references)
    for number, (file, places) in enumerate(files.items(), start=1):
        try:
            array = _open_array(root / file)
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
        who = "the model takes" if width else "most vectors have"
        for reference, number in widths.items():
            if number != wanted:
                faults[reference] = Fault("wrong size", f"has {number} values, but {who} {wanted}")
    return faults


def _by_file(references: Sequence[str]) -> dict[str, dict[int, int | None]]:
    """Return, for every file, the positions of the references to it, and their rows."""
    files: dict[str, dict[int, int | None]] = defaultdict(dict)
    for place, reference in enumerate(references):
        parsed = parse_features(reference)
        if isinstance(parsed, Fault):
            raise LecoError(f"{reference}: {parsed.message}")
        files[parsed[0]][place] = parsed[1]
    return files


def _open_array(path: Path) -> NDArray[Any]:
    """Memory-map an array; pickled objects, which could run code, are refused."""
    try:
        array = np.load(path, mmap_mode="r", allow_pickle=False)
    except Exception as error:  # a broken header can make numpy raise almost anything
        hint = "contains Python objects" if "bject" in str(error) or "ickle" in str(error) else "is not a .npy array"
        raise LecoError(f"{path}: {hint}: {error}") from None
    if not isinstance(array, np.ndarray):
        raise LecoError(f"{path}: is an archive of arrays (.npz), not a .npy array")
    _check_array(path, array)
    return array


def _check_array(path: Path, array: NDArray[Any]) -> None:
    """Refuse arrays that are neither a vector nor a matrix of numbers."""
    if array.dtype.kind not in "fiu":
        raise LecoError(f"{path}: contains {array.dtype}, not numbers")
    if array.ndim not in (1, 2) or not array.size or array.shape[-1] > _LONGEST:
        raise LecoError(
            f"{path}: has the shape {array.shape}; it must be a vector, or a matrix with a vector in each row, of at "
            f"most {_LONGEST:,} values each"
        )


def _row_fault(array: NDArray[Any], row: int | None) -> Fault | None:
    if row is None and array.ndim == 2:
        return Fault("no row", f"has {len(array)} vectors; append a row, `#0` to `#{len(array) - 1}`")
    if row is not None and array.ndim == 1:
        return Fault("row out of range", f"is a single vector; remove `#{row}`")
    if row is not None and row >= len(array):
        return Fault("row out of range", f"row {row} is out of range; the last row is {len(array) - 1}")
    return None


def _number_faults(array: NDArray[Any], places: Mapping[int, int | None]) -> dict[int, Fault]:
    faults = {}
    for some, block in _blocks(array, places):
        finite = np.isfinite(block)
        for index in np.flatnonzero(~finite.all(axis=1)).tolist():
            row, column = places[some[index]], int(np.argmin(finite[index]))
            value = array[column] if row is None else array[row, column]
            what = f"value {column} is {value}" + (", too large for 32 bits" if np.isfinite(value) else "")
            faults[some[index]] = Fault("NaN or infinity", what)
    return faults


def _blocks(array: NDArray[Any], places: Mapping[int, int | None]) -> Iterator[tuple[list[int], NDArray[np.float32]]]:
    """Yield blocks of rows as 32-bit floats, as large as is safe for memory."""
    chosen = list(places)
    step = max(1, _AT_ONCE // array.shape[-1])
    for start in range(0, len(chosen), step):
        some = chosen[start : start + step]
        rows = [places[place] or 0 for place in some]
        with np.errstate(over="ignore"):
            yield some, np.atleast_2d(array)[rows].astype(np.float32)


def vector_blocks(path: Path, name: str, width: int) -> Iterator[Block | LecoError]:
    """Yield blocks of the vectors of a file, each of `width` values, and the errors of the others."""
    suffix = path.suffix.lower()
    if suffix == ".npy":
        yield from _rows(_open_array(path), name, width)
    elif suffix == ".npz":
        for key, array in _archive(path):
            yield from _rows(array, f"{name}/{key}", width)
    elif suffix == ".csv":
        yield from _csv(path, name, width)
    else:
        raise LecoError(f"{path}: unknown format of vectors; valid: {', '.join(SUFFIXES)}")


def check_width(source: str, found: int, width: int) -> None:
    """Refuse vectors of a length other than the model takes."""
    if found != width:
        raise LecoError(f"{source}: vectors have {found} values, but the model takes {width}")


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
                f"{path}: would unpack to {size / 1e9:.1f} GB; save the array as .npy, which is memory-mapped"
            )
        with np.load(path, allow_pickle=False) as content:
            for key in content.files:
                array = content[key]
                _check_array(Path(f"{path}/{key}"), array)
                yield key, array
    except LecoError:
        raise
    except Exception as error:  # a broken archive can make numpy raise almost anything
        raise LecoError(f"{path}: cannot be read as arrays: {error}") from None


def _csv(path: Path, name: str, width: int) -> Iterator[Block | LecoError]:
    """Yield blocks of the rows that are vectors, and the errors of the others."""
    names: list[str] = []
    rows: list[list[float]] = []
    number = 0
    for line, cells in enumerate(csv_records(path, errors="replace"), start=1):
        if isinstance(cells, LecoError):
            yield cells
        elif not cells or (line == 1 and not any(map(_is_number, cells))):
            continue  # an empty line, or a header
        elif isinstance(found := _numbers(cells, width), str):
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


def _numbers(cells: list[str], width: int) -> list[float] | str:
    """Return the values of a row, or what is wrong with it."""
    if any(_UNREADABLE in cell for cell in cells):
        return "is not valid UTF-8; save the file as UTF-8"
    if len(cells) != width:
        return f"has {len(cells)} values, but the model takes {width}"
    return [float(cell) if _is_number(cell) else math.nan for cell in cells]


def _as_floats(rows: Any) -> NDArray[np.float32]:
    """Convert to 32-bit floats; larger values become infinity, which is reported later."""
    with np.errstate(over="ignore"):
        return np.asarray(rows).astype(np.float32)


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True
