"""Cells of the paper's tables, and where two of them give one result in two ways."""

import csv
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import NamedTuple

from leco.paper.tables import TABLES, table


class Key(NamedTuple):
    """What was measured. TP0 has neither annotation nor strategy: there is nothing yet to relabel or start from."""

    benchmark: str
    period: int
    annotation: str | None
    strategy: str | None
    method: str
    metric: str

    def __str__(self) -> str:
        parts = (self.benchmark, f"TP{self.period}", self.annotation, self.strategy, self.method)
        return ", ".join(part for part in parts if part)


@dataclass(frozen=True)
class Cell:
    """One result, in percent. `std` is over five runs; on Mapillary there is one run, and the text quotes none."""

    table: str  # a name of TABLES
    place: str  # where it is printed, such as "Table 2" or "introduction"
    benchmark: str  # as `leco data list` has it
    size: int  # samples per period
    period: int
    annotation: str | None  # label-new, relabel-old or all-fine
    strategy: str | None  # finetune, freeze, scratch, or random (segmentation without ImageNet weights)
    method: str  # as `Method.parse` reads it
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
        """What was measured."""
        return Key(self.benchmark, self.period, self.annotation, self.strategy, self.method, self.metric)

    def agrees(self, other: "Cell") -> bool:
        """Whether both give one result, as far as both say: 83.6 agrees with 83.61 ± 0.39."""
        margin = 0.5001 * 10 ** -min(self.digits, other.digits)
        spreads_agree = self.std is None or other.std is None or abs(self.std - other.std) < margin
        return abs(self.value - other.value) < margin and spreads_agree


@dataclass(frozen=True)
class Disagreement:
    """One result that the paper gives in several ways."""

    key: Key
    figures: tuple[tuple[Cell, ...], ...]  # cells that agree stand together

    def __str__(self) -> str:
        told = []
        for figure in self.figures:
            said = list(dict.fromkeys(cell.place for cell in figure))
            notes = dict.fromkeys(cell.note for cell in figure if cell.note)
            told.append(f"{figure[0]} ({'; '.join([', '.join(said), *notes])})")
        return f"{self.key}: {' or '.join(told)}"


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
    """All cells of a table, in the order in which one reads it."""
    return list(_read(table(name).name))


@cache
def _figures() -> dict[Key, list[list[Cell]]]:
    """Everything the paper says about a result: cells that agree stand together; tables come before the text."""
    by_key: dict[Key, list[list[Cell]]] = {}
    for cell in (cell for name in TABLES for cell in _read(name)):
        figures = by_key.setdefault(cell.key, [])
        same = next((figure for figure in figures if cell.agrees(figure[0])), None)
        if same is None:
            figures.append([cell])
        else:
            same.append(cell)
    return by_key


def value_of(benchmark: str, method: str, strategy: str, annotation: str, period: int) -> list[Cell]:
    """What the paper has for one result: nothing, one cell, or several where it disagrees with itself.

    In TP0 method, strategy and annotation play no part yet.

    >>> [str(cell) for cell in value_of("inat-leco", "lpl+st-hard/cond", "finetune", "label-new", 1)]
    ['84.34 ± 0.25']
    >>> [f"{cell}, {cell.place}" for cell in value_of("cifar-leco-10k", "ce", "finetune", "label-new", 1)]
    ['65.83 ± 0.53, Table 2', '65.83 ± 0.27, Table 3']
    """
    metric = "miou" if benchmark.startswith("mapillary") else "macc"
    key = Key(benchmark, period, annotation, strategy, method, metric)
    if period == 0:
        key = Key(benchmark, 0, None, None, "ce", metric)
    return [figure[0] for figure in _figures().get(key, [])]


def disagreements(name: str | None = None) -> list[Disagreement]:
    """Every result that the paper gives in several ways; with a name, those that occur in that table."""
    found = [Disagreement(key, tuple(map(tuple, figures))) for key, figures in _figures().items() if len(figures) > 1]
    if name is None:
        return found
    keys = {cell.key for cell in cells(name)}
    return [disagreement for disagreement in found if disagreement.key in keys]


def elsewhere(cell: Cell) -> list[Cell]:
    """The other figures that the paper has for a cell."""
    return [figure[0] for figure in _figures()[cell.key] if not cell.agrees(figure[0])]
