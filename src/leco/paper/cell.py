"""Cells of the paper's tables, and the results for which it gives several figures."""

import csv
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import NamedTuple

from leco.paper.tables import TABLES, table


class Key(NamedTuple):
    """A cell of a table, on any benchmark: what was trained, and in which period."""

    period: int
    method: str = "ce"  # as `Method.parse` reads it
    strategy: str = "finetune"
    annotation: str = "label-new"

    def __str__(self) -> str:
        choices = [self.annotation, self.strategy] if self.period else []
        return ", ".join([f"TP{self.period}", *choices, self.method])


def split_method(method: str) -> tuple[str, str, str]:
    """Split a method into its losses on old labels, pseudo-labels and refinement, without importing torch.

    >>> split_method("lpl+st-hard/cond"), split_method("ce")
    (('lpl', 'st-hard', 'cond'), ('ce', '', ''))
    """
    coarse, _, rest = method.partition("+")
    pseudo, _, refine = rest.partition("/")
    return coarse, pseudo, refine


FIRST = Key(0, strategy="scratch")  # TP0, where there is nothing yet to relabel or to start from


@dataclass(frozen=True)
class Cell:
    """One result, in percent. `std` is over five runs; None on Mapillary (one run) and for figures in the text."""

    table: str  # a name of TABLES
    place: str  # where it is printed, such as "Table 2" or "introduction"
    benchmark: str  # as `leco data list` has it
    size: int  # samples per period
    period: int
    annotation: str | None  # label-new, relabel-old or all-fine; None in TP0
    strategy: str | None  # finetune, freeze, scratch, or random (segmentation without ImageNet weights); None in TP0
    method: str
    metric: str  # macc or miou
    value: float
    std: float | None
    digits: int  # printed after the decimal point
    note: str

    def __str__(self) -> str:
        value = f"{self.value:.{self.digits}f}"
        return value if self.std is None else f"{value} ± {self.std:.{self.digits}f}"

    @property
    def key(self) -> Key:
        """The cell without its benchmark."""
        return Key(self.period, self.method, str(self.strategy), str(self.annotation)) if self.period else FIRST

    def agrees(self, other: "Cell") -> bool:
        """Whether both give the same figure, to the digits that both have: 83.6 agrees with 83.61 ± 0.39."""
        margin = 0.5001 * 10 ** -min(self.digits, other.digits)
        spreads_agree = self.std is None or other.std is None or abs(self.std - other.std) < margin
        return abs(self.value - other.value) < margin and spreads_agree


@dataclass(frozen=True)
class Disagreement:
    """A result for which the paper gives several figures."""

    benchmark: str
    key: Key
    figures: tuple[tuple[Cell, ...], ...]  # each with all the cells that agree on it

    def __str__(self) -> str:
        variants = []
        for figure in self.figures:
            places = ", ".join(dict.fromkeys(cell.place for cell in figure))
            notes = dict.fromkeys(cell.note for cell in figure if cell.note)
            variants.append(f"{figure[0]} ({'; '.join([places, *notes])})")
        return f"{self.benchmark}, {self.key}: {' or '.join(variants)}"


@cache
def _read(name: str) -> tuple[Cell, ...]:
    text = (files("leco.paper") / "numbers" / f"{name}.csv").read_text(encoding="utf-8")
    return tuple(
        Cell(
            table=name,
            place=row.get("place") or TABLES[name].place,
            benchmark=row["benchmark"],
            size=int(row["size"]),
            period=int(row["period"]),
            annotation=row["annotation"] or None,
            strategy=row["strategy"] or None,
            method=row["method"],
            metric=row["metric"],
            value=float(row["value"]),
            std=float(row["std"]) if row["std"] else None,
            digits=len(row["value"].partition(".")[2]),
            note=row["note"],
        )
        for row in csv.DictReader(text.splitlines())
    )


def cells(name: str) -> list[Cell]:
    """All cells of a table, in reading order."""
    return list(_read(table(name).name))


@cache
def _figures() -> dict[tuple[str, Key], list[list[Cell]]]:
    """The figures for every result: lists of cells that agree, those of tables before those of the text."""
    by_result: dict[tuple[str, Key], list[list[Cell]]] = {}
    for cell in (cell for name in TABLES for cell in _read(name)):
        figures = by_result.setdefault((cell.benchmark, cell.key), [])
        same = next((figure for figure in figures if cell.agrees(figure[0])), None)
        if same is None:
            figures.append([cell])
        else:
            same.append(cell)
    return by_result


def value_of(benchmark: str, key: Key) -> list[Cell]:
    """Look up a result: no cell, one, or several if the paper gives several figures for it.

    In TP0 method, strategy and annotation make no difference.

    >>> [str(cell) for cell in value_of("inat-leco", Key(1, "lpl+st-hard/cond"))]
    ['84.34 ± 0.25']
    >>> [f"{cell}, {cell.place}" for cell in value_of("cifar-leco-10k", Key(1))]
    ['65.83 ± 0.53, Table 2', '65.83 ± 0.27, Table 3']
    """
    return [figure[0] for figure in _figures().get((benchmark, key if key.period else FIRST), [])]


def disagreements(name: str | None = None) -> list[Disagreement]:
    """All results for which the paper gives several figures; with a name, those that occur in that table."""
    found = [Disagreement(*result, tuple(map(tuple, figures))) for result, figures in _figures().items()]
    found = [disagreement for disagreement in found if len(disagreement.figures) > 1]
    if name is None:
        return found
    inside = {(cell.benchmark, cell.key) for cell in cells(name)}
    return [disagreement for disagreement in found if (disagreement.benchmark, disagreement.key) in inside]


def elsewhere(cell: Cell) -> list[Cell]:
    """The other figures that the paper gives for a cell."""
    return [figure[0] for figure in _figures()[cell.benchmark, cell.key] if not cell.agrees(figure[0])]
