"""Time periods: their samples, and annotation strategies (sections 3 and 4 of the paper)."""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

import torch
from torch import Tensor

from leco.data import RELABELLED
from leco.errors import LecoError, nearest
from leco.io import read_json, write_text

Annotation = Literal[
    "label-new", "relabel-25", "relabel-50", "relabel-75", "relabel-old", "all-fine", "with-unlabelled"
]
WITHOUT_HISTORY = ("relabel-old", "all-fine")
Validation = Literal["on top", "within", "none"]
_LARGEST_FILE = 500_000_000


@dataclass(frozen=True, eq=False)
class Period:
    """One time period TP^t: the version its annotators use, and its samples (indices into the pool)."""

    version: str
    train: Tensor
    validation: Tensor


@dataclass(frozen=True, eq=False)
class Split:
    """Disjoint periods of one seed."""

    name: str
    seed: int
    periods: tuple[Period, ...]

    @property
    def fingerprint(self) -> str:
        """Digest of the split, as sixteen hexadecimal digits."""
        indices = [(p.version, p.train.tolist(), p.validation.tolist()) for p in self.periods]
        content = json.dumps([self.name, self.seed, indices])
        return hashlib.sha256(content.encode()).hexdigest()[:16]

    def save(self, path: Path) -> None:
        """Write an index file."""
        periods = [
            {"version": p.version, "train": p.train.tolist(), "validation": p.validation.tolist()} for p in self.periods
        ]
        content = {"name": self.name, "seed": self.seed, "fingerprint": self.fingerprint, "periods": periods}
        write_text(path, json.dumps(content) + "\n")

    @classmethod
    def load(cls, path: Path) -> "Split":
        """Read an index file, and check that it is complete."""
        content = read_json(path, _LARGEST_FILE)
        try:
            periods = tuple(
                Period(str(p["version"]), _indices(p["train"]), _indices(p["validation"])) for p in content["periods"]
            )
            split = cls(str(content["name"]), int(content["seed"]), periods)
            stored = content["fingerprint"]
        except (KeyError, TypeError, ValueError, OverflowError, IndexError, AttributeError, RuntimeError) as error:
            raise LecoError(f"{path}: is not an index file of periods: {error!r}") from None
        if split.fingerprint != stored:
            raise LecoError(f"{path}: the fingerprint is {stored}, but that of the indices is {split.fingerprint}")
        every = torch.cat([torch.cat([period.train, period.validation]) for period in periods])
        if len(every.unique()) < len(every) or (every < 0).any():  # type: ignore[no-untyped-call]
            raise LecoError(f"{path}: duplicate or negative sample index")
        return split


def _indices(values: Any) -> Tensor:
    return torch.tensor([int(value) for value in values], dtype=torch.int64)


