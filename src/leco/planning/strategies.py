"""Strategies under a budget: what annotations cost, how many labels a mixture buys, and the mAcc to expect."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from leco.errors import LecoError
from leco.planning.curves import Curves, Labels
from leco.planning.known import NEWEST, Known

MIXTURES = tuple(step / 10 for step in range(11))  # shares of the budget for relabelling
QUANTILES = (0.05, 0.95)
_LARGEST_COST = 10**12
_MOST_ANNOTATIONS = 10**8


@dataclass(frozen=True)
class Costs:
    """Cost of one annotation, in any unit; if `relabel` is None, it follows from the ontology.

    A new sample costs `collect` and `new`, an unlabelled one of the manifest only `new`.
    """

    new: float = 1.0
    relabel: float | None = None
    collect: float = 0.0

    def check(self, budget: float) -> None:
        """Refuse a budget or costs that are out of range; errors name the options of `leco plan`."""
        named = {"--budget": budget, "--cost-new": self.new, "--cost-collect": self.collect}
        named |= {} if self.relabel is None else {"--cost-relabel": self.relabel}
        for name, value in named.items():
            free = name == "--cost-collect"
            if not (value > 0 or (free and value == 0)) or value > _LARGEST_COST:  # NaN, too
                least = "at least 0" if free else "greater than 0"
                raise LecoError(f"{name}: must be {least} and at most {_LARGEST_COST:g}, not {value:g}")
        if budget / min(self.new, self.relabel or self.new) > _MOST_ANNOTATIONS:
            raise LecoError(
                f"--budget: {budget:g} buys more than 10^8 annotations; are budget and costs in the same unit?"
            )

    def of_relabelling(self, shares: Tensor) -> Tensor:
        """Return the cost of each old sample, given the share of bits that its label leaves open."""
        each = self.new * shares if self.relabel is None else torch.full_like(shares, self.relabel)
        return each.where(shares > 0, 0.0)

    def of_new(self, count: int, unlabelled: int) -> float:
        """Return the cost of labelling `count` new samples, of which `unlabelled` need not be collected."""
        return count * self.new + max(0, count - unlabelled) * self.collect

    def affordable_new(self, budget: float, unlabelled: int) -> int:
        """Return the number of new samples that a budget buys."""
        without = _floor(budget / self.new)
        if without <= unlabelled:
            return without
        return unlabelled + _floor((budget - unlabelled * self.new) / (self.new + self.collect))


def _floor(number: float) -> int:
    return math.floor(number + 1e-9)  # 0.3 / 0.1 buys three


@dataclass(frozen=True)
class Mixture:
    """Number of samples of each kind."""

    share: float  # of the budget that is for relabelling
    new: int
    relabel: int
    collect: int  # of the new ones, those to be collected first
    cost: float

    @property
    def kind(self) -> str:
        """Name of the strategy in the paper."""
        if self.new and self.relabel:
            return "mixture"
        return "label-new" if self.new else "relabel-old" if self.relabel else "nothing"


def mixtures(known: Known, budget: float, costs: Costs) -> list[Mixture]:
    """List mixtures from LabelNew to RelabelOld; the budget left when all is relabelled goes to new samples.

    RelabelOld itself (the last one) leaves it unspent, as in the paper.
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


def share_out(total: int, counts: Tensor) -> list[int]:
    """Return integers that sum to `total`, in proportion to `counts` and at most these (largest remainders).

    >>> import torch
    >>> share_out(5, torch.tensor([10, 10, 1]))
    [3, 2, 0]
    """
    if not len(counts):
        return []
    exact = counts.double() * (min(total, int(counts.sum())) / float(counts.sum()))
    whole = exact.floor()
    missing = round(float(exact.sum() - whole.sum()))
    whole[(exact - whole).argsort(descending=True, stable=True)[:missing]] += 1
    return [int(number) for number in whole.tolist()]


def labels_after(known: Known, today: Labels, mixture: Mixture) -> Labels:
    """Return the expected labels of every class: new samples have the class frequencies of the newest labels."""
    pool = known.history.relabellable
    informed = known.history.informed[pool].sum(dim=0) * (mixture.relabel / max(len(pool), 1))
    new = today.new + new_labels(known, mixture) + relabelled(known, mixture)
    return Labels(new, (today.old - informed).clamp(min=0))


def new_labels(known: Known, mixture: Mixture) -> Tensor:
    """(c,) expected labels of the new samples."""
    return known.labelled * (mixture.new / max(len(known.samples(NEWEST)), 1))


