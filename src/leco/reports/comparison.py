"""Statistics over seeds: scores of a cell, and paired tests of one cell against another.

Tests account for their number, and for seeds that were added after a look at the results: decision 21.
"""

import math
import statistics
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import Literal

from leco.text import GAP, with_spread

Kind = Literal["better", "similar"]
Verdict = Literal["confirmed", "contradicted", "undecided"]
LEVEL = 0.05  # at which one conclusion or more of a part is decided wrongly, over all of its tests
MARGIN = 1.0  # points within which two cells are similar
SEEDS = 5  # of the first test, as in the paper; later ones have twice as many
_ROUNDING = 1e-9
_FIRST = 0.8  # share of the level that the first test may spend; every further one, of what is left


@dataclass(frozen=True)
class Scores:
    """The scores of a cell by seed, in percent."""

    by_seed: Mapping[int, float]

    @property
    def mean(self) -> float:
        """Mean over seeds."""
        return statistics.mean(self.by_seed.values())

    @property
    def std(self) -> float | None:
        """Sample standard deviation over seeds; None for one seed."""
        return statistics.stdev(self.by_seed.values()) if len(self.by_seed) > 1 else None

    def __len__(self) -> int:
        return len(self.by_seed)

    def __str__(self) -> str:
        return with_spread(f"{self.mean:.1f}", self.std)


@dataclass(frozen=True)
class Comparison:
    """One cell minus another, paired by seed, since a seed means the same data and the same initial weights.

    p-values and intervals hold however often the number of seeds was doubled after a look at the results: each of
    these tests has a share of the level.
    """

    gain: float  # mean of the differences
    spread: float | None  # their sample standard deviation
    count: int  # seeds that are compared
    share: float  # of the level, that this test may spend; 0 if there are too few seeds to test

    def p(self, kind: Kind = "better") -> float | None:
        """The p-value of a claim or its opposite, whichever is the likelier one; None if there are too few seeds.

        Better: a two-sided t-test. Similar: of two one-sided t-tests that the difference is within `MARGIN`, the larger
        p-value; or that of a test that it is beyond.
        """
        if self.spread is None or not self.share:
            return None
        tails = {"better": 2 * self._tail(abs(self.gain)), "similar": self._tail(abs(MARGIN - abs(self.gain)))}
        return min(1.0, tails[kind] / self.share)

    def favours(self, kind: Kind = "better") -> Verdict:
        """Return what a p-value that is small enough decides."""
        holds = self.gain > 0 if kind == "better" else abs(self.gain) < MARGIN
        return "confirmed" if holds else "contradicted"

    @property
    def interval(self) -> tuple[float, float] | None:
        """The interval of the gain at 95 % over all tests, if there are enough seeds."""
        from scipy.stats import t

        if self.spread is None or not self.share:
            return None
        half = float(t.ppf(1 - LEVEL * self.share / 2, self.count - 1)) * self.spread / math.sqrt(self.count)
        return self.gain - half, self.gain + half

    def _tail(self, distance: float) -> float:
        """Probability of a mean that is farther than `distance` from the truth, on one side."""
        from scipy.stats import t

        assert self.spread is not None
        error = self.spread / math.sqrt(self.count)
        if error < _ROUNDING:
            return 0.0 if distance > _ROUNDING else 0.5
        return float(t.sf(distance / error, self.count - 1))

    def __str__(self) -> str:
        return with_spread(f"{self.gain:+.1f}", self.spread) if self.count else GAP


def compare(better: Scores, worse: Scores, planned: int = SEEDS) -> Comparison:
    """Compare two cells over the seeds that both have, as many of the first as a test has.

    The first test has the `planned` number of seeds, the next ones twice as many each. Seeds beyond the last test wait
    for the next one; seeds that are too few to test are compared without a p-value.

    >>> found = compare(Scores(dict(enumerate([51, 53, 52, 54, 50]))), Scores(dict(enumerate([50, 51, 51, 53, 48]))))
    >>> str(found), round(found.p(), 3), found.favours()
    ('+1.4 ± 0.5', 0.006, 'confirmed')
    """
    seeds = sorted(better.by_seed.keys() & worse.by_seed.keys())
    tested, share = last_test(len(seeds), planned)
    differences = [better.by_seed[seed] - worse.by_seed[seed] for seed in seeds[:tested]]
    if not differences:
        return Comparison(0.0, None, 0, 0.0)
    spread = statistics.stdev(differences) if len(differences) > 1 else None
    return Comparison(statistics.mean(differences), spread, tested, share)