def make_split(
    name: str,
    versions: Sequence[str],
    size: int,
    strata: Tensor,
    seed: int,
    *,
    validation: Validation = "on top",
) -> Split:
    """Split samples into periods, and each period into training and validation, stratified by `strata`.

    Validation is a fifth of a period: on top of `size` (10,000 + 2,500 for CIFAR-10k), within it if the pool is too
    small, or empty (Mapillary). `strata` are the newest labels (or any grouping), so that rare classes are in every
    period.
    """
    held_out = {"on top": size // 4, "within": size // 5, "none": 0}[validation]
    train = size - held_out if validation == "within" else size
    needed = len(versions) * (train + held_out)
    if size < 1:
        raise LecoError(f"{name}: a period must have at least 1 sample, not {size:,}")
    if needed > len(strata):
        most = len(strata) // len(versions) * (4 if validation == "on top" else 5) // 5
        wanted = f"{len(versions)} periods of {train:,} samples and {held_out:,} for validation"
        raise LecoError(
            f"{name}: {wanted} need {needed:,}, but there are {len(strata):,}; use a size of at most {most:,}"
        )
    parts = [part.sort().values for part in stratified_sets(strata, [train, held_out] * len(versions), seeded(seed))]
    periods = [Period(version, parts[2 * t], parts[2 * t + 1]) for t, version in enumerate(versions)]
    return Split(name, seed, tuple(periods))


def seeded(seed: int) -> torch.Generator:
    """Return a generator with a seed, which must be one that torch accepts."""
    if not 0 <= seed < 2**63:
        raise LecoError(f"a seed must be an integer from 0 to 2^63 - 1, not {seed}")
    return torch.Generator().manual_seed(seed)


def stratified_sets(strata: Tensor, sizes: Sequence[int], generator: torch.Generator) -> list[Tensor]:
    """Draw disjoint sets of the given sizes, each with nearly the same share of every stratum.

    The k-th of the n samples of a stratum, in random order, is placed at (k + u) / n on a line, with one random u per
    stratum; consecutive segments of the line contain every stratum in proportion, and strata too rare for all of them
    go to each with equal probability.
    """
    shuffled = torch.randperm(len(strata), generator=generator)
    by_stratum = shuffled[strata[shuffled].argsort(stable=True)]
    counts = torch.bincount(strata[by_stratum])
    starts = counts.cumsum(0) - counts
    stratum = strata[by_stratum]
    rank = torch.arange(len(strata)) - starts[stratum]
    offset = torch.rand(len(counts), generator=generator, dtype=torch.double)[stratum]
    place = (rank.double() + offset) / counts[stratum]
    # Ties are broken at random.
    tie = torch.rand(len(strata), generator=generator, dtype=torch.double) * 1e-9
    line = by_stratum[(place + tie).argsort()]
    return list(line[: sum(sizes)].split(list(sizes)))  # type: ignore[no-untyped-call]


@dataclass(frozen=True, eq=False)
class Part:
    """Samples, and the version of their labels."""

    version: str
    indices: Tensor


@dataclass(frozen=True, eq=False)
class Annotated:
    """Samples that a period may train on: those labelled in its version, and history with older labels."""

    newest: Part
    history: tuple[Part, ...]
    validation: Part


def annotate(split: Split, period: int, strategy: Annotation, others: Tensor | None = None) -> Annotated:
    """Apply an annotation strategy of section 4, given a budget of one period's samples.

    `label-new` labels the period's own samples and keeps the history with its old labels; `relabel-old` relabels the
    samples of TP0 and uses no others; `all-fine` relabels the samples of every period so far. Beyond the paper,
    `relabel-25`, `relabel-50` and `relabel-75` spend that share of the budget, in percent, on relabelling samples of
    TP0, and the rest on new ones; `with-unlabelled` is `label-new` with `others`, samples of no period, as unlabelled
    history.
    """
    if strategy not in get_args(Annotation):
        raise LecoError(f"{strategy!r} is not an annotation strategy{nearest(strategy, get_args(Annotation))}")
    if not 0 <= period < len(split.periods):
        raise LecoError(f"{split.name} has no period {period}; valid: 0 to {len(split.periods) - 1}")
    earlier, now = split.periods[:period], split.periods[period]
    share = RELABELLED[strategy]
    if 0 < share < 1 and earlier:
        relabelled, rest = _divide(earlier[0], share)
        labelled: tuple[Period, ...] = (relabelled, _divide(now, share)[1])
        earlier = (rest, *earlier[1:])
    elif strategy == "relabel-old":
        labelled = split.periods[:1]
    else:
        labelled = (*earlier, now) if strategy == "all-fine" else (now,)
    history = () if strategy in WITHOUT_HISTORY else tuple(Part(p.version, p.train) for p in earlier)
    if strategy == "with-unlabelled" and period:
        if others is None or not len(others):
            raise LecoError(f"{split.name}: with-unlabelled: all samples belong to periods; use another strategy")
        history = (*history, Part(now.version, others))  # without labels, which is what the newest version means here
    return Annotated(
        Part(now.version, torch.cat([p.train for p in labelled])),
        history,
        Part(now.version, torch.cat([p.validation for p in labelled])),
    )


def _divide(period: Period, share: float) -> tuple[Period, Period]:
    """Divide a period into a share of its samples, in quarters, and the rest, evenly over the order of the pool."""

    def divide(indices: Tensor) -> tuple[Tensor, Tensor]:
        taken = torch.arange(len(indices)) % 4 < 4 * share
        return indices[taken], indices[~taken]

    train, validation = divide(period.train), divide(period.validation)
    return Period(period.version, train[0], validation[0]), Period(period.version, train[1], validation[1])
