"""Tables as text: the one reader and writer of CSV, JSONL and Parquet, and what can be wrong with their rows."""

import csv
import io
import json
import reprlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, NamedTuple

from leco.errors import LecoError, TextError, and_more, first_line, nearest, printable
from leco.io import from_json, write_bytes, write_text

SUFFIXES = (".csv", ".jsonl", ".parquet")
COLUMNS = ("image", "features", "label", "mask", "version", "split", "period", "annotator", "time")
_MOST_COLUMNS = 1_000
_MOST_SHOWN = 20  # problems
_AT_ONCE = 1_000  # rows of a Parquet file

DataKind = Literal["images", "features", "masks"]


class Fault(NamedTuple):
    """A fault of a file or a value, independent of the rows that name it."""

    kind: str
    message: str
    remedy: Callable[[], str] = str  # the end of the message; evaluated only if shown, as it may be slow


@dataclass(frozen=True)
class Problem:
    """A fault and the row that has it.

    >>> print(Problem(7, "a.png", "no such file"))
    row 7: a.png: no such file
    """

    row: int | None  # as in a spreadsheet: the header of a CSV file is row 1; None for folders
    file: str
    message: str
    kind: str = "bad row"
    place: int = field(default=-1, repr=False, compare=False)  # index into the columns of the table; -1: not in it
    remedy: Callable[[], str] = field(default=str, repr=False, compare=False)

    def __str__(self) -> str:
        where = [] if self.row is None else [f"row {self.row}"]
        return printable(": ".join([*where, *filter(None, [self.file]), self.message]) + self.remedy())


@dataclass
class Problems:
    """All problems of one manifest, in the order of the rows."""

    source: Path
    rows: int = 0  # read
    dropped: int = 0  # of them, those with a problem
    found: list[Problem] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.found)

    def extend(self, problems: Iterable[Problem]) -> None:
        """Add problems, and sort by row."""
        self.found.extend(problems)
        self.found.sort(key=lambda problem: -1 if problem.row is None else problem.row)

    @property
    def places(self) -> set[int]:
        """Indices of the rows that have a problem."""
        return {problem.place for problem in self.found if problem.place >= 0}

    @property
    def counts(self) -> dict[str, int]:
        """Number of problems of each kind, most frequent first."""
        return dict(Counter(problem.kind for problem in self.found).most_common())

    def __str__(self) -> str:
        """Return a headline with the counts, then the first problems, one per line."""
        kinds = ", ".join(f"{count:,} {kind}" for kind, count in self.counts.items())
        total = f"{len(self):,} problem{'s' if len(self) != 1 else ''}"
        headline = f"{self.source}: {total}{f' ({kinds})' if kinds else ''}"
        return "\n  ".join([headline, *and_more(self.found, _MOST_SHOWN)])

    def raise_any(self) -> None:
        """Raise one error for all problems, if there are any."""
        if self.found:
            raise LecoError(str(self))


@dataclass(frozen=True)
class Table:
    """Cells by column, stripped of blanks; "" where a cell is empty."""

    source: Path
    columns: dict[str, list[str]]
    rows: tuple[int, ...] | None = None  # their numbers in the file; None for folders
    broken: tuple[Problem, ...] = ()  # rows that could not be parsed

    def __len__(self) -> int:
        return len(next(iter(self.columns.values()), []))

    def __getitem__(self, column: str) -> list[str]:
        return self.columns[column] if column in self.columns else [""] * len(self)

    @property
    def kind(self) -> Literal["image", "features"]:
        """The column of the inputs."""
        return "features" if "features" in self.columns else "image"

    @property
    def target(self) -> Literal["label", "mask"]:
        """The column of the annotations."""
        return "mask" if "mask" in self.columns else "label"

    @property
    def data_kind(self) -> DataKind:
        """The kind of data: feature vectors, images with masks, or images with labels."""
        return "features" if self.kind == "features" else "masks" if self.target == "mask" else "images"

    def row(self, place: int) -> int | None:
        """Return the number of the row at an index."""
        return self.rows[place] if self.rows else None

    def name(self, place: int) -> str:
        """Return what to call the row at an index in a message."""
        return f"row {self.rows[place]}" if self.rows else self[self.kind][place]

    def problem(self, place: int, fault: Fault, file: str = "") -> Problem:
        """Return a fault of the row at an index; `file` is given if the fault is not in the input itself."""
        file = file or self[self.kind][place]
        return Problem(self.row(place), file, fault.message, fault.kind, place, fault.remedy)

    def select(self, places: Iterable[int]) -> "Table":
        """Return some of the rows."""
        chosen = list(places)
        columns = {name: [cells[place] for place in chosen] for name, cells in self.columns.items()}
        return Table(self.source, columns, self.rows and tuple(self.rows[place] for place in chosen), self.broken)


