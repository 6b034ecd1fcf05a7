"""Whether a mean over classes differs by more than the choice of samples does: a paired bootstrap.

A mean over classes counts each sample of a rare class more than one of a frequent class, so no test that counts samples
fits it. Samples (images, in segmentation) are drawn again with replacement, both models are scored on the same, and
the middle 95 % of the differences are what the choice of samples can explain.
"""

from collections import Counter
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from torch import Tensor

_RESAMPLES = 2_000
_AT_ONCE = 4_000_000  # numbers
_OUTSIDE = 0.05  # of the differences, half on each side of the interval

Kind = tuple[tuple[int, ...], tuple[int, ...]]  # places that are not zero, and the numbers there


class Pairs:
    """What two models made of the same samples. Samples that do not differ in it are kept once, and counted."""

    def __init__(self) -> None:
        self.times: Counter[Kind] = Counter()
        self.shape: tuple[int, ...] = ()

    def add(self, first: Tensor, second: Tensor) -> None:
        """Take in some samples: by class, how much there is, how much is right (and how much is called so)."""
        for both in np.stack([first.numpy(), second.numpy()], axis=1):  # (2, 2 or 3, c)
            self.shape = both.shape
            places = np.flatnonzero(both)
            if len(places):
                self.times[tuple(places.tolist()), tuple(both.flat[places].tolist())] += 1

    def interval(self, chosen: Sequence[Sequence[int]]) -> tuple[float, float]:
        """The 95 % interval of what the first model scores above the second, each over some classes."""
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
    """The mean over the classes that occur of accuracy, or of IoU if it is known what was called a class."""
    support, right, *called = np.moveaxis(sums, 1, 0)
    whole = support + called[0] - right if called else support
    occurs = support > 0
    with np.errstate(invalid="ignore", divide="ignore"):
        means: NDArray[np.float64] = np.where(occurs, right / whole, 0).sum(axis=1) / occurs.sum(axis=1)
    return means
