"""Points of the learning curve: the accuracy of heads fitted to nested subsamples, each fitted once and kept."""

import hashlib
import json
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from leco.data.periods import seeded, stratified_sets
from leco.errors import LecoError
from leco.planning.heads import Head
from leco.planning.known import HISTORY, NEWEST, VALIDATION, Known
from leco.planning.record import PRIORS, Fitted, Prior
from leco.records import read

FOLDS = 5
DRAWS = 10  # every newest sample is held out twice
LEVELS = 4  # sizes of subsample of the newest labels: 100, 71, 50 and 35 %
_HISTORY_SHARES = (1.0, 0.5, 0.0)
_REMEDY = "delete it, and it is measured again"
_LEAST_SPREAD = 0.003  # of mAcc between trainings: few draws may show none


@dataclass(frozen=True)
class Point:
    """A point of the learning curve: shares of the newest labels and of the history."""

    new: float
    old: float

    def __str__(self) -> str:
        return f"{self.new:g}-{self.old:g}"


def grid(known: Known, levels: int = LEVELS) -> list[Point]:
    """Combine the shares of both; each level of the newest labels is smaller than the previous by the root of two."""
    old = _HISTORY_SHARES if len(known.samples(HISTORY)) else (0.0,)
    return [Point(round(2 ** (-level / 2), 3), share) for level in range(levels) for share in old]


@dataclass(frozen=True, eq=False)
class Draw:
    """A fold to hold out, and an order of the other samples and of the history: any start is a subsample."""

    number: int
    held_out: Tensor  # samples of a fold of the newest, and validation
    newest: Tensor
    history: Tensor

    def subsample(self, point: Point) -> tuple[Tensor, Tensor]:
        """Return the newest samples, and the history, of a point."""
        return (
            self.newest[: round(point.new * len(self.newest))],
            self.history[: round(point.old * len(self.history))],
        )


