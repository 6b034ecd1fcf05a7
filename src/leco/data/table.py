"""The rows of a manifest as text: CSV, JSONL and Parquet read alike."""

import csv
import io
import json
import reprlib
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from leco.data.problems import Fault, Problem
from leco.errors import LecoError, first_line, nearest
from leco.ontology.files import write_text

COLUMNS = ("image", "features", "label", "mask", "version", "split", "period", "annotator", "time")
_MOST_COLUMNS = 1_000
_ENDINGS = (".csv", ".jsonl", ".parquet")


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
    """Write all columns as CSV or JSONL, whole or not at all."""
    names = list(table.columns)
    records = list(zip(*table.columns.values(), strict=True))
    if path.suffix.lower() == ".csv":
        text = io.StringIO(newline="")
        csv.writer(text, lineterminator="\n").writerows([names, *records])
        write_text(path, text.getvalue())
    elif path.suffix.lower() == ".jsonl":
        lines = [json.dumps(dict(zip(names, record, strict=True)), ensure_ascii=False) for record in records]
        write_text(path, "".join(f"{line}\n" for line in lines))
    else:
        raise LecoError(f"{path}: the ending says which format is meant; valid: .csv, .jsonl")


def read_table(path: Path) -> tuple[Table, list[Problem]]:
    """Read all rows; those that cannot be taken apart are returned as problems."""
    readers = {".csv": _read_csv, ".jsonl": _read_jsonl, ".parquet": _read_parquet}
    if path.suffix.lower() not in readers:
        raise LecoError(f"{path}: the ending says which format is meant; valid: {', '.join(_ENDINGS)}")
    if not path.is_file():
        raise LecoError(f"{path}: {'is not an ordinary file' if path.exists() else 'there is no such file'}")
    try:
        return readers[path.suffix.lower()](path)
    except UnicodeDecodeError:
        raise LecoError(f"{path}: is not UTF-8; save the file as UTF-8") from None
    except OSError as error:
        raise LecoError(f"{path}: cannot be read: {error.strerror or error}") from None


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
    cells: list[list[str]] = []
    rows: list[int] = []
    problems: list[Problem] = []
    with path.open(encoding="utf-8-sig", newline="") as file:
        reader = csv.reader(file, strict=True)
        try:
            header = [name.strip() for name in next(reader, [])]
            for name, count in Counter(header).items():
                if count > 1:
                    raise LecoError(f"{path}: the column {name!r} stands there twice")
            for row, values in enumerate(reader, start=2):
                if len(values) == len(header):
                    cells.append(values)
                    rows.append(row)
                elif values:  # an empty line is no row
                    message = f"has {len(values)} cells, but the header names {len(header)}"
                    problems.append(Problem(row, "", message, "broken row"))
        except csv.Error as error:
            raise LecoError(f"{path}:{reader.line_num}: is not CSV: {error}") from None
    columns = zip(*cells, strict=True) if cells else [()] * len(header)
    stripped = ([cell.strip() for cell in column] for column in columns)
    return Table(path, dict(zip(header, stripped, strict=True)), tuple(rows)), problems


def _read_jsonl(path: Path) -> tuple[Table, list[Problem]]:
    records: list[dict[str, str]] = []
    rows: list[int] = []
    problems: list[Problem] = []
    with path.open(encoding="utf-8-sig") as file:
        for row, line in enumerate(file, start=1):
            if not line.strip():
                continue
            try:
                records.append(_record(line))
                rows.append(row)
            except (ValueError, RecursionError) as error:
                problems.append(Problem(row, "", f"is not a JSON object of texts and numbers: {error}", "broken row"))
    names = dict.fromkeys(name for record in records for name in record)
    if len(names) > _MOST_COLUMNS:
        raise LecoError(f"{path}: has {len(names):,} different keys; {', '.join(COLUMNS)} are known")
    columns = {name: [record.get(name, "") for record in records] for name in names}
    return Table(path, columns, tuple(rows)), problems


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


def _read_parquet(path: Path) -> tuple[Table, list[Problem]]:
    import pyarrow as pa  # type: ignore[import-untyped]
    from pyarrow import parquet

    try:
        content = parquet.read_table(path)
    except (pa.ArrowException, ValueError) as error:
        raise LecoError(f"{path}: is not Parquet: {first_line(error)}") from None
    names = [name for name in content.column_names if not name.startswith("__index_level_")]  # what pandas adds
    columns = {name: _texts(path, name, content.column(name)) for name in names}
    return Table(path, columns, tuple(range(1, content.num_rows + 1))), []


def _texts(path: Path, name: str, values: Any) -> list[str]:
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
