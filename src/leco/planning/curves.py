"""Learning curves of every class: accuracy against how many labels it has, new and old, with what is uncertain.

Class c has E labels: its newest ones, n, and old ones, m, which are worth less. Two ways in which they may count:

    added      E = n + worth m
    multiplied E = n^(1 - worth) (n + m)^worth      the coarse distinction is learnt from all, the fine from the new

With x = log (E / E of today), accuracy is a + b f(x), a today, and b its slope there. Two ways in which f may bend:

    power law  f = (1 - exp(-power x)) / power           x itself for power 0
    S          f = sigmoid(power (x - centre)), so shifted and scaled that f(0) = 0 and f'(0) = 1

A power law that does not bend where it was measured never will; an S does, having a floor and a ceiling. What all
classes share (kind, worth, power, centre) is drawn by how well it fits the mean, by least squares in which what is
nearest to today counts most; a and b are a class's own, drawn towards the mean as far as its own data are too few
(empirical Bayes). All of it is repeated on bootstrap samples of the rows that were looked at.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import product

import torch
from torch import Tensor

from leco.data.periods import seeded
from leco.planning.known import Known
from leco.planning.measure import Measured

KINDS = ("added", "multiplied")
WORTHS = (0.0, 0.025, 0.05, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.65, 0.8, 1.0)
POWERS = (0.0, 0.15, 0.3, 0.5, 0.75, 1.0, 1.5)
S_POWERS = (1.0, 1.5, 2.0)
S_CENTRES = (-1.0, -0.5, 0.0)  # where it is steepest: at 37, 61 or 100 % of today's labels
REPEATS = 400
_LEAST_ERROR = 0.005  # of a mean accuracy, however well a curve fits
_FITTED = 5  # kind, worth, bend, level and slope
_FEWEST = 0.5  # labels of a class that has none


@dataclass(frozen=True, eq=False)
class Labels:
    """How many labels each class has."""

    new: Tensor  # (c,)
    old: Tensor  # (c,) as shares of a whole label: what the old label says of it

    def log_effective(self, added: Tensor, worth: Tensor) -> Tensor:
        """(s, c) log of the number of labels that these are worth, in each of s ways to count (s, 1)."""
        new = self.new.clamp(min=_FEWEST)
        multiplied = (1 - worth) * new.log() + worth * (new + self.old).log()
        return (new + worth * self.old).log().where(added, multiplied)


@dataclass(frozen=True)
class Shape:
    """What all classes share."""

    kind: str
    worth: float
    power: float
    centre: float | None = None  # of an S; None for a power law

    def progress(self, labels: Labels, today: Labels) -> Tensor:
        """(c,) how far along its curve each class is: 0 today."""
        return progress([self], labels, today).squeeze(0)


def progress(shapes: Sequence[Shape], labels: Labels, today: Labels) -> Tensor:
    """(s, c) how far along its curve each class is, by each shape."""
    numbers = [(shape.kind == KINDS[0], shape.worth, shape.power, shape.centre or 0.0) for shape in shapes]
    added, worth, power, centre = (column[:, None] for column in torch.tensor(numbers, dtype=torch.double).T)
    x = labels.log_effective(added > 0, worth) - today.log_effective(added > 0, worth)
    law = (-torch.expm1(-power * x) / power.clamp(min=1e-12)).where(power > 0, x)
    start = torch.sigmoid(-power * centre)
    bent = (torch.sigmoid(power * (x - centre)) - start) / (power * start * (1 - start)).clamp(min=1e-12)
    found: Tensor = bent.where(torch.tensor([shape.centre is not None for shape in shapes])[:, None], law)
    return found


SHAPES = tuple(
    Shape(kind, worth, power, centre)
    for kind, worth, (power, centre) in product(
        KINDS, WORTHS, [*product(POWERS, [None]), *product(S_POWERS, S_CENTRES)]
    )
    if worth > 0 or kind == KINDS[0]  # both are the same without worth
)


@dataclass(frozen=True, eq=False)
class Curves:
    """Curves of all classes, many times: once for every bootstrap sample."""

    today: Labels
    shapes: tuple[Shape, ...]  # of each repeat
    level: Tensor  # (repeats, c) accuracy today
    slope: Tensor  # (repeats, c)
    observed: Tensor  # (c,) which classes were looked at at all: mAcc is over these
    spread: float  # standard deviation of mAcc between trainings

    def accuracy(self, labels: Labels) -> Tensor:
        """(repeats, c) expected accuracy of every class with these labels."""
        return (self.level + self.slope * progress(self.shapes, labels, self.today)).clamp(0, 1)

    def macc(self, labels: Labels) -> Tensor:
        """(repeats,) expected mean accuracy."""
        return self.accuracy(labels)[:, self.observed].mean(dim=1)

    @cached_property
    def noise(self) -> Tensor:
        """(repeats,) how far one training is off the curve: the same draws for every question."""
        return self.spread * torch.randn(len(self.shapes), generator=seeded(20), dtype=torch.double)


def fit_curves(known: Known, measured: Measured, seed: int) -> Curves:
    """Fit all curves, once for every bootstrap sample."""
    today = labels_today(known)
    sure = today.new - known.labelled  # of the history, whose old label leaves one class
    told = [
        Labels(known.labelled * float(share) + sure * level.old, today.old * level.old)
        for share, level in zip(measured.shares, measured.levels, strict=True)
    ]
    classes = known.classes[measured.rows]
    counts = torch.bincount(classes, minlength=known.num_classes).double()
    observed = counts > 0
    weights = _bootstrap(known.sample[measured.rows], classes, seed)
    hits = torch.stack(
        [_per_class(weights, measured.right[:, level], classes, known.num_classes) for level in range(len(told))]
    )
    totals = _per_class(weights, torch.ones(len(classes)).double(), classes, known.num_classes)
    accuracy = (hits / totals.clamp(min=1e-9)).where(totals > 0, torch.nan)  # (l, repeats, c)
    jitter = torch.randn(accuracy.shape[:2], generator=seeded(seed + 1), dtype=torch.double)
    jitter[:, 0] = 0  # the first repeat is the data as they are
    means = _widened(accuracy[:, :, observed].nanmean(dim=2), counts[observed])
    means = means + jitter * measured.spread / math.sqrt(measured.draws)
    along = torch.stack([progress(SHAPES, labels, today) for labels in told])  # (l, s, c)
    whole = along[:, :, observed].mean(dim=2).T
    near = torch.tensor([(level.new * (1 + level.old)) ** 2 for level in measured.levels]).double()
    best, level, slope = _fit_means(means, whole, near, seed)
    shapes = tuple(SHAPES[index] for index in best.tolist())
    levels, slopes = _fit_classes(accuracy, along[:, best], level, slope, counts)
    return Curves(today, shapes, levels, slopes, observed, measured.spread)


def labels_today(known: Known) -> Labels:
    """What every class has; history whose old label leaves one class is as good as new."""
    history = known.history
    sure = history.open == 0
    return Labels(known.labelled + history.expected[sure].sum(dim=0), history.informed[~sure].sum(dim=0))


def _bootstrap(samples: Tensor, classes: Tensor, seed: int) -> Tensor:
    """(repeats, rows) how often each row counts: samples are drawn anew, within their class if they have one row.

    The first repeat is the data as they are.
    """
    unique, position = samples.unique(return_inverse=True)  # type: ignore[no-untyped-call]
    generator = seeded(seed)
    if len(unique) < len(samples):  # images of many pixels
        drawn = torch.randint(len(unique), (REPEATS, len(unique)), generator=generator)
        weights = torch.zeros(REPEATS, len(unique)).scatter_add_(1, drawn, torch.ones(drawn.shape))
        weights[0] = 1
        return weights[:, position].double()
    counts = torch.bincount(classes)
    starts = counts.cumsum(0) - counts
    order = classes.argsort(stable=True)
    of_class = classes[order]
    place = (
        (torch.rand(REPEATS, len(classes), generator=generator) * counts[of_class]).long().clamp(max=counts.max() - 1)
    )
    place = torch.minimum(place, counts[of_class] - 1)
    drawn = order[starts[of_class] + place]
    weights = torch.zeros(REPEATS, len(classes)).scatter_add_(1, drawn, torch.ones(drawn.shape))
    weights[0] = 1
    return weights.double()


def _per_class(weights: Tensor, values: Tensor, classes: Tensor, num_classes: int) -> Tensor:
    """(repeats, c) weighted sums."""
    return torch.zeros(len(weights), num_classes).double().index_add(1, classes, weights * values)


def _widened(means: Tensor, counts: Tensor) -> Tensor:
    """Bootstrap means with the deviations that they should have: of n samples a bootstrap shows (n - 1) / n."""
    factor = (counts / (counts - 1).clamp(min=0.5)).mean().sqrt() if len(counts) > 1 else torch.ones(())
    return means[:, :1] + (means - means[:, :1]) * factor


def _fit_means(means: Tensor, along_sl: Tensor, near: Tensor, seed: int) -> tuple[Tensor, Tensor, Tensor]:
    """A shape for each repeat, and the mean level and slope that fit best; curves never fall."""
    x, y = along_sl[:, :, None], means[None]  # s shapes, l levels, repeats
    weight = (near / near.sum())[None, :, None]
    centred = x - (weight * x).sum(dim=1, keepdim=True)
    slope = (weight * centred * y).sum(dim=1) / (weight * centred.square()).sum(dim=1).clamp(min=1e-12)
    slope = slope.clamp(min=0)
    level = (weight * y).sum(dim=1) - slope * (weight * x).sum(dim=1)
    errors = (weight * (y - level[:, None] - slope[:, None] * x).square()).sum(dim=1)  # (s, repeats)
    best = _drawn(len(near) * errors, max(1, len(near) - _FITTED), seed)
    return best, level.gather(0, best[None])[0], slope.gather(0, best[None])[0]


def _drawn(errors: Tensor, freedom: int, seed: int) -> Tensor:
    """One shape for each repeat, drawn by how well it fits: the best one alone would seem surer than it is.

    Where a curve has not begun to flatten where it was measured, power 0 and the lower half of an S fit alike.
    """
    variance = (errors.amin(dim=0) / freedom).clamp(min=_LEAST_ERROR**2)
    luck = torch.rand(errors.shape, generator=seeded(seed + 2), dtype=torch.double).clamp(min=1e-12)
    return (-errors / (2 * variance) - (-luck.log()).log()).argmax(dim=0)


def _fit_classes(
    accuracy: Tensor, along: Tensor, level: Tensor, slope: Tensor, counts: Tensor
) -> tuple[Tensor, Tensor]:
    """(repeats, c) level and slope of each class, drawn towards the mean.

    What a class deviates by is believed as far as classes really differ: the variance between them, less the variance
    that p (1 - p) / n explains. A class that was never looked at is taken to be as the mean.
    """
    expected = level[None, :, None] + slope[None, :, None] * along
    deviation = (accuracy - expected).nan_to_num(0.0)
    offset = deviation.mean(dim=0)
    chance = (accuracy * (1 - accuracy)).nan_to_num(0.0).mean(dim=(0, 2), keepdim=False)
    noise = chance[:, None] / counts.clamp(min=1)  # (repeats, c)
    seen = (counts > 0).double()
    between = ((offset.square() - noise) * seen).sum(dim=1, keepdim=True) / seen.sum().clamp(min=1)
    believed = between.clamp(min=0) / (between.clamp(min=0) + noise).clamp(min=1e-12) * seen
    centred = along - along.mean(dim=0, keepdim=True)
    power = centred.square().sum(dim=0).clamp(min=1e-9)
    tilt = (centred * deviation).sum(dim=0) / power
    tilt_noise = noise / power  # levels share samples, so this is on the safe side
    between_tilts = ((tilt.square() - tilt_noise) * seen).sum(dim=1, keepdim=True) / seen.sum().clamp(min=1)
    tilted = between_tilts.clamp(min=0) / (between_tilts.clamp(min=0) + tilt_noise).clamp(min=1e-12) * seen
    own_slope = tilted * tilt
    own_level = believed * offset - own_slope * along.mean(dim=0)
    # Shrinking must not move the mean, which is known best.
    own_level, own_slope = (part - _mean(part, seen) * seen for part in (own_level, own_slope))
    return level[:, None] + own_level, (slope[:, None] + own_slope).clamp(min=0)


def _mean(values: Tensor, seen: Tensor) -> Tensor:
    return (values * seen).sum(dim=1, keepdim=True) / seen.sum().clamp(min=1)
