"""The trainings that fill a table of the paper."""

from typing import NamedTuple

from leco.errors import LecoError
from leco.paper.cell import cells
from leco.paper.tables import table

RUNS = 5  # of each training, where the paper gives a standard deviation


class Training(NamedTuple):
    """An experiment over all periods of a benchmark, and how often the paper ran it."""

    benchmark: str
    method: str
    strategy: str
    annotation: str
    runs: int


def trainings(name: str) -> list[Training]:
    """Return the distinct trainings behind the cells of a table; TP0 is part of each.

    >>> trainings("8")[0]
    Training(benchmark='mapillary-leco-2.5k', method='ce', strategy='random', annotation='label-new', runs=1)
    """
    if table(name).number is None:
        raise LecoError(f"{name}: quotes results of the tables; choose one of these (`leco paper` lists them)")
    found: dict[Training, None] = {}
    for cell in cells(name):
        if cell.period:
            key = cell.key
            runs = 1 if cell.std is None else RUNS
            found[Training(cell.benchmark, key.method, key.strategy, key.annotation, runs)] = None
    return list(found)
