"""Scores over seeds, and whether one cell of a table really beats another."""

import statistics
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

Verdict = Literal["confirmed", "contradicted", "undecided"]
_LEVEL = 0.05  # of the paired test


@dataclass(frozen=True)
class Scores:
    """What one cell reached with each seed, in percent."""

    by_seed: Mapping[int, float]

    @property
    def mean(self) -> float:
        """Over the seeds."""
        return statistics.mean(self.by_seed.values())

    @property
    def std(self) -> float | None:
        """Sample standard deviation over the seeds; None for one seed."""
        return statistics.stdev(self.by_seed.values()) if len(self.by_seed) > 1 else None

    def __len__(self) -> int:
        return len(self.by_seed)

    def __str__(self) -> str:
        return f"{self.mean:.1f}" + ("" if self.std is None else f" ± {self.std:.1f}")


@dataclass(frozen=True)
class Comparison:
    """One cell against another, seed by seed: the same data and the same start make it a paired test."""

    gain: float  # mean of the differences
    spread: float | None  # their sample standard deviation
    count: int  # seeds that both have
    p: float | None  # two-sided, paired t-test

    @property
    def verdict(self) -> Verdict:
        """What the seeds say about "the first is better"."""
        if self.p is None or not self.p < _LEVEL:
            return "undecided"
        return "confirmed" if self.gain > 0 else "contradicted"

    def __str__(self) -> str:
        spread = "" if self.spread is None else f" ± {self.spread:.1f}"
        return f"{self.gain:+.1f}{spread}"


def compare(better: Scores, worse: Scores) -> Comparison:
    """Compare two cells over the seeds that both have.

    >>> found = compare(Scores({0: 51.0, 1: 53.0, 2: 52.0}), Scores({0: 50.0, 1: 51.0, 2: 50.5}))
    >>> str(found), found.verdict
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
    alike = spread < 1e-9  # all differences are one, but for rounding, of which scipy warns
    p = (0.0 if abs(gain) > 1e-9 else 1.0) if alike else float(ttest_rel(*zip(*pairs, strict=True)).pvalue)
    return Comparison(gain, spread, len(pairs), p)


def gap_closed(scores: Scores, bottom: Scores, top: Scores) -> float | None:
    """The share of the way from `bottom` (new labels only) to `top` (all labelled anew) that a cell goes."""
    gap = top.mean - bottom.mean
    return (scores.mean - bottom.mean) / gap if gap > 0 else None
