"""The rows of a manifest one after the other, so that any number of them takes the same memory."""

import csv
import json
import reprlib
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from leco.data.problems import Problem
from leco.errors import LecoError, first_line, nearest

ENDINGS = (".csv", ".jsonl", ".parquet")
_AT_ONCE = 1_000  # rows of a Parquet file


def stream_cells(path: Path, column: str) -> Iterator[tuple[int, str] | Problem]:
    """The cells of one column, "" where there is none, with the numbers of their rows; or what is wrong with a row."""
    with reading(path) as ending:
        if ending == ".jsonl":
            for record in jsonl_rows(path):
                yield record if isinstance(record, Problem) else (record[0], record[1].get(column, ""))
        elif ending == ".csv":
            rows = csv_rows(path)
            place = _place(path, next(rows), column)
            for row in rows:
                yield row if isinstance(row, Problem) else (row[0], row[1][place].strip())
        else:
            yield from _parquet_cells(path, column)


def ending_of(path: Path) -> str:
    """Which of the formats a file has, or is to have."""
    if path.suffix.lower() not in ENDINGS:
        raise LecoError(f"{path}: the ending says which format is meant; valid: {', '.join(ENDINGS)}")
    return path.suffix.lower()


@contextmanager
def reading(path: Path) -> Iterator[str]:
    """The ending of a file that is there; what cannot be read in it is an error that names it."""
    ending = ending_of(path)
    if not path.is_file():
        raise LecoError(f"{path}: {'is not an ordinary file' if path.exists() else 'there is no such file'}")
    try:
        yield ending
    except UnicodeDecodeError:
        raise LecoError(f"{path}: is not UTF-8; save the file as UTF-8") from None
    except OSError as error:
        raise LecoError(f"{path}: cannot be read: {error.strerror or error}") from None


def csv_rows(path: Path) -> Iterator[Any]:
    """The names of the columns, then the number and the cells of every row, or what is wrong with it."""
    with path.open(encoding="utf-8-sig", newline="") as file:
        reader = csv.reader(file, strict=True)
        try:
            header = [name.strip() for name in next(reader, [])]
            for name, count in Counter(header).items():
                if count > 1:
                    raise LecoError(f"{path}: the column {name!r} stands there twice")
            yield header
            for row, values in enumerate(reader, start=2):
                if len(values) == len(header):
                    yield row, values
                elif values:  # an empty line is no row
                    message = f"has {len(values)} cells, but the header names {len(header)}"
                    yield Problem(row, "", message, "broken row")
        except csv.Error as error:
            raise LecoError(f"{path}:{reader.line_num}: is not CSV: {error}") from None


def jsonl_rows(path: Path) -> Iterator[tuple[int, dict[str, str]] | Problem]:
    """The number and the cells of every row, or what is wrong with it."""
    with path.open(encoding="utf-8-sig") as file:
        for row, line in enumerate(file, start=1):
            if not line.strip():
                continue
            try:
                yield row, _record(line)
            except (ValueError, RecursionError) as error:
                yield Problem(row, "", f"is not a JSON object of texts and numbers: {error}", "broken row")


def _record(line: str) -> dict[str, str]:
    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        content = dict(pairs)
        if len(content) < len(pairs):
            raise ValueError("a key stands there twice")
        return content

    record = json.loads(line, object_pairs_hook=unique)
    if not isinstance(record, dict):
        raise ValueError(f"{line.strip()[:40]!r}")
    return {name: _text(value) for name, value in record.items()}


@contextmanager
def parquet_file(path: Path) -> Iterator[Any]:
    """A Parquet file, of which some rows at a time can be read."""
    import pyarrow as pa  # type: ignore[import-untyped]
    from pyarrow import parquet

    try:
        with parquet.ParquetFile(path) as file:
            yield file
    except (pa.ArrowException, ValueError) as error:
        if isinstance(error, LecoError):
            raise
        raise LecoError(f"{path}: is not Parquet: {first_line(error)}") from None


def _parquet_cells(path: Path, column: str) -> Iterator[tuple[int, str]]:
    with parquet_file(path) as file:
        _place(path, file.schema_arrow.names, column)
        first = 1
        for batch in file.iter_batches(_AT_ONCE, columns=[column]):
            yield from enumerate(texts(path, column, batch.column(0)), start=first)
            first += len(batch)


def _place(path: Path, names: list[str], column: str) -> int:
    if column not in names:
        raise LecoError(f"{path}: has no column {column!r}{nearest(column, names)}")
    return names.index(column)


def texts(path: Path, name: str, values: Any) -> list[str]:
    """The cells of a column of Parquet."""
    try:
        return [_text(value) for value in values.to_pylist()]
    except (ValueError, OverflowError) as error:
        raise LecoError(f"{path}: column {name!r}: {error} is neither text nor a whole number") from None


def _text(value: Any) -> str:
    """Write a cell the way CSV would have it; a column of numbers with empty cells holds floats and NaN."""
    if isinstance(value, str):
        return value.strip()
    if value is None or value != value:
        return ""
    whole = isinstance(value, int) or (isinstance(value, float) and value.is_integer())
    if isinstance(value, bool) or not whole or abs(value) >= 10**18:
        raise ValueError(f"{reprlib.repr(value)}")
    return str(int(value))
