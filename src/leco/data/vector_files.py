"""Feature vectors in files of their own, in blocks: `.npy`, `.npz`, and `.csv` with a vector in each row."""

import csv
import math
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TextIO

import numpy as np
from numpy.typing import NDArray

from leco.data.feature_files import check_array, open_array
from leco.errors import LecoError

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
