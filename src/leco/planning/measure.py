"""The learning curve, measured: every level of every draw is fitted once, and kept."""

import hashlib
import json
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Protocol

import torch
import torch.nn.functional as F
from torch import Tensor

from leco.data.periods import deal, seeded
from leco.errors import LecoError
from leco.io import read_json, write_text
from leco.methods.losses import evidence_nll
from leco.ontology.evidence import UNLABELLED, Evidence
from leco.planning.known import HISTORY, NEWEST, VALIDATION, Known

FOLDS = 5
NEW_LEVELS = (1.0, 0.707, 0.5, 0.354)  # shares of the newest labels
OLD_LEVELS = (1.0, 0.5, 0.0)  # shares of the history


@dataclass(frozen=True)
class Level:
    """Shares of the newest labels and of the history."""

    new: float
    old: float

    def __str__(self) -> str:
        return f"{self.new:g}-{self.old:g}"


@dataclass(frozen=True, eq=False)
class Draw:
    """One fold held out, and an order in which the rest, and the history, are taken: any start is a subsample."""

    number: int
    held_out: Tensor  # samples to look at: a fold of the newest, and validation
    newest: Tensor
    history: Tensor

    def taken(self, level: Level) -> tuple[Tensor, Tensor]:
        """The newest samples, and the history, of a level."""
        return tuple(  # type: ignore[return-value]
            samples[: round(share * len(samples))]
            for samples, share in ((self.newest, level.new), (self.history, level.old))
        )