def check_columns(table: Table) -> Iterator[Problem]:
    """Yield problems of the table as a whole, which make checking its rows pointless."""

    def problem(message: str, kind: str = "missing column") -> Problem:
        return Problem(None, "", message, kind)

    given = set(table.columns)
    for column in table.columns:
        if column not in COLUMNS:
            yield problem(f"unknown column {column!r}{nearest(column, COLUMNS)}", "unknown column")
    for one, other in (("image", "features"), ("label", "mask")):
        if (one in given) == (other in given):
            have = "both columns" if one in given else "neither column"
            yield problem(f"{have} {one!r} {'and' if one in given else 'nor'} {other!r}; exactly one is needed")
    if {"features", "mask"} <= given:
        yield problem("a column 'mask' needs a column 'image': features have no pixels")
    if "version" not in given:
        yield problem("no column 'version'; it names the ontology version of each label")
    if not len(table):
        yield problem("the table has no rows", "no rows")


def read_table(path: Path) -> Table:
    """Read all rows of a table; those that cannot be parsed are `broken`."""
    with _reading(path) as suffix:
        if suffix == ".parquet":
            return _read_parquet(path)
        return _read_csv(path) if suffix == ".csv" else _read_jsonl(path)


def stream_cells(path: Path, *columns: str) -> Iterator[tuple[int, tuple[str, ...]] | Problem]:
    """Yield the row number and the cells of some columns of every row, in constant memory; or the row's problem."""
    with _reading(path) as suffix:
        if suffix == ".jsonl":
            for record in _jsonl_rows(path):
                yield (
                    record if isinstance(record, Problem) else (record[0], tuple(record[1].get(c, "") for c in columns))
                )
        elif suffix == ".csv":
            rows = _csv_rows(path)
            places = _places(path, next(rows), columns)
            for row in rows:
                yield row if isinstance(row, Problem) else (row[0], tuple(row[1][place].strip() for place in places))
        else:
            yield from _parquet_cells(path, columns)


def read_cells(path: Path, *columns: str) -> Iterator[tuple[int, tuple[str, ...]]]:
    """Yield what `stream_cells` does, but raise an error for a broken row."""
    for cells in stream_cells(path, *columns):
        if isinstance(cells, Problem):
            raise LecoError(f"{path}: {cells}")
        yield cells


def write_table(table: Table, path: Path) -> None:
    """Write all columns as CSV, JSONL or Parquet, atomically."""
    names = list(table.columns)
    records = zip(*table.columns.values(), strict=True)
    suffix = table_suffix(path)
    if suffix == ".csv":
        text = io.StringIO(newline="")
        csv.writer(text, lineterminator="\n").writerows([names, *records])
        write_text(path, text.getvalue())
    elif suffix == ".jsonl":
        lines = [json.dumps(dict(zip(names, record, strict=True)), ensure_ascii=False) for record in records]
        write_text(path, "".join(f"{line}\n" for line in lines))
    else:
        import pyarrow as pa  # type: ignore[import-untyped]
        from pyarrow import parquet

        content = io.BytesIO()
        columns = {name: pa.array(cells, pa.string()) for name, cells in table.columns.items()}
        parquet.write_table(pa.table(columns), content)
        write_bytes(path, content.getvalue())


def table_suffix(path: Path) -> str:
    """Return the suffix of a table, in lower case; refuse any other."""
    if path.suffix.lower() not in SUFFIXES:
        raise LecoError(f"{path}: unknown table format {path.suffix!r}; valid: {', '.join(SUFFIXES)}")
    return path.suffix.lower()


def csv_records(path: Path, errors: str = "strict") -> Iterator[list[str] | LecoError]:
    """Yield the cells of every record of a CSV file, or an error; `errors` is for undecodable bytes, as of `open`."""
    with path.open(encoding="utf-8-sig", errors=errors, newline="") as file:
        reader = csv.reader(file, strict=True)
        while True:
            try:
                yield next(reader)
            except csv.Error as error:
                yield LecoError(f"{path}:{reader.line_num}: not valid CSV: {error}")
            except StopIteration:
                return


@contextmanager
def _reading(path: Path) -> Iterator[str]:
    """Yield the suffix of an existing table; errors while reading it name the file."""
    suffix = table_suffix(path)
    if not path.is_file():
        raise LecoError(f"{path}: {'not a regular file' if path.exists() else 'no such file'}")
    try:
        yield suffix
    except UnicodeDecodeError:
        raise LecoError(f"{path}: not valid UTF-8; save the file as UTF-8") from None
    except OSError as error:
        raise LecoError(f"{path}: cannot be read: {error.strerror or error}") from None