def draw(known: Known, number: int, seed: int) -> Draw:
    """Hold out a fold, and order the rest so that every start has the classes in proportion."""
    newest, history = known.samples(NEWEST), known.samples(HISTORY)
    generator = seeded(1_000_003 * seed + number // FOLDS)
    folds = stratified_sets(_first_labels(known, newest), [len(newest)], generator)[0].tensor_split(FOLDS)
    fold = newest[folds[number % FOLDS]]
    rest = newest[~torch.isin(newest, fold)]
    later = seeded(1_000_003 * seed + 500_009 + number)
    ordered = [part[stratified_sets(_first_labels(known, part), [len(part)], later)[0]] for part in (rest, history)]
    return Draw(number, torch.cat([fold, known.samples(VALIDATION)]), ordered[0], ordered[1])


def _first_labels(known: Known, samples: Tensor) -> Tensor:
    """Return a label of each sample to stratify by; in segmentation, that of its first pixel."""
    rows = known.rows(samples)
    label = torch.zeros(int(known.sample.max()) + 1, dtype=torch.int64)
    label[known.sample[rows.flip(0)]] = known.labels[rows.flip(0)]
    return label[samples]


def choose_prior(known: Known, seed: int, path: Path) -> float:
    """Return the prior that is best on the first fold and validation; it is kept in a file."""
    if path.is_file():
        return read(Prior, path, _REMEDY).prior
    first = draw(known, 0, seed)
    rows = known.rows(first.held_out)

    def macc(prior: float) -> float:
        right = Head.on(known, prior).predict(first.newest, first.history, rows) == known.classes[rows]
        hits = torch.bincount(known.classes[rows], right.double(), minlength=known.num_classes)
        counts = torch.bincount(known.classes[rows], minlength=known.num_classes)
        return float((hits / counts)[counts > 0].mean())

    prior = max(PRIORS, key=macc)
    Prior(prior=prior).write(path)
    return prior


@dataclass(frozen=True, eq=False)
class Measured:
    """How often each row was predicted correctly when it was held out, at every point."""

    points: tuple[Point, ...]
    shares: Tensor  # (p,) newest labels of a point, as a share of all of them: a fold is held out
    rows: Tensor  # (r,) rows that were held out
    right: Tensor  # (r, p) mean over the draws that held it out
    spread: float  # standard deviation of mAcc between trainings on other samples
    draws: int


def measure(
    head: Head,
    folder: Path,
    seed: int,
    *,
    draws: int = DRAWS,
    levels: int = LEVELS,
    tick: Callable[[int, int], object] = lambda done, total: None,
) -> Measured:
    """Fit every point of every draw, except those already in `folder`; `tick` is called after each with done, total."""
    known = head.known
    points = grid(known, levels)
    rows = known.rows(torch.cat([known.samples(NEWEST), known.samples(VALIDATION)]))
    place = torch.full((len(known.sample),), -1)
    place[rows] = torch.arange(len(rows))
    right, seen = (torch.zeros(len(rows), len(points)).double() for _ in range(2))
    trials: list[list[Tensor]] = [[] for _ in points]
    validation = known.part[rows] == VALIDATION
    for number in range(draws):
        drawn = draw(known, number, seed)
        held_out = known.rows(drawn.held_out)
        for index, point in enumerate(points):
            hits = torch.zeros(len(rows)).double()
            hits[place[held_out]] = _fitted(head, drawn, point, folder)
            right[:, index] += hits
            seen[place[held_out], index] += 1
            trials[index].append(hits[validation])
            tick(number * len(points) + index + 1, draws * len(points))
    shares = torch.tensor([point.new * len(draw(known, 0, seed).newest) for point in points]).double()
    observed = (seen > 0).all(dim=1)
    return Measured(
        tuple(points),
        shares / len(known.samples(NEWEST)),
        rows[observed],
        (right / seen.clamp(min=1))[observed],
        _spread([torch.stack(hits) for hits in trials], known.classes[rows][validation]),
        draws,
    )


def _fitted(head: Head, drawn: Draw, point: Point, folder: Path) -> Tensor:
    """Return which held-out rows are predicted correctly, from the file that keeps it, or fitted now."""
    newest, history = drawn.subsample(point)
    held_out = head.known.rows(drawn.held_out)
    key = hashlib.sha256(json.dumps([head.name, newest.tolist(), history.tolist(), held_out.tolist()]).encode())
    path = folder / f"{drawn.number}-{point}-{key.hexdigest()[:12]}.json"
    if path.is_file():
        found = read(Fitted, path, _REMEDY).right
        if len(found) != len(held_out):
            raise LecoError(f"{path}: is damaged: it has {len(found)} rows of {len(held_out)}; {_REMEDY}")
        return torch.tensor([float(digit == "1") for digit in found]).double()
    right = head.predict(newest, history, held_out) == head.known.classes[held_out]
    digits = "".join(map(str, right.int().tolist()))
    Fitted(new=len(newest), old=len(history), right=digits).write(path)
    return right.double()


def _spread(trials: Sequence[Tensor], classes: Tensor) -> float:
    """Return the standard deviation of mAcc between trainings on validation, beyond the flips of single samples.

    A flip has the variance p (1 - p), which n samples average out as 1 / n; what trainings have in common remains,
    however many samples there are.
    """
    counts = torch.bincount(classes) if len(classes) else torch.zeros(0)
    if trials[0].shape[0] < 3 or not len(counts):
        return _LEAST_SPREAD
    weight = 1 / counts[classes].double() / int((counts > 0).sum())
    found = []
    for hits in trials:  # (draws, samples)
        between = (hits * weight).sum(dim=1).var()
        flips = (hits.var(dim=0) * weight.square()).sum()
        found.append(float(between - flips))
    return max(_LEAST_SPREAD, math.sqrt(max(0.0, sum(found) / len(found))))
