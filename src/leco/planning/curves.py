"""Learning curves of every class: accuracy as a function of its number of labels, new and old, with uncertainty.

Class c has E effective labels: its newest ones, n, and old ones, m, which are worth less. They may count in two ways:

    added      E = n + worth m
    multiplied E = n^(1 - worth) (n + m)^worth      the coarse distinction is learnt from all, the fine from the new

With x = log (E / E of today), accuracy is a + b f(x): a today, with the slope b. f may bend in two ways:

    power law  f = (1 - exp(-power x)) / power           x itself for power 0
    S          f = sigmoid(power (x - centre)), so shifted and scaled that f(0) = 0 and f'(0) = 1

A power law that does not bend within the measured range never will; an S does, having a floor and a ceiling. The
shape that all classes share (kind, worth, power, centre) is sampled according to its fit to the mean, by least squares
that weigh the points closest to today most; a and b belong to each class, shrunk towards the mean where its own data
are few (empirical Bayes). All of it is repeated on bootstrap samples of the held-out rows.
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
S_CENTRES = (-1.0, -0.5, 0.0)  # where the S is steepest: at 37, 61 or 100 % of today's labels
REPEATS = 400
_LEAST_ERROR = 0.005  # of a mean accuracy, however well a curve fits
_FITTED = 5  # kind, worth, bend, level and slope
_FEWEST = 0.5  # labels of a class that has none


@dataclass(frozen=True, eq=False)
class Labels:
    """Number of labels of each class."""

    new: Tensor  # (c,)
    old: Tensor  # (c,) as shares of a whole label: the share of its bits that an old label gives

    def log_effective(self, added: Tensor, worth: Tensor) -> Tensor:
        """(s, c) log of the number of effective labels, counted in each of s ways (s, 1)."""
        new = self.new.clamp(min=_FEWEST)
        multiplied = (1 - worth) * new.log() + worth * (new + self.old).log()
        return (new + worth * self.old).log().where(added, multiplied)


@dataclass(frozen=True)
class Shape:
    """Shape of a curve, shared by all classes."""

    kind: str
    worth: float
    power: float
    centre: float | None = None  # of an S; None for a power law


def progress(shapes: Sequence[Shape], labels: Labels, today: Labels) -> Tensor:
    """(s, c) f(x) of each class for each shape: 0 today."""
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
    """Curves of all classes, once for every bootstrap sample."""

    today: Labels
    shapes: tuple[Shape, ...]  # of each repeat
    level: Tensor  # (repeats, c) accuracy today
    slope: Tensor  # (repeats, c)
    observed: Tensor  # (c,) which classes mAcc is over: those with held-out rows
    spread: float  # standard deviation of mAcc between trainings

    def accuracy(self, labels: Labels) -> Tensor:
        """(repeats, c) expected accuracy of every class given these labels."""
        return (self.level + self.slope * progress(self.shapes, labels, self.today)).clamp(0, 1)

    def macc(self, labels: Labels) -> Tensor:
        """(repeats,) expected mean accuracy."""
        return self.accuracy(labels)[:, self.observed].mean(dim=1)

    @cached_property
    def noise(self) -> Tensor:
        """(repeats,) deviation of one training from the curve; the same draws for every strategy."""
        return self.spread * torch.randn(len(self.shapes), generator=seeded(20), dtype=torch.double)


def fit_curves(known: Known, measured: Measured, seed: int) -> Curves:
    """Fit all curves, once for every bootstrap sample."""
    today = labels_today(known)
    certain = today.new - known.labelled  # of the history, whose old label leaves one class
    labels = [
        Labels(known.labelled * float(share) + certain * point.old, today.old * point.old)
        for share, point in zip(measured.shares, measured.points, strict=True)
    ]
    classes = known.classes[measured.rows]
    counts = torch.bincount(classes, minlength=known.num_classes).double()
    observed = counts > 0
    weights = _bootstrap(known.sample[measured.rows], classes, seed)
    hits = torch.stack([_per_class(weights, right, classes, known.num_classes) for right in measured.right.T])
    totals = _per_class(weights, torch.ones(len(classes)).double(), classes, known.num_classes)
    accuracy = (hits / totals.clamp(min=1e-9)).where(totals > 0, torch.nan)  # (p, repeats, c)
    jitter = torch.randn(accuracy.shape[:2], generator=seeded(seed + 1), dtype=torch.double)
    jitter[:, 0] = 0  # the first repeat is the data as they are
    means = _widened(accuracy[:, :, observed].nanmean(dim=2), counts[observed])
    means = means + jitter * measured.spread / math.sqrt(measured.draws)
    along = torch.stack([progress(SHAPES, have, today) for have in labels])  # (p, s, c)
    whole = along[:, :, observed].mean(dim=2).T
    near = torch.tensor([(point.new * (1 + point.old)) ** 2 for point in measured.points]).double()
    best, level, slope = _fit_means(means, whole, near, seed)
    shapes = tuple(SHAPES[index] for index in best.tolist())
    levels, slopes = _fit_classes(accuracy, along[:, best], level, slope, counts)
    return Curves(today, shapes, levels, slopes, observed, measured.spread)


def labels_today(known: Known) -> Labels:
    """Count the labels of every class; history whose old label leaves one class counts as new."""
    history = known.history
    certain = history.open == 0
    return Labels(known.labelled + history.expected[certain].sum(dim=0), history.informed[~certain].sum(dim=0))


def _bootstrap(samples: Tensor, classes: Tensor, seed: int) -> Tensor:
    """(repeats, rows) number of times each row is drawn: samples are resampled, within classes if each has one row.

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
    place = (torch.rand(REPEATS, len(classes), generator=generator) * counts[of_class]).long()
    place = torch.minimum(place, counts[of_class] - 1)  # in case of rounding up
    drawn = order[starts[of_class] + place]
    weights = torch.zeros(REPEATS, len(classes)).scatter_add_(1, drawn, torch.ones(drawn.shape))
    weights[0] = 1
    return weights.double()