def _read_csv(path: Path) -> Table:
    header, *found = _csv_rows(path)
    good = [row for row in found if not isinstance(row, Problem)]
    columns = zip(*(cells for _, cells in good), strict=True) if good else [()] * len(header)
    stripped = ([cell.strip() for cell in column] for column in columns)
    broken = tuple(row for row in found if isinstance(row, Problem))
    return Table(path, dict(zip(header, stripped, strict=True)), tuple(row for row, _ in good), broken)


def _csv_rows(path: Path) -> Iterator[Any]:
    """Yield the column names, then the number and the cells of every row, or its problem."""
    header: list[str] | None = None
    for row, cells in enumerate(csv_records(path), start=1):
        if isinstance(cells, LecoError):
            raise cells
        if header is None:
            header = [name.strip() for name in cells]
            _check_unique(path, header)
            yield header
        elif len(cells) == len(header):
            yield row, cells
        elif cells:  # not an empty line
            yield Problem(row, "", f"has {len(cells)} cells, but the header has {len(header)}", "broken row")
    if header is None:
        yield []


def _read_jsonl(path: Path) -> Table:
    found = list(_jsonl_rows(path))
    good = [row for row in found if not isinstance(row, Problem)]
    names = dict.fromkeys(name for _, record in good for name in record)
    if len(names) > _MOST_COLUMNS:
        raise LecoError(f"{path}: has {len(names):,} different keys; known are {', '.join(COLUMNS)}")
    columns = {name: [record.get(name, "") for _, record in good] for name in names}
    broken = tuple(row for row in found if isinstance(row, Problem))
    return Table(path, columns, tuple(row for row, _ in good), broken)


def _jsonl_rows(path: Path) -> Iterator[tuple[int, dict[str, str]] | Problem]:
    """Yield the number and the cells of every row, or its problem."""
    with path.open(encoding="utf-8-sig") as file:
        for row, line in enumerate(file, start=1):
            if not line.strip():
                continue
            try:
                record = from_json(line)
                if not isinstance(record, dict):
                    raise ValueError(f"{line.strip()[:40]!r}")
                yield row, {name: _text(value) for name, value in record.items()}
            except ValueError as error:
                reason = error.problem if isinstance(error, TextError) else error
                yield Problem(row, "", f"is not a JSON object of strings and integers: {reason}", "broken row")


def _read_parquet(path: Path) -> Table:
    with _parquet_file(path) as file:
        content = file.read()
    names = [name for name in content.column_names if not name.startswith("__index_level_")]  # added by pandas
    _check_unique(path, names)
    columns = {name: _texts(path, name, content.column(name)) for name in names}
    return Table(path, columns, tuple(range(1, content.num_rows + 1)))


def _parquet_cells(path: Path, columns: tuple[str, ...]) -> Iterator[tuple[int, tuple[str, ...]]]:
    with _parquet_file(path) as file:
        _check_unique(path, file.schema_arrow.names)
        _places(path, file.schema_arrow.names, columns)
        first = 1
        for batch in file.iter_batches(_AT_ONCE, columns=list(columns)):
            cells = (_texts(path, name, batch.column(name)) for name in columns)
            yield from enumerate(zip(*cells, strict=True), start=first)
            first += len(batch)


@contextmanager
def _parquet_file(path: Path) -> Iterator[Any]:
    import pyarrow as pa
    from pyarrow import parquet

    try:
        with parquet.ParquetFile(path) as file:
            yield file
    except LecoError:
        raise
    except (pa.ArrowException, ValueError) as error:
        raise LecoError(f"{path}: not valid Parquet: {first_line(error)}") from None


def _check_unique(path: Path, names: Sequence[str]) -> None:
    for name, count in Counter(names).items():
        if count > 1:
            raise LecoError(f"{path}: duplicate column {name!r}")


def _places(path: Path, names: list[str], columns: tuple[str, ...]) -> list[int]:
    for column in columns:
        if column not in names:
            raise LecoError(f"{path}: has no column {column!r}{nearest(column, names)}")
    return [names.index(column) for column in columns]


def _texts(path: Path, name: str, values: Any) -> list[str]:
    try:
        return [_text(value) for value in values.to_pylist()]
    except (ValueError, OverflowError) as error:
        raise LecoError(f"{path}: column {name!r}: {error} is neither text nor an integer") from None


def _text(value: Any) -> str:
    """Write a cell as CSV would have it; an integer column with empty cells may have floats and NaN."""
    if isinstance(value, str):
        return value.strip()
    if value is None or value != value:
        return ""
    whole = isinstance(value, int) or (isinstance(value, float) and value.is_integer())
    if isinstance(value, bool) or not whole or abs(value) >= 10**18:
        raise ValueError(reprlib.repr(value))
    return str(int(value))