def last_test(count: int, planned: int = SEEDS) -> tuple[int, float]:
    """Return the number of seeds of the last test that `count` seeds allow, and its share of the level.

    >>> [last_test(count) for count in (4, 5, 9, 10)]
    [(4, 0.0), (5, 0.8), (5, 0.8), (10, 0.16)]
    """
    if count < planned:
        return count, 0.0
    doubled = (count // planned).bit_length() - 1
    return planned * 2**doubled, round(_FIRST * (1 - _FIRST) ** doubled, 12)


def decide(tested: Sequence[tuple[Comparison, Kind]]) -> list[tuple[float | None, Verdict]]:
    """Return the p-value and the verdict of each of several conclusions, corrected for their number (Holm).

    >>> strong, weak = Comparison(3.0, 0.5, 5, 0.8), Comparison(0.5, 0.4, 5, 0.8)
    >>> [verdict for _, verdict in decide([(weak, "better")] * 2)]
    ['undecided', 'undecided']
    >>> [verdict for _, verdict in decide([(strong, "better"), (strong, "similar")])]
    ['confirmed', 'contradicted']
    """
    corrected = holm([comparison.p(kind) for comparison, kind in tested])
    return [
        (p, comparison.favours(kind) if p is not None and p < LEVEL else "undecided")
        for p, (comparison, kind) in zip(corrected, tested, strict=True)
    ]


def holm(ps: Sequence[float | None]) -> list[float | None]:
    """Correct p-values for their number, so that the chance of one wrong rejection or more is limited (Holm 1979).

    >>> holm([0.01, None, 0.03, 0.02])
    [0.03, None, 0.04, 0.04]
    """
    known = sorted((p, place) for place, p in enumerate(ps) if p is not None)
    found: list[float | None] = [None] * len(ps)
    largest = 0.0
    for rank, (p, place) in enumerate(known):
        largest = max(largest, min(1.0, p * (len(known) - rank)))
        found[place] = largest
    return found


def average(cells: Sequence[Scores]) -> Scores:
    """The mean of several cells for each seed that all of them have."""
    seeds = set.intersection(*(set(cell.by_seed) for cell in cells))
    return Scores({seed: sum(cell.by_seed[seed] for cell in cells) / len(cells) for seed in sorted(seeds)})


def gap_closed(scores: Scores, bottom: Scores, top: Scores) -> float | None:
    """The share of the gap from `bottom` to `top` that a cell closes, over the seeds that all three have.

    >>> gap_closed(Scores({0: 60.0, 1: 90.0}), Scores({0: 50.0}), Scores({0: 70.0}))
    0.5
    """
    seeds = set.intersection(*(set(cell.by_seed) for cell in (scores, bottom, top)))
    return _closed(scores, bottom, top, seeds)


def gap_error(scores: Scores, bottom: Scores, top: Scores) -> float | None:
    """The jackknife standard error of `gap_closed`: how much it changes if one of the seeds is left out.

    >>> gap_error(Scores({0: 60.0, 1: 64.0}), Scores({0: 50.0, 1: 50.0}), Scores({0: 70.0, 1: 70.0}))
    0.1
    """
    seeds = set.intersection(*(set(cell.by_seed) for cell in (scores, bottom, top)))
    without = [_closed(scores, bottom, top, seeds - {seed}) for seed in seeds]
    known = [share for share in without if share is not None]
    if len(known) < max(2, len(seeds)):
        return None
    return round(math.sqrt(len(known) - 1) * statistics.pstdev(known), 12)


def _closed(scores: Scores, bottom: Scores, top: Scores, seeds: AbstractSet[int]) -> float | None:
    if not seeds:
        return None
    ours, low, high = (Scores({seed: cell.by_seed[seed] for seed in seeds}).mean for cell in (scores, bottom, top))
    return (ours - low) / (high - low) if high > low else None
