"""The paper's tables as rows and columns: as they are printed, and narrow, for terminals and reports."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from leco.paper.cell import Cell, Key, cells, split_method
from leco.paper.tables import table

T = TypeVar("T")
# The labels of a cell's row, and its column. A cell with fewer labels than the table has spans several rows.
Place = tuple[tuple[str, ...], str]


@dataclass(frozen=True)
class Row(Generic[T]):
    """A row: its labels, and an entry for each column, None where the table has no such cell."""

    labels: tuple[str, ...]
    entries: tuple[T | None, ...]


@dataclass(frozen=True)
class Grid(Generic[T]):
    """A table; an entry that spans several rows is in the first of them."""

    labels: tuple[str, ...]  # headings of the columns that name a row
    columns: tuple[str, ...]
    rows: tuple[Row[T], ...]


@dataclass(frozen=True)
class Form:
    """How a table is laid out."""

    labels: tuple[str, ...]
    place: Callable[[Key], Place]
    order: tuple[str, ...] = ()  # of the rows' first labels; by default as they first occur


def printed(name: str) -> Grid[Cell]:
    """A table as it is printed; each row names its benchmark."""
    found, data = cells(name), ("benchmark", "images/TP")
    if table(name).layout == "text":
        return _quotations(found, data, lambda cell: (cell.benchmark, f"{cell.size:,}"))
    form = _PRINTED[table(name).layout]
    placed = []
    for cell in found:
        row, column = form.place(cell.key)
        placed.append(((cell.benchmark, f"{cell.size:,}", *row), column, cell))
    return _pivot(placed, (*data, *form.labels))


def narrow(name: str) -> dict[str, Grid[Cell]]:
    """A table by benchmark, narrow enough for a terminal of 80 columns."""
    parts: dict[str, list[Cell]] = {}
    for cell in cells(name):
        parts.setdefault(cell.benchmark, []).append(cell)
    if table(name).layout == "text":
        return {benchmark: _quotations(found, (), lambda _: ()) for benchmark, found in parts.items()}
    return {benchmark: arrange(((cell.key, cell) for cell in found), name) for benchmark, found in parts.items()}


def arrange(entries: Iterable[tuple[Key, T]], name: str) -> Grid[T]:
    """Lay out entries as the narrow form of a table does."""
    layout = table(name).layout
    form = _NARROW.get(layout) or _PRINTED[layout]
    return _pivot([(*form.place(key), entry) for key, entry in entries], form.labels, form.order)


def _pivot(
    placed: Sequence[tuple[tuple[str, ...], str, T]], labels: tuple[str, ...], order: tuple[str, ...] = ()
) -> Grid[T]:
    columns = tuple(dict.fromkeys(column for _, column, _ in placed))
    rows: dict[tuple[str, ...], dict[str, T]] = {row: {} for row, _, _ in placed if len(row) == len(labels)}
    if order:
        rank = {label: number for number, label in enumerate(order)}
        rows = {row: {} for row in sorted(rows, key=lambda row: rank.get(row[0], len(order)))}
    for row, column, entry in placed:
        rows[next(full for full in rows if full[: len(row)] == row)][column] = entry
    return Grid(labels, columns, tuple(Row(row, tuple(map(found.get, columns))) for row, found in rows.items()))


def _quotations(found: Iterable[Cell], labels: tuple[str, ...], label: Callable[[Cell], tuple[str, ...]]) -> Grid[Cell]:
    rows = tuple(Row((*label(cell), cell.place, str(cell.key)), (cell,)) for cell in found)
    return Grid((*labels, "place", "result"), ("quoted",), rows)


def _column(key: Key) -> str:
    if key.period == 0:
        return "TP0"
    return key.method if key.annotation == "label-new" else key.annotation


def _baseline(key: Key) -> Place:
    return ((key.strategy,), key.annotation) if key.period else ((), "TP0")


def _baseline_periods(key: Key) -> Place:
    return ((key.strategy, key.annotation) if key.period else ()), f"TP{key.period}"


def _losses_periods(key: Key) -> Place:
    return (_column(key),), f"TP{key.period}"


def _losses(key: Key) -> Place:
    coarse, pseudo, refine = split_method(key.method)
    if not pseudo:
        return (), _column(key)
    return (pseudo,), f"{coarse}+SSL" + (f"/{refine}" if refine else "")


def _losses_by_row(key: Key) -> Place:
    row, column = _losses(key)
    return row or ("none",), column


def _hierarchy(key: Key) -> Place:
    row, column = _losses(key)
    return (() if column == "joint+SSL" else row), column


def _combinations(key: Key) -> Place:
    coarse, pseudo, refine = split_method(key.method)
    return ((refine or "plain",), f"{coarse}+{pseudo}") if pseudo else ((), _column(key))


def _combinations_by_row(key: Key) -> Place:
    coarse, pseudo, refine = split_method(key.method)
    if key.annotation != "label-new" or key.period == 0:
        return (), _column(key)
    return (refine or "plain", pseudo or "none"), coarse


_PRINTED = {
    "baseline": Form(("strategy",), _baseline),
    "losses": Form(("SSL",), _losses),
    "hierarchy": Form(("SSL",), _hierarchy),
    "baseline-4tp": Form(("strategy", "annotation"), _baseline_periods),
    "losses-4tp": Form(("method",), _losses_periods),
    "combinations": Form(("refine",), _combinations),
}
# Where the printed form is too wide, or has cells that span rows of other methods.
_SSL = Form(("SSL",), _losses_by_row, ("none", "st-hard", "st-soft", "pl", "fixmatch"))
_NARROW = {"losses": _SSL, "hierarchy": _SSL, "combinations": Form(("refine", "SSL"), _combinations_by_row)}
