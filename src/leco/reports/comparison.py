"""Statistics over seeds: scores of a cell, and paired tests of one cell against another."""

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from leco.text import GAP, with_spread

Verdict = Literal["confirmed", "contradicted", "undecided"]
LEVEL = 0.05  # of every test
MARGIN = 1.0  # points within which two cells are similar


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
    """One cell minus another, paired by seed, since a seed means the same data and the same initial weights."""

    gain: float  # mean of the differences
    spread: float | None  # their sample standard deviation
    count: int  # seeds that both cells have
    p: float | None  # of a two-sided paired t-test

    @property
    def better(self) -> Verdict:
        """Whether the first cell is better than the second."""
        if self.p is None or not self.p < LEVEL:
            return "undecided"
        return "confirmed" if self.gain > 0 else "contradicted"

    @property
    def similar(self) -> Verdict:
        """Whether the cells differ by less than `MARGIN` points, by two one-sided t-tests.

        >>> [Comparison(gain, spread, 5, None).similar for gain, spread in ((0.1, 0.2), (3.0, 0.2), (0.1, 4.0))]
        ['confirmed', 'contradicted', 'undecided']
        """
        from scipy.stats import t

        if self.spread is None or self.count < 2:
            return "undecided"
        half = float(t.ppf(1 - LEVEL, self.count - 1)) * self.spread / math.sqrt(self.count)
        if abs(self.gain) + half < MARGIN:
            return "confirmed"
        return "contradicted" if abs(self.gain) - half > MARGIN else "undecided"

    def __str__(self) -> str:
        return with_spread(f"{self.gain:+.1f}", self.spread) if self.count else GAP


def compare(better: Scores, worse: Scores) -> Comparison:
    """Compare two cells over the seeds that both have.

    >>> found = compare(Scores({0: 51.0, 1: 53.0, 2: 52.0}), Scores({0: 50.0, 1: 51.0, 2: 50.5}))
    >>> str(found), found.better
    ('+1.5 ± 0.5', 'confirmed')
    """
    from scipy.stats import ttest_rel

    seeds = sorted(better.by_seed.keys() & worse.by_seed.keys())
    pairs = [(better.by_seed[seed], worse.by_seed[seed]) for seed in seeds]
    differences = [one - other for one, other in pairs]
    if not differences:
        return Comparison(0.0, None, 0, None)
    gain = statistics.mean(differences)
    if len(pairs) < 2:
        return Comparison(gain, None, len(pairs), None)
    spread = statistics.stdev(differences)
    constant = spread < 1e-9  # but for rounding, of which scipy would warn
    p = (0.0 if abs(gain) > 1e-9 else 1.0) if constant else float(ttest_rel(*zip(*pairs, strict=True)).pvalue)
    return Comparison(gain, spread, len(pairs), p)


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
    if not seeds:
        return None
    ours, low, high = (Scores({seed: cell.by_seed[seed] for seed in seeds}).mean for cell in (scores, bottom, top))
    return (ours - low) / (high - low) if high > low else None