def _per_class(weights: Tensor, values: Tensor, classes: Tensor, num_classes: int) -> Tensor:
    """(repeats, c) weighted sums."""
    return torch.zeros(len(weights), num_classes).double().index_add(1, classes, weights * values)


def _widened(means: Tensor, counts: Tensor) -> Tensor:
    """Correct the deviations of bootstrap means, whose variance is (n - 1) / n of what it should be."""
    factor = (counts / (counts - 1).clamp(min=0.5)).mean().sqrt() if len(counts) > 1 else torch.ones(())
    return means[:, :1] + (means - means[:, :1]) * factor


def _fit_means(means: Tensor, along_sp: Tensor, near: Tensor, seed: int) -> tuple[Tensor, Tensor, Tensor]:
    """Return a shape for each repeat, and the mean level and slope that fit best; slopes are at least 0."""
    x, y = along_sp[:, :, None], means[None]  # s shapes, p points, repeats
    weight = (near / near.sum())[None, :, None]
    centred = x - (weight * x).sum(dim=1, keepdim=True)
    slope = (weight * centred * y).sum(dim=1) / (weight * centred.square()).sum(dim=1).clamp(min=1e-12)
    slope = slope.clamp(min=0)
    level = (weight * y).sum(dim=1) - slope * (weight * x).sum(dim=1)
    errors = (weight * (y - level[:, None] - slope[:, None] * x).square()).sum(dim=1)  # (s, repeats)
    best = _sample_shapes(len(near) * errors, max(1, len(near) - _FITTED), seed)
    return best, level.gather(0, best[None])[0], slope.gather(0, best[None])[0]


def _sample_shapes(errors: Tensor, freedom: int, seed: int) -> Tensor:
    """Sample one shape for each repeat by its likelihood; the best one alone would be overconfident.

    Where a curve has not begun to flatten in the measured range, power 0 and the lower half of an S fit alike.
    """
    variance = (errors.amin(dim=0) / freedom).clamp(min=_LEAST_ERROR**2)
    uniform = torch.rand(errors.shape, generator=seeded(seed + 2), dtype=torch.double).clamp(min=1e-12)
    return (-errors / (2 * variance) - (-uniform.log()).log()).argmax(dim=0)


def _fit_classes(
    accuracy: Tensor, along: Tensor, level: Tensor, slope: Tensor, counts: Tensor
) -> tuple[Tensor, Tensor]:
    """(repeats, c) level and slope of each class, shrunk towards the mean.

    Deviations are shrunk according to how much classes really differ: the variance between them, minus the variance
    p (1 - p) / n of the samples. A class without held-out rows gets the mean.
    """
    expected = level[None, :, None] + slope[None, :, None] * along
    deviation = (accuracy - expected).nan_to_num(0.0)
    offset = deviation.mean(dim=0)
    chance = (accuracy * (1 - accuracy)).nan_to_num(0.0).mean(dim=(0, 2), keepdim=False)
    noise = chance[:, None] / counts.clamp(min=1)  # (repeats, c)
    seen = (counts > 0).double()
    between = ((offset.square() - noise) * seen).sum(dim=1, keepdim=True) / seen.sum().clamp(min=1)
    shrinkage = between.clamp(min=0) / (between.clamp(min=0) + noise).clamp(min=1e-12) * seen
    centred = along - along.mean(dim=0, keepdim=True)
    power = centred.square().sum(dim=0).clamp(min=1e-9)
    tilt = (centred * deviation).sum(dim=0) / power
    tilt_noise = noise / power  # points share samples, so this is conservative
    between_tilts = ((tilt.square() - tilt_noise) * seen).sum(dim=1, keepdim=True) / seen.sum().clamp(min=1)
    tilt_shrinkage = between_tilts.clamp(min=0) / (between_tilts.clamp(min=0) + tilt_noise).clamp(min=1e-12) * seen
    own_slope = tilt_shrinkage * tilt
    own_level = shrinkage * offset - own_slope * along.mean(dim=0)
    # Shrinking must not move the mean, which is the best known quantity.
    own_level, own_slope = (part - _mean(part, seen) * seen for part in (own_level, own_slope))
    return level[:, None] + own_level, (slope[:, None] + own_slope).clamp(min=0)


def _mean(values: Tensor, seen: Tensor) -> Tensor:
    return (values * seen).sum(dim=1, keepdim=True) / seen.sum().clamp(min=1)
