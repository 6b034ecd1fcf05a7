"""Strategies under a budget: how many labels each buys, and what they are expected to bring."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from leco.planning.costs import Costs
from leco.planning.curves import Curves, Labels
from leco.planning.known import NEWEST, Known

MIXTURES = tuple(step / 10 for step in range(11))  # shares of the budget for relabelling
QUANTILES = (0.05, 0.95)


@dataclass(frozen=True)
class Mixture:
    """How many samples of each kind."""

    share: float  # of the budget that is for relabelling
    new: int
    relabel: int
    collect: int  # of the new ones, those that are not there yet
    cost: float

    @property
    def kind(self) -> str:
        """What the paper calls it."""
        if self.new and self.relabel:
            return "mixture"
        return "label-new" if self.new else "relabel-old" if self.relabel else "nothing"


@dataclass(frozen=True)
class Outcome:
    """What is expected of a mixture, with its 90 % interval."""

    mixture: Mixture
    macc: float
    low: float
    high: float


def mixtures(known: Known, budget: float, costs: Costs) -> list[Mixture]:
    """From LabelNew to RelabelOld; what relabelling cannot spend, since all is relabelled, is spent on new samples.

    RelabelOld itself (the last one) spends it on nothing, as in the paper.
    """
    history = known.history
    pool = history.relabellable
    each = float(costs.of_relabelling(history.open[pool]).mean()) if len(pool) else 0.0
    unlabelled = len(history.unlabelled)
    found: dict[tuple[int, int], Mixture] = {}
    for share in MIXTURES:
        relabel = min(len(pool), int(share * budget / each + 1e-9)) if each else 0
        left = budget - relabel * each
        new = 0 if share == 1 and relabel else costs.affordable_new(left, unlabelled)
        cost = relabel * each + costs.of_new(new, unlabelled)
        found.setdefault((new, relabel), Mixture(share, new, relabel, max(0, new - unlabelled), cost))
    rest = budget - len(pool) * each
    if len(pool) and rest > 0 and (new := costs.affordable_new(rest, unlabelled)):  # everything old, and new samples
        cost = len(pool) * each + costs.of_new(new, unlabelled)
        found.setdefault((new, len(pool)), Mixture(1 - rest / budget, new, len(pool), max(0, new - unlabelled), cost))
    return [mixture for mixture in found.values() if mixture.new or mixture.relabel]


def labels_after(known: Known, today: Labels, mixture: Mixture) -> Labels:
    """The labels that every class is expected to have: new ones are as frequent as the newest labels are today."""
    per_class = relabelled(known, mixture)
    pool = known.history.relabellable
    informed = known.history.informed[pool].sum(dim=0) * (mixture.relabel / max(len(pool), 1))
    return Labels(today.new + new_labels(known, mixture) + per_class, (today.old - informed).clamp(min=0))


def new_labels(known: Known, mixture: Mixture) -> Tensor:
    """(c,) what new samples are expected to show."""
    samples = len(known.samples(NEWEST)) if (known.part == NEWEST).any() else 0
    return known.labelled * (mixture.new / max(samples, 1))


def relabelled(known: Known, mixture: Mixture) -> Tensor:
    """(c,) what relabelled samples are expected to turn out to be, drawn at random."""
    pool = known.history.relabellable
    return known.history.expected[pool].sum(dim=0) * (mixture.relabel / max(len(pool), 1))


def outcome(known: Known, curves: Curves, mixture: Mixture) -> Outcome:
    """Expected mean accuracy, and where one training will be in nine of ten cases."""
    values = curves.macc(labels_after(known, curves.today, mixture))
    low, high = interval((values + curves.noise).clamp(0, 1))
    return Outcome(mixture, float(values.mean()), low, high)


def interval(values: Tensor) -> tuple[float, float]:
    """The middle 90 %."""
    low, high = torch.quantile(values.double(), torch.tensor(QUANTILES, dtype=torch.double)).tolist()
    return low, high


def differences(known: Known, curves: Curves, chosen: Mixture, others: Sequence[Mixture]) -> list[tuple[float, float]]:
    """Intervals of how much better one mixture is expected to be than others: the same curves for both."""
    mine = curves.macc(labels_after(known, curves.today, chosen))
    return [interval(mine - curves.macc(labels_after(known, curves.today, other))) for other in others]


def break_even(known: Known, curves: Curves, count: int) -> tuple[float, float, float] | None:
    """How many new labels one relabelled sample is worth: median and interval; None without old samples.

    Relabelling pays where it costs less than this share of labelling a new sample, collecting it included. A relabelled
    sample was worth something before, which makes it less than one; that what is known already is not relabelled, but
    found again among new samples, makes it more.
    """
    pool = len(known.history.relabellable)
    count = min(count, pool)
    if not count:
        return None
    aim = curves.macc(labels_after(known, curves.today, Mixture(1, 0, count, 0, 0)))
    grid = torch.linspace(0, 1.5, 31).double()
    tried = torch.stack([curves.macc(labels_after(known, curves.today, _new(round(x * count)))) for x in grid.tolist()])
    reached = (tried >= aim[None] - 1e-12).double()
    first = reached.argmax(dim=0).where(reached.any(dim=0), len(grid) - 1)
    before = (first - 1).clamp(min=0)
    low, high = tried.gather(0, before[None])[0], tried.gather(0, first[None])[0]
    part = ((aim - low) / (high - low).clamp(min=1e-12)).clamp(0, 1)
    ratio = grid[before] + part * (grid[first] - grid[before])
    return float(ratio.median()), *interval(ratio)


def _new(count: int) -> Mixture:
    return Mixture(0, count, 0, 0, 0)
