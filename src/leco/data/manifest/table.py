"""The rows of a manifest as text: CSV, JSONL and Parquet read alike."""

import csv
import io
import json
import reprlib
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from leco.data.manifest.problems import Fault, Problem
from leco.errors import LecoError, first_line, nearest
from leco.io import write_bytes, write_text

COLUMNS = ("image", "features", "label", "mask", "version", "split", "period", "annotator", "time")
_MOST_COLUMNS = 1_000


@dataclass(frozen=True)
class Table:
    """Cells by column, "" where there is none, without surrounding blanks."""

    source: Path
    columns: dict[str, list[str]]
    rows: tuple[int, ...] | None = None  # their numbers in the file; None where there is no such thing

    def __len__(self) -> int:
        return len(next(iter(self.columns.values()), []))

    def __getitem__(self, column: str) -> list[str]:
        return self.columns[column] if column in self.columns else [""] * len(self)

    @property
    def kind(self) -> str:
        """The column of the inputs."""
        return "features" if "features" in self.columns else "image"

    @property
    def target(self) -> str:
        """The column of what was annotated."""
        return "mask" if "mask" in self.columns else "label"

    def row(self, place: int) -> int | None:
        """Number of the row at a position, as people count."""
        return self.rows[place] if self.rows else None

    def name(self, place: int) -> str:
        """How to speak of the row at a position."""
        return f"row {self.rows[place]}" if self.rows else self[self.kind][place]

    def problem(self, place: int, fault: Fault, file: str = "") -> Problem:
        """Say that the row at a position has a fault, in a file other than its input if one is named."""
        file = file or self[self.kind][place]
        return Problem(self.row(place), file, fault.message, fault.kind, place, fault.remedy)


def write_table(table: Table, path: Path) -> None:
    """Write all columns as CSV, JSONL or Parquet, whole or not at all."""
    names = list(table.columns)
    records = list(zip(*table.columns.values(), strict=True))
    ending = ending_of(path)
    if ending == ".csv":
        text = io.StringIO(newline="")
        csv.writer(text, lineterminator="\n").writerows([names, *records])
        write_text(path, text.getvalue())
    elif ending == ".jsonl":
        lines = [json.dumps(dict(zip(names, record, strict=True)), ensure_ascii=False) for record in records]
        write_text(path, "".join(f"{line}\n" for line in lines))
    else:
        import pyarrow as pa  # type: ignore[import-untyped]
        from pyarrow import parquet

        content = io.BytesIO()
        parquet.write_table(
            pa.table({name: pa.array(cells, pa.string()) for name, cells in table.columns.items()}), content
        )
        write_bytes(path, content.getvalue())


def read_table(path: Path) -> tuple[Table, list[Problem]]:
    """Read all rows; those that cannot be taken apart are returned as problems."""
    with reading(path) as ending:
        return {".csv": _read_csv, ".jsonl": _read_jsonl, ".parquet": _read_parquet}[ending](path)


def check_columns(table: Table) -> Iterator[Problem]:
    """What is wrong with the table as a whole, so that looking at its rows makes no sense."""

    def problem(message: str, kind: str = "missing column") -> Problem:
        return Problem(None, "", message, kind)

    given = set(table.columns)
    for column in table.columns:
        if column not in COLUMNS:
            yield problem(f"unknown column {column!r}{nearest(column, COLUMNS)}", "unknown column")
    for pair, what in ((("image", "features"), "the input"), (("label", "mask"), "the annotation")):
        if len(given.intersection(pair)) != 1:
            found = "both columns" if given.issuperset(pair) else "neither a column"
            link = "and" if given.issuperset(pair) else "nor"
            yield problem(f"there is {found} {pair[0]!r} {link} {pair[1]!r}; exactly one of them holds {what}")
    if {"features", "mask"} <= given:
        yield problem("a column 'mask' needs a column 'image': features have no pixels")
    if "version" not in given:
        yield problem("there is no column 'version'; it names the ontology version of the label")
    if not len(table):
        yield problem("there are no rows", "no rows")


def _read_csv(path: Path) -> tuple[Table, list[Problem]]:
    header, *found = csv_rows(path)
    good = [row for row in found if not isinstance(row, Problem)]
    columns = zip(*(cells for _, cells in good), strict=True) if good else [()] * len(header)
    stripped = ([cell.strip() for cell in column] for column in columns)
    table = Table(path, dict(zip(header, stripped, strict=True)), tuple(row for row, _ in good))
    return table, [row for row in found if isinstance(row, Problem)]


def _read_jsonl(path: Path) -> tuple[Table, list[Problem]]:
    found = list(jsonl_rows(path))
    good = [row for row in found if not isinstance(row, Problem)]
    names = dict.fromkeys(name for _, record in good for name in record)
    if len(names) > _MOST_COLUMNS:
        raise LecoError(f"{path}: has {len(names):,} different keys; {', '.join(COLUMNS)} are known")
    columns = {name: [record.get(name, "") for _, record in good] for name in names}
    return Table(path, columns, tuple(row for row, _ in good)), [row for row in found if isinstance(row, Problem)]


def _read_parquet(path: Path) -> tuple[Table, list[Problem]]:
    with parquet_file(path) as file:
        content = file.read()
    names = [name for name in content.column_names if not name.startswith("__index_level_")]  # what pandas adds
    columns = {name: texts(path, name, content.column(name)) for name in names}
    return Table(path, columns, tuple(range(1, content.num_rows + 1))), []


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
    import pyarrow as pa
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
