"""A table of the paper as rows and columns, laid out as there, in our words."""

from collections.abc import Callable
from dataclasses import dataclass, replace

from leco.paper.cell import Cell, cells, elsewhere
from leco.paper.tables import table

# Where a cell goes: the labels of its row, and its column. With fewer labels than others it spans their rows, and
# stands in the first of them.
Place = tuple[tuple[str, ...], str]


@dataclass(frozen=True)
class Grid:
    """Headings and rows of text; the first `labels` columns name the row."""

    headings: list[str]
    labels: int
    rows: list[list[str]]


def grid(name: str) -> Grid:
    """A table as the paper lays it out: each row names its benchmark."""
    layout = table(name).layout
    if layout == "text":
        return _quotations(cells(name))
    return _pivot(cells(name), *_PLACES[layout])


def grids(name: str) -> dict[str, Grid]:
    """A table for the terminal: a part for each benchmark, narrow enough for 80 columns."""
    layout = table(name).layout
    parts: dict[str, list[Cell]] = {}
    for cell in cells(name):
        parts.setdefault(cell.benchmark, []).append(cell)
    if layout == "text":
        return {benchmark: _without_setup(_quotations(found)) for benchmark, found in parts.items()}
    places = _PLACES["pseudo-labels" if layout == "combinations" else layout]
    return {benchmark: _without_setup(_pivot(found, *places)) for benchmark, found in parts.items()}


def _without_setup(made: Grid) -> Grid:
    gone = len(_SETUP)
    rows = [[text.replace(" ± ", "±") for text in row[gone:]] for row in made.rows]
    return replace(made, headings=made.headings[gone:], labels=made.labels - gone, rows=rows)


def _mark(cell: Cell) -> str:
    """A cell as text, with a star if the paper has another figure for it."""
    return f"{cell}*" if elsewhere(cell) else str(cell)


def _pivot(found: list[Cell], labels: list[str], place: Callable[[Cell], Place]) -> Grid:
    """Rows and columns in the order in which they first occur; a label is not repeated below itself."""
    placed = [(*place(cell), _mark(cell)) for cell in found]
    columns = list(dict.fromkeys(column for _, column, _ in placed))
    rows = {row: dict.fromkeys(columns, "") for row, _, _ in placed if len(row) == len(labels)}
    for row, column, text in placed:
        rows[next(full for full in rows if full[: len(row)] == row)][column] = text
    above: tuple[str, ...] = ()
    lines = []
    for row, values in rows.items():
        shown = [label if row[: i + 1] != above[: i + 1] else "" for i, label in enumerate(row)]
        lines.append([*shown, *values.values()])
        above = row
    return Grid([*labels, *columns], len(labels), lines)


def _quotations(found: list[Cell]) -> Grid:
    rows = []
    for cell in found:
        result = f"TP{cell.period}, {cell.annotation}, {cell.strategy}, {cell.method}"
        rows.append([*_setup(cell), cell.place, result, _mark(cell)])
    return Grid([*_SETUP, "place", "result", "quoted"], 4, rows)


def _setup(cell: Cell) -> tuple[str, str]:
    return cell.benchmark, f"{cell.size:,}"


def _parts(method: str) -> tuple[str, str, str]:
    """Split `lpl+st-hard/cond` without importing `leco.methods`, and with it torch."""
    coarse, _, rest = method.partition("+")
    pseudo, _, refine = rest.partition("/")
    return coarse, pseudo, refine


def _column(cell: Cell) -> str:
    if cell.period == 0:
        return "TP0"
    return cell.method if cell.annotation == "label-new" else str(cell.annotation)


def _baseline(cell: Cell) -> Place:
    if cell.period == 0:
        return _setup(cell), "TP0"
    return (*_setup(cell), str(cell.strategy)), str(cell.annotation)


def _losses(cell: Cell) -> Place:
    coarse, pseudo, refine = _parts(cell.method)
    if not pseudo:
        return _setup(cell), _column(cell)
    return (*_setup(cell), pseudo), f"{coarse}+SSL" + (f"/{refine}" if refine else "")


def _hierarchy(cell: Cell) -> Place:
    row, column = _losses(cell)
    return (_setup(cell) if column == "joint+SSL" else row), column


def _baseline_periods(cell: Cell) -> Place:
    choices = (str(cell.strategy), str(cell.annotation)) if cell.period else ()
    return (*_setup(cell), *choices), f"TP{cell.period}"


def _losses_periods(cell: Cell) -> Place:
    return (*_setup(cell), _column(cell)), f"TP{cell.period}"


def _combinations(cell: Cell) -> Place:
    coarse, pseudo, refine = _parts(cell.method)
    if not pseudo:
        return _setup(cell), _column(cell)
    return (*_setup(cell), refine or "plain"), f"{coarse}+{pseudo}"


def _pseudo_labels(cell: Cell) -> Place:
    coarse, pseudo, refine = _parts(cell.method)
    if cell.annotation != "label-new":
        return _setup(cell), _column(cell)
    return (*_setup(cell), refine or "plain", pseudo or "none"), coarse


_SETUP = ["benchmark", "images/TP"]
_PLACES: dict[str, tuple[list[str], Callable[[Cell], Place]]] = {
    "baseline": ([*_SETUP, "strategy"], _baseline),
    "losses": ([*_SETUP, "SSL"], _losses),
    "hierarchy": ([*_SETUP, "SSL"], _hierarchy),
    "baseline-4tp": ([*_SETUP, "strategy", "annotation"], _baseline_periods),
    "losses-4tp": ([*_SETUP, "method"], _losses_periods),
    "combinations": ([*_SETUP, "refine"], _combinations),
    "pseudo-labels": ([*_SETUP, "refine", "SSL"], _pseudo_labels),
}