def relabelled(known: Known, mixture: Mixture) -> Tensor:
    """(c,) expected labels of the relabelled samples, drawn at random."""
    pool = known.history.relabellable
    return known.history.expected[pool].sum(dim=0) * (mixture.relabel / max(len(pool), 1))


@dataclass(frozen=True)
class Outcome:
    """Expected mAcc of a mixture, with its 90 % interval."""

    mixture: Mixture
    macc: float
    low: float
    high: float


def outcome(known: Known, curves: Curves, mixture: Mixture) -> Outcome:
    """Return the expected mAcc, and the interval of one training."""
    values = curves.macc(labels_after(known, curves.today, mixture))
    low, high = interval((values + curves.noise).clamp(0, 1))
    return Outcome(mixture, float(values.mean()), low, high)


def interval(values: Tensor) -> tuple[float, float]:
    """Return the middle 90 %."""
    low, high = torch.quantile(values.double(), torch.tensor(QUANTILES, dtype=torch.double)).tolist()
    return low, high


@dataclass(frozen=True)
class Choice:
    """The best of all mixtures, and how far it is ahead of each."""

    outcomes: tuple[Outcome, ...]
    best: Outcome
    ahead: tuple[tuple[float, float], ...]  # of each outcome: 90 % interval of the difference in expected mAcc

    @property
    def rivals(self) -> list[Outcome]:
        """Strategies that may be as good: pure ones, or relabelling everything and spending the rest on new samples.

        The latter because relabelling alone may leave a part of the budget unspent, and would lose by that.
        """
        most = max(found.mixture.relabel for found in self.outcomes)
        return [
            found
            for found, (low, _) in zip(self.outcomes, self.ahead, strict=True)
            if found is not self.best
            and low <= 0
            and (found.mixture.kind != "mixture" or found.mixture.relabel == most > self.best.mixture.relabel)
        ]

    @property
    def decided(self) -> bool:
        """Whether the best mixture is better than all rivals."""
        return not self.rivals

    def pure(self, kind: str) -> Outcome | None:
        """Return LabelNew or RelabelOld, if the budget and the data allow it."""
        return next((found for found in self.outcomes if found.mixture.kind == kind), None)


def choose(known: Known, curves: Curves, budget: float, costs: Costs) -> Choice | None:
    """Choose the mixture of highest expected mAcc, the cheapest on a tie; None if the budget buys nothing."""
    outcomes = [outcome(known, curves, mixture) for mixture in mixtures(known, budget, costs)]
    if not outcomes:
        return None
    best = max(outcomes, key=lambda found: (round(found.macc, 9), -found.mixture.cost))
    others = [found.mixture for found in outcomes]
    return Choice(tuple(outcomes), best, tuple(_differences(known, curves, best.mixture, others)))


def _differences(known: Known, curves: Curves, best: Mixture, others: Sequence[Mixture]) -> list[tuple[float, float]]:
    """Return intervals of the difference in expected mAcc; both mixtures are simulated on the same curves."""
    mine = curves.macc(labels_after(known, curves.today, best))
    return [interval(mine - curves.macc(labels_after(known, curves.today, other))) for other in others]


def break_even(known: Known, curves: Curves, count: int) -> tuple[float, float, float] | None:
    """Return how many new labels one relabelled sample is worth: median and interval; None without old samples.

    Relabelling pays where it costs less than this share of collecting and labelling a new sample. The old label was
    worth something, which makes the share less than one; new samples also show classes that old labels already
    determine, which makes it more.
    """
    count = min(count, len(known.history.relabellable))
    if not count:
        return None
    aim = curves.macc(labels_after(known, curves.today, Mixture(1, 0, count, 0, 0)))
    grid = torch.linspace(0, 1.5, 31).double()
    tried = torch.stack(
        [
            curves.macc(labels_after(known, curves.today, Mixture(0, round(ratio * count), 0, 0, 0)))
            for ratio in grid.tolist()
        ]
    )
    reached = (tried >= aim[None] - 1e-12).double()
    first = reached.argmax(dim=0).where(reached.any(dim=0), len(grid) - 1)
    before = (first - 1).clamp(min=0)
    low, high = tried.gather(0, before[None])[0], tried.gather(0, first[None])[0]
    part = ((aim - low) / (high - low).clamp(min=1e-12)).clamp(0, 1)
    ratio = grid[before] + part * (grid[first] - grid[before])
    return float(ratio.median()), *interval(ratio)
