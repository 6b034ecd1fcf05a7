"""The rows of a manifest as text: CSV, JSONL and Parquet read alike."""

import csv
import io
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from leco.data.problems import Fault, Problem
from leco.data.rows import csv_rows, ending_of, jsonl_rows, parquet_file, reading, texts
from leco.errors import LecoError, nearest
from leco.ontology.files import write_bytes, write_text

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
