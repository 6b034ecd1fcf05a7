"""The files of a plan, as typed records. Nothing here needs torch."""

from pathlib import Path
from typing import Annotated, Final

from pydantic import Field, field_validator

from leco.records import FirstFormat, StoredRecord, read

PRIORS: Final = (0.03, 0.1, 0.3, 1.0)  # that heads are fitted with

_Count = Annotated[int, Field(ge=0, lt=2**63)]


class Expected(StoredRecord):
    """An expected mAcc, and its 90 % interval, as fractions."""

    macc: float
    low: float
    high: float


class Now(Expected):
    """The samples that there are now, and the mAcc that they give."""

    newest: _Count
    validation: _Count
    history: _Count
    relabellable: _Count
    known_already: _Count
    unlabelled: _Count


class Option(Expected):
    """What could be annotated."""

    kind: str  # label-new, relabel-old or mixture
    new: _Count
    relabel: _Count
    collect: _Count  # of the new ones
    cost: float


class Alternative(Option):
    """An option beside the chosen one."""

    ahead: tuple[float, float]  # 90 % interval of how far the chosen one is ahead


class Prices(StoredRecord):
    """What an annotation costs."""

    new: float
    relabel: float | None  # on average; None if nothing can be relabelled
    collect: float
    relabel_from_ontology: bool


class BreakEven(StoredRecord):
    """Share of the cost of a new label below which relabelling pays, with its 90 % interval."""

    ratio: float
    low: float
    high: float


class OldClass(StoredRecord):
    """Number of samples to relabel of an old class."""

    version: str
    name: str = Field(alias="class")
    count: _Count
    of: _Count
    cost: float  # of each


class NewClass(StoredRecord):
    """Labels of a newest class, now and to come, and its accuracy, now and expected, as fractions."""

    name: str = Field(alias="class")
    labelled: _Count
    history: float
    new: float
    relabel: float
    accuracy: float | None
    expected: float | None
    low: float | None
    high: float | None


class CurvePoint(Expected):
    """The mAcc to expect of a strategy at a cost."""

    strategy: str
    cost: float


class Plan(StoredRecord):
    """What to annotate next under a budget, as docs/how-to/planning.md describes it."""

    format: FirstFormat = 1
    source: str
    data: str
    task: str
    versions: tuple[str, ...] = Field(min_length=1)
    seed: _Count
    features: str
    draws: _Count
    budget: float
    costs: Prices
    now: Now
    chosen: Option
    decided: bool
    rivals: tuple[str, ...]
    break_even: BreakEven | None
    alternatives: tuple[Alternative, ...]
    relabel: tuple[OldClass, ...]
    classes: tuple[NewClass, ...]
    curve: tuple[CurvePoint, ...]
    assumes: tuple[str, ...]


class Prior(StoredRecord):
    """The prior of the heads that is best for some data."""

    format: FirstFormat = 1
    prior: float

    @field_validator("prior")
    @classmethod
    def _is_one_of_them(cls, prior: float) -> float:
        if prior not in PRIORS:
            raise ValueError(f"should be one of {', '.join(map(str, PRIORS))}")
        return prior


class Fitted(StoredRecord):
    """Which held-out rows a head predicted correctly, as digits."""

    format: FirstFormat = 1
    new: _Count
    old: _Count
    right: Annotated[str, Field(pattern="^[01]*$")]


def read_plan(path: Path) -> Plan:
    """Read a plan that `leco plan` wrote."""
    return read(Plan, path, "make a new one with `leco plan`")
