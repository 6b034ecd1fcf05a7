"""Paired tests of whether one model is better than another, class by class and on the mean."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from torch import Tensor

from leco.evaluation import Scores
from leco.ontology.version import Version

if TYPE_CHECKING:
    from leco.evaluation.evaluate import Judged

LEVEL = 0.05
_ROUNDING = 1e-12
LEGEND = (
    "gain, regression: of the mean, an interval without 0 (paired bootstrap); of a class, p below "
    f"{LEVEL:g} in McNemar's exact test on samples (in segmentation, a sign test on images), "
    "corrected for the number of classes; all else may be chance"
)
Verdict = Literal["gain", "regression", "no difference shown"]


@dataclass(frozen=True)
class Difference:
    """One class: the scores of two models, and the number of samples that only one of them had right.

    In segmentation, the number of images on which one had more of the class's pixels right; that ignores false
    positives, so the IoU must have changed in the same direction. `p` is of McNemar's exact test (a sign test),
    corrected for the number of classes (Benjamini and Hochberg); without that, one in twenty classes that did not
    change would seem to have.
    """

    name: str
    support: int
    before: float
    after: float
    lost: int  # samples that only the other model had right
    won: int  # samples that only this one had right
    p: float

    @property
    def gain(self) -> float:
        """In points of the score, as a fraction."""
        return self.after - self.before

    @property
    def verdict(self) -> Verdict:
        """The outcome of the test."""
        if not self.is_shown:
            return "no difference shown"
        return "gain" if self.won > self.lost else "regression"

    @property
    def is_shown(self) -> bool:
        """Whether the difference is significant."""
        return self.p < LEVEL and (self.won - self.lost) * self.gain > 0


@dataclass(frozen=True)
class Overall:
    """The mean over all classes: the scores of two models, and the 95 % interval of the difference."""

    support: int
    before: float
    after: float
    low: float
    high: float
    lost: int  # samples that only the other model had right
    won: int

    @property
    def gain(self) -> float:
        """In points of the score, as a fraction."""
        return self.after - self.before

    @property
    def verdict(self) -> Verdict:
        """The outcome of the test."""
        if self.low > _ROUNDING:
            return "gain"
        return "regression" if self.high < -_ROUNDING else "no difference shown"


def compare(
    judged: "Judged", version: Version, mine: Scores, other: Scores, metric: str
) -> tuple[Overall, list[Difference]]:
    """Return the difference of the mean over classes, and that of every class that occurs, the largest first."""
    from scipy import stats

    counts = judged.better[version.name].tolist()
    chances = [float(stats.binomtest(won, won + lost).pvalue) if won + lost else 1.0 for won, lost in counts[:-1]]
    place = {handle: index for index, handle in enumerate(version.handles)}
    theirs = {name: number for number, name in enumerate(other.classes)}
    absent = set(mine.absent)
    present = [number for number, name in enumerate(mine.classes) if name in theirs and name not in absent]
    tested = [chances[place[mine.classes[number]]] for number in present]
    corrected = stats.false_discovery_control(tested).tolist() if tested else []
    column = "iou" if metric == "miou" else "accuracy"
    found = []
    for number, p in zip(present, corrected, strict=True):
        name = mine.classes[number]
        before, after = float(getattr(other, column)[theirs[name]]), float(getattr(mine, column)[number])
        won, lost = counts[place[name]]
        found.append(Difference(name, int(mine.support[number]), before, after, lost, won, p))
    before, after = (float(getattr(part, metric)) for part in (other, mine))
    low, high = judged.pairs[version.name].interval([[place[name] for name in part.classes] for part in (mine, other)])
    won, lost = counts[-1]
    whole = Overall(int(mine.support.sum()), before, after, low, high, lost, won)
    return whole, sorted(found, key=lambda difference: -abs(difference.gain))


_RESAMPLES = 2_000
_AT_ONCE = 4_000_000  # numbers
_OUTSIDE = 0.05  # of the differences, half on each side of the interval

Kind = tuple[tuple[int, ...], tuple[int, ...]]  # places that are not zero, and the numbers there


class Pairs:
    """Counts of two models on the same samples; samples with the same counts are stored once."""

    def __init__(self) -> None:
        self.times: Counter[Kind] = Counter()
        self.shape: tuple[int, ...] = ()

    def add(self, first: Tensor, second: Tensor) -> None:
        """Add samples: by class, the number of true elements, of correct ones (and of predicted ones)."""
        for both in np.stack([first.numpy(), second.numpy()], axis=1):  # (2, 2 or 3, c)
            self.shape = both.shape
            places = np.flatnonzero(both)
            if len(places):
                self.times[tuple(places.tolist()), tuple(both.flat[places].tolist())] += 1

    def update(self, others: "Pairs") -> None:
        """Add the samples that others have counted."""
        self.times.update(others.times)
        self.shape = others.shape or self.shape

    def interval(self, chosen: Sequence[Sequence[int]]) -> tuple[float, float]:
        """Return the 95 % bootstrap interval of the first model's score minus the second's, each over some classes."""
        if not self.times:
            return np.nan, np.nan
        times = np.array(list(self.times.values()))
        starts = np.cumsum([0, *(len(places) for places, _ in self.times)])
        places, numbers = (np.concatenate([np.array(kind[part]) for kind in self.times]) for part in (0, 1))
        rows = sparse.csr_array(
            (numbers.astype(float), places, starts), shape=(len(times), int(np.prod(self.shape)))
        ).T.tocsr()
        generator = np.random.default_rng(0)
        step = max(1, _AT_ONCE // max(rows.shape))
        found: list[NDArray[np.float64]] = []
        for start in range(0, _RESAMPLES, step):
            size = min(step, _RESAMPLES - start)
            drawn = generator.multinomial(times.sum(), times / times.sum(), size=size)
            sums = (rows @ drawn.T.astype(float)).T.reshape(size, *self.shape)
            found.append(_mean(sums[:, 0][..., chosen[0]]) - _mean(sums[:, 1][..., chosen[1]]))
        differences = np.concatenate(found)
        differences = differences[np.isfinite(differences)]
        if not len(differences):
            return np.nan, np.nan
        low, high = np.quantile(differences, [_OUTSIDE / 2, 1 - _OUTSIDE / 2]).tolist()
        return low, high


def _mean(sums: NDArray[np.float64]) -> NDArray[np.float64]:
    """Mean over the classes that occur of accuracy, or of IoU if predicted elements are counted, too."""
    support, right, *called = np.moveaxis(sums, 1, 0)
    whole = support + called[0] - right if called else support
    occurs = support > 0
    with np.errstate(invalid="ignore", divide="ignore"):
        means: NDArray[np.float64] = np.where(occurs, right / whole, 0).sum(axis=1) / occurs.sum(axis=1)
    return means
