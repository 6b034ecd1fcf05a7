"""Endless batches, found from the step alone: the same on any number of workers or ranks, and after a restart."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from leco.data.periods import Annotated, Part
from leco.data.samples import InMemory, Samples
from leco.errors import LecoError
from leco.ontology.evidence import Evidence
from leco.ontology.version import NO_LABEL


@dataclass(frozen=True, eq=False)
class Order:
    """Numbers 0 to count - 1 in endless order: every epoch is a new permutation, no number is left out."""

    count: int
    seed: int

    def stretch(self, start: int, length: int) -> Tensor:
        """The numbers at positions `start` to `start + length` of the endless order."""
        first, last = start // self.count, (start + length - 1) // self.count
        epochs = torch.cat([_permutation(self.count, self.seed, epoch) for epoch in range(first, last + 1)])
        offset = start - first * self.count
        return epochs[offset : offset + length]


@lru_cache(maxsize=8)
def _permutation(count: int, seed: int, epoch: int) -> Tensor:
    # Seeds of neighbouring epochs must not meet those of neighbouring runs.
    generator = torch.Generator().manual_seed(seed * 1_000_003 + epoch)
    return torch.randperm(count, generator=generator)


@dataclass(frozen=True, eq=False)
class Batch:
    """Some samples, as stored; views are made of them on the model's device."""

    ids: Tensor  # (n,) their index in the pool, which also seeds their views
    inputs: Tensor  # (n, c, h, w) uint8, or (n, d) float
    rows: Tensor  # (n, ...) evidence row of each label
    labels: dict[str, Tensor]  # (n, ...) per version: the label known there, or implied by a newer one; -1 elsewhere

    def __len__(self) -> int:
        return len(self.ids)


@dataclass(frozen=True, eq=False)
class Step:
    """What one training step draws: K samples with newest labels and, if there is history, M = K of that."""

    new: Batch
    history: Batch | None


class Steps(Dataset[Step]):
    """The batches of a training run, by step number."""

    def __init__(
        self, samples: Samples, annotated: Annotated, evidence: Evidence, batch_size: int, seed: int, steps: int
    ) -> None:
        parts = {"new": [annotated.newest], "history": list(annotated.history)}
        for name, group in parts.items():
            if name == "new" and not len(annotated.newest.indices):
                raise LecoError("there are no samples with labels of the newest version")
            parts[name] = [part for part in group if len(part.indices)]
        self.samples, self.evidence = samples, evidence
        self.batch_size, self.seed, self.steps = batch_size, seed, steps
        self.new, self.history = (_Pool.of(parts[name]) for name in ("new", "history"))

    def __len__(self) -> int:
        return self.steps

    def __getitem__(self, step: int) -> Step:
        history = self._draw(self.history, step, self.seed + 1) if len(self.history.indices) else None
        return Step(self._draw(self.new, step, self.seed), history)

    def _draw(self, pool: "_Pool", step: int, seed: int) -> Batch:
        chosen = Order(len(pool.indices), seed).stretch(step * self.batch_size, self.batch_size)
        return read_batch(self.samples, self.evidence, pool.indices[chosen], pool.versions, pool.version[chosen])


@dataclass(frozen=True, eq=False)
class _Pool:
    indices: Tensor
    version: Tensor  # position in `versions`
    versions: tuple[str, ...]

    @classmethod
    def of(cls, parts: list[Part]) -> "_Pool":
        indices = torch.cat([part.indices for part in parts]) if parts else torch.empty(0, dtype=torch.int64)
        version = [torch.full_like(part.indices, number) for number, part in enumerate(parts)]
        return cls(indices, torch.cat(version) if parts else indices, tuple(part.version for part in parts))


def read_batch(samples: Samples, evidence: Evidence, ids: Tensor, versions: tuple[str, ...], version: Tensor) -> Batch:
    """Read samples, each with its label of `versions[version]` and what follows from it for older versions."""
    ontology = evidence.ontology
    rows: Tensor | None = None
    labels: dict[str, Tensor] = {}
    for number, name in enumerate(versions):
        mine = version == number
        if not mine.any():
            continue
        known = samples.labels[name].read(ids[mine])
        if rows is None:
            rows = torch.zeros(len(ids), *known.shape[1:], dtype=torch.int64)
            labels = {v.name: torch.full_like(rows, NO_LABEL) for v in ontology.versions}
        rows[mine] = evidence.ids(known, name)
        for older in ontology.versions[: ontology.position(name) + 1]:
            labels[older.name][mine] = ontology.translate(known, name, older.name)
    assert rows is not None
    return Batch(ids, samples.inputs.read(ids), rows, labels)


def loader(steps: Steps, start: int = 0, workers: int = 0) -> Iterator[Step]:
    """Yield the steps from `start` on; with workers, files are read ahead in other processes, in the same order."""
    in_memory = isinstance(steps.samples.inputs, InMemory)
    if in_memory or workers == 0:
        return (steps[step] for step in range(start, len(steps)))
    remaining = torch.utils.data.Subset(steps, range(start, len(steps)))
    return iter(DataLoader(remaining, batch_size=None, num_workers=workers))