def draw(known: Known, number: int, seed: int) -> Draw:
    """Hold out a fold, and put the rest in an order whose starts have classes in proportion."""
    newest, history = known.samples(NEWEST), known.samples(HISTORY)
    generator = seeded(1_000_003 * seed + number // FOLDS)
    folds = deal(_first_labels(known, newest), [len(newest)], generator)[0].tensor_split(FOLDS)
    looked_at = newest[folds[number % FOLDS]]
    rest = newest[~torch.isin(newest, looked_at)]
    later = seeded(1_000_003 * seed + 500_009 + number)
    ordered = [part[deal(_first_labels(known, part), [len(part)], later)[0]] for part in (rest, history)]
    return Draw(number, torch.cat([looked_at, known.samples(VALIDATION)]), ordered[0], ordered[1])


def levels(known: Known) -> Sequence[Level]:
    """All combinations; without history, only the newest labels vary."""
    old = OLD_LEVELS if len(known.samples(HISTORY)) else (0.0,)
    return [Level(new, share) for new in NEW_LEVELS for share in old]


def _first_labels(known: Known, samples: Tensor) -> Tensor:
    """A label of each sample, to deal them in proportion; in segmentation, that of its first pixel."""
    rows = known.rows(samples)
    label = torch.zeros(int(known.sample.max()) + 1, dtype=torch.int64)
    label[known.sample[rows.flip(0)]] = known.labels[rows.flip(0)]
    return label[samples]


_STEPS = 40
_BLOCK = 16_384  # rows whose logits are held at once


def fit_head(features: Tensor, labels: Tensor, weights: Tensor, evidence: Evidence, prior: float) -> Tensor:
    """Weights (d + 1, c) of the likeliest head: evidence losses and a Gaussian prior, by L-BFGS from zero.

    A row counts `weights` times. From the same numbers, and on the same number of threads, the same head is found.
    """
    head = torch.zeros(features.shape[1] + 1, evidence.num_classes, requires_grad=True)
    optimiser = torch.optim.LBFGS(
        [head], max_iter=_STEPS, history_size=10, tolerance_change=1e-6, line_search_fn="strong_wolfe"
    )
    total = float(weights.sum())

    def closure() -> Tensor:
        optimiser.zero_grad()
        penalty = prior / total * head[:-1].square().sum()
        penalty.backward()  # type: ignore[no-untyped-call]
        value = penalty.detach()
        for block in torch.arange(len(features)).split(_BLOCK):  # type: ignore[no-untyped-call]
            nll = evidence_nll(logits(head, features[block]), evidence.gather(labels[block]))
            loss = (nll * weights[block]).sum() / total
            loss.backward()  # type: ignore[no-untyped-call]
            value = value + loss.detach()
        return value

    optimiser.step(closure)  # type: ignore[no-untyped-call]
    return head.detach()


def logits(head: Tensor, features: Tensor) -> Tensor:
    """(n, c); the last row of a head is its bias."""
    return F.linear(features, head[:-1].T, head[-1])


def history_weight(new: int, old: int) -> float:
    """What a row of history counts: less where they are many, as in the paper's batches (K = M).

    Together they weigh no more than the new ones. It is fixed for all subsamples of the same data, or history would
    count for less where new labels are few, just when it is needed most.

    >>> history_weight(100, 400)
    0.25
    """
    return min(1.0, new / max(old, 1))


PRIORS = (0.03, 0.1, 0.3, 1.0)
_LARGEST_FILE = 50_000_000
_LEAST_SPREAD = 0.003  # of mAcc between trainings: few draws may show none


class Learner(Protocol):
    """Anything that learns from samples and says the newest class of rows it has not seen."""

    @property
    def name(self) -> str:
        """What it depends on besides the data: learners of one name find the same."""
        ...

    def predict(self, newest: Tensor, history: Tensor, rows: Tensor) -> Tensor:
        """Learn from these samples; the likeliest class of each of these rows."""
        ...


@dataclass(frozen=True, eq=False)
class Head:
    """A linear head on frozen features."""

    known: Known
    prior: float
    history_weight: float

    @classmethod
    def on(cls, known: Known, prior: float) -> "Head":
        """The head for what is known; what has no label weighs nothing."""
        new, old = (int(((known.part == part) & (known.labels != UNLABELLED)).sum()) for part in (NEWEST, HISTORY))
        return cls(known, prior, history_weight(new, old))

    @property
    def name(self) -> str:
        """What it depends on besides the data."""
        return f"head, prior {self.prior:g}, history {self.history_weight:g}"

    def fit(self, newest: Tensor, history: Tensor) -> Tensor:
        """The head for these samples, with the labels that are known of them."""
        known = self.known
        rows = known.rows(torch.cat([newest, history]))
        rows = rows[known.labels[rows] != UNLABELLED]
        weights = torch.ones(len(rows)).masked_fill(known.part[rows] == HISTORY, self.history_weight)
        return fit_head(known.features[rows], known.labels[rows], weights, known.evidence, self.prior)

    @cached_property
    def of_all(self) -> Tensor:
        """The head for everything that is known."""
        return self.fit(self.known.samples(NEWEST), self.known.samples(HISTORY))

    def predict(self, newest: Tensor, history: Tensor, rows: Tensor) -> Tensor:
        """Learn from these samples; the likeliest class of each of these rows."""
        return logits(self.fit(newest, history), self.known.features[rows]).argmax(dim=1)


def choose_prior(known: Known, seed: int) -> float:
    """The strength of the prior that is best on the first fold and validation."""
    first = draw(known, 0, seed)
    rows = known.rows(first.held_out)

    def score(prior: float) -> float:
        right = Head.on(known, prior).predict(first.newest, first.history, rows) == known.classes[rows]
        return _mean_over_classes(right, known.classes[rows], known.num_classes)

    return max(PRIORS, key=score)


def _mean_over_classes(right: Tensor, classes: Tensor, num_classes: int) -> float:
    hits = torch.bincount(classes, right.double(), minlength=num_classes)
    counts = torch.bincount(classes, minlength=num_classes)
    return float((hits / counts)[counts > 0].mean())


@dataclass(frozen=True, eq=False)
class Measured:
    """How often each row that was held out was right, at every level."""

    levels: tuple[Level, ...]
    shares: Tensor  # (l,) newest labels of a level, as a share of all there are: folds are missing from it
    rows: Tensor  # (r,) rows that were looked at
    right: Tensor  # (r, l) mean over the draws that held it out
    spread: float  # standard deviation of mAcc between trainings on other samples
    draws: int


def measure(
    known: Known, learner: Learner, draws: int, seed: int, folder: Path, tick: Callable[[], object] = lambda: None
) -> Measured:
    """Fit every level of every draw; what is in `folder` already is not fitted again."""
    wanted = levels(known)
    rows = known.rows(torch.cat([known.samples(NEWEST), known.samples(VALIDATION)]))
    place = torch.full((len(known.sample),), -1)
    place[rows] = torch.arange(len(rows))
    right, seen = (torch.zeros(len(rows), len(wanted)).double() for _ in range(2))
    trials: list[list[Tensor]] = [[] for _ in wanted]
    always = known.part[rows] == VALIDATION
    for number in range(draws):
        drawn = draw(known, number, seed)
        held_out = known.rows(drawn.held_out)
        for index, level in enumerate(wanted):
            hits = _fitted(known, learner, drawn, level, held_out, folder)
            right[place[held_out], index] += hits
            seen[place[held_out], index] += 1
            trials[index].append(_scattered(hits, place[held_out], len(rows))[always])
            tick()
    shares = torch.tensor([level.new * len(draw(known, 0, seed).newest) for level in wanted]).double()
    looked_at = (seen > 0).all(dim=1)
    return Measured(
        tuple(wanted),
        shares / len(known.samples(NEWEST)),
        rows[looked_at],
        (right / seen.clamp(min=1))[looked_at],
        _spread([torch.stack(hits) for hits in trials], known.classes[rows][always]),
        draws,
    )


def _fitted(known: Known, learner: Learner, drawn: Draw, level: Level, held_out: Tensor, folder: Path) -> Tensor:
    newest, history = drawn.taken(level)
    key = hashlib.sha256(json.dumps([learner.name, newest.tolist(), history.tolist(), held_out.tolist()]).encode())
    path = folder / f"{drawn.number}-{level}-{key.hexdigest()[:12]}.json"
    if path.is_file():
        found = read_kept(path, "right")
        if not isinstance(found, str) or len(found) != len(held_out):
            raise LecoError(f"{path}: is damaged; delete it, and it is measured anew")
        return torch.tensor([float(digit == "1") for digit in found]).double()
    right = learner.predict(newest, history, held_out) == known.classes[held_out]
    content = {"new": len(newest), "old": len(history), "right": "".join(map(str, right.int().tolist()))}
    write_text(path, json.dumps(content) + "\n")
    return right.double()


def read_kept(path: Path, key: str) -> object:
    """What a file of this program holds under a key; None if there is no such thing."""
    try:
        content = read_json(path, _LARGEST_FILE)
    except LecoError:
        return None
    return content.get(key) if isinstance(content, dict) else None


def _scattered(hits: Tensor, places: Tensor, size: int) -> Tensor:
    return torch.zeros(size).double().index_put((places,), hits)


def _spread(trials: Sequence[Tensor], classes: Tensor) -> float:
    """Standard deviation of mAcc between trainings, on validation: what is beyond the flips of single samples.

    A flip has the variance p (1 - p), and a set of n samples averages it away by 1 / n; what trainings have in common
    stays, however many samples are looked at.
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
