"""Learning rates over a run, as a share of the first (appendices C and E of the paper)."""

import math
from collections.abc import Callable

Schedule = Callable[[int, int], float]  # step k of K steps -> share of the initial learning rate


def cosine(step: int, steps: int) -> float:
    """cos(7πk / 16K): FixMatch's schedule, which ends at a fifth.

    >>> round(cosine(0, 100), 3), round(cosine(100, 100), 3)
    (1.0, 0.195)
    """
    return math.cos(7 * math.pi * step / (16 * steps))


def poly(step: int, steps: int) -> float:
    """(1 - k/K)^0.9: HRNet's schedule for segmentation.

    >>> poly(0, 100), poly(100, 100)
    (1.0, 0.0)
    """
    return float((1 - step / steps) ** 0.9)


SCHEDULES: dict[str, Schedule] = {"cosine": cosine, "poly": poly}
