"""Endless batches, determined by the step: independent of the number of workers and ranks, and of restarts."""

import copy
import hashlib
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Protocol

import torch
from torch import Tensor
from torch.utils.data import Dataset

from leco.data.periods import Annotated, Part
from leco.data.samples import Box, Samples
from leco.errors import LecoError
from leco.ontology.evidence import UNLABELLED, Evidence
from leco.ontology.version import NO_LABEL

_SMALL = 256  # samples; a step may take many epochs of a few, which must not drive out a long permutation


@dataclass(frozen=True)
class Order:
    """Endless sequence of the numbers 0 to count - 1: every epoch is a new permutation."""

    count: int
    seed: int
    name: str  # distinguishes the orders of one run

    def stretch(self, start: int, length: int) -> Tensor:
        """Numbers at positions `start` to `start + length` of the sequence."""
        stop = start + length
        permute = _kept_permutation if self.count > _SMALL else _permutation
        pieces = []  # only the needed part of each epoch, which may be long
        for epoch in range(start // self.count, (stop - 1) // self.count + 1):
            before = epoch * self.count
            pieces.append(permute(self, epoch)[max(start - before, 0) : stop - before])
        return torch.cat(pieces)


def _permutation(order: Order, epoch: int) -> Tensor:
    # Hashed, so that orders, epochs and runs are independent.
    digest = hashlib.sha256(f"{order.seed}/{order.name}/{epoch}".encode()).digest()
    generator = torch.Generator().manual_seed(int.from_bytes(digest[:8], "little") >> 1)
    return torch.randperm(order.count, generator=generator)


_kept_permutation = lru_cache(maxsize=8)(_permutation)


@dataclass(frozen=True, eq=False)
class Batch:
    """Samples as stored; views are made on the model's device."""

    ids: Tensor  # (n,) indices in the pool, which also seed the views; always on the CPU
    inputs: Tensor  # (n, c, h, w) uint8, or (n, d) float
    rows: Tensor  # (n, ...) evidence row of each label
    labels: dict[str, Tensor]  # (n, ...) by version: the label, given or implied by a newer one; -1 if there is none
    sizes: Tensor | None = None  # (n, 2) height and width of padded images
    complete: bool = False  # whether every sample is known to have a label: a GPU need not be asked

    def __len__(self) -> int:
        return len(self.ids)

    def moved(self, send: Callable[[Tensor], Tensor]) -> "Batch":
        """Return the same samples, whose tensors, except for the ids, were sent elsewhere."""
        labels = {version: send(known) for version, known in self.labels.items()}
        sizes = None if self.sizes is None else send(self.sizes)
        return Batch(self.ids, send(self.inputs), send(self.rows), labels, sizes, self.complete)

    def part(self, at: slice) -> "Batch":
        """Return some of the samples."""
        labels = {version: known[at] for version, known in self.labels.items()}
        sizes = None if self.sizes is None else self.sizes[at]
        return Batch(self.ids[at], self.inputs[at], self.rows[at], labels, sizes, self.complete)


@dataclass(frozen=True, eq=False)
class Step:
    """Samples of one training step: K with newest labels and, if there is history, M = K from it."""

    new: Batch
    history: Batch | None

    def __len__(self) -> int:
        return len(self.new) + (len(self.history) if self.history else 0)

    def moved(self, send: Callable[[Tensor], Tensor]) -> "Step":
        """Return the same samples, whose tensors were sent elsewhere."""
        return Step(self.new.moved(send), self.history.moved(send) if self.history else None)

    def part(self, at: slice) -> "Step":
        """Return some of the new samples, and as many of the history."""
        return Step(self.new.part(at), self.history.part(at) if self.history else None)


class Crop(Protocol):
    """A view that moves pixels together with their labels."""

    def __call__(self, batch: Batch, seed: int, step: int, corner: tuple[int, int] = (0, 0)) -> Batch:
        """Return the same samples, cropped; only what is right of and below `corner` was read."""
        ...

    def box(self, ids: Tensor, sizes: Tensor, seed: int, step: int) -> Box:
        """Return the part of one sample that its crop shows."""
        ...


class Mask(Protocol):
    """A change to the labels of samples that have just been read."""

    def __call__(self, batch: Batch, samples: Samples, evidence: Evidence) -> Batch:
        """Return the same samples without some of their labels."""
        ...


class Steps(Dataset[Step]):
    """Batches of a training run, by step number; each rank draws its share of every batch."""

    def __init__(
        self,
        samples: Samples,
        annotated: Annotated,
        evidence: Evidence,
        batch_size: int,
        seed: int,
        *,
        steps: int,
        rank: int = 0,
        ranks: int = 1,
        crop: Crop | None = None,
        masks: Sequence["Mask"] = (),
    ) -> None:
        if not len(annotated.newest.indices):
            raise LecoError("no sample is labelled in the newest version; label some")
        if batch_size < 1 or steps < 0:
            raise LecoError(f"steps and batch size must be positive, not {steps} and {batch_size}")
        if batch_size % ranks or not 0 <= rank < ranks:
            raise LecoError(
                f"a batch of {batch_size} samples cannot be divided equally among {ranks} ranks (this is rank {rank})"
            )
        self.samples, self.evidence, self.seed, self.steps = samples, evidence, seed, steps
        self.batch_size, self.rank, self.ranks = batch_size, rank, ranks
        self.crop, self.masks = crop, masks
        self.new = Pool.of([annotated.newest])
        self.history = Pool.of([part for part in annotated.history if len(part.indices)])

    def __len__(self) -> int:
        return self.steps

    def on(self, samples: Samples) -> "Steps":
        """Return the same steps with other inputs or labels."""
        other = copy.copy(self)
        other.samples = samples
        return other

    def __getitem__(self, step: int) -> Step:
        if not 0 <= step < self.steps:
            raise IndexError(f"step {step} of {self.steps}")
        history = self._draw(self.history, step, "history") if len(self.history.indices) else None
        return Step(self._draw(self.new, step, "new"), history)

    def _draw(self, pool: "Pool", step: int, name: str) -> Batch:
        drawn = self._drawn(pool, step, name)
        return replace(drawn, complete=bool((drawn.rows != UNLABELLED).all()))

    def _drawn(self, pool: "Pool", step: int, name: str) -> Batch:
        whole = Order(len(pool.indices), self.seed, name).stretch(step * self.batch_size, self.batch_size)
        chosen = whole[self.rank :: self.ranks]
        if self.crop is None:
            return self.read(pool, chosen)
        if self.samples.sizes is None:
            return self.crop(self.read(pool, chosen), self.seed, step)
        return join([self._read_crop(self.crop, pool, one, step) for one in chosen.split(1)])  # type: ignore[no-untyped-call]

    def _read_crop(self, crop: Crop, pool: "Pool", one: Tensor, step: int) -> Batch:
        """Read what is seen of one large image, and no more."""
        ids, sizes = pool.indices[one], self.samples.sizes
        assert sizes is not None
        box = crop.box(ids, sizes.read(ids), self.seed, step)
        part = self.on(self.samples.within(box)).read(pool, one)
        return crop(part, self.seed, step, (box[0], box[2]))

    def read(self, pool: "Pool", chosen: Tensor) -> Batch:
        """Read uncropped samples by their positions in a pool."""
        batch = read_batch(self.samples, self.evidence, pool.indices[chosen], pool.versions, pool.version[chosen])
        for mask in self.masks:
            batch = mask(batch, self.samples, self.evidence)
        return batch


@dataclass(frozen=True, eq=False)
class Pool:
    """Samples to draw from, and the version of each label."""

    indices: Tensor
    version: Tensor  # position in `versions`
    versions: tuple[str, ...]

    @classmethod
    def of(cls, parts: list[Part]) -> "Pool":
        """Concatenate several parts."""
        indices = torch.cat([part.indices for part in parts]) if parts else torch.empty(0, dtype=torch.int64)
        version = [torch.full_like(part.indices, number) for number, part in enumerate(parts)]
        return cls(indices, torch.cat(version) if parts else indices, tuple(part.version for part in parts))


def read_batch(samples: Samples, evidence: Evidence, ids: Tensor, versions: tuple[str, ...], version: Tensor) -> Batch:
    """Read samples, each with its label of `versions[version]` and the labels that it implies in older versions."""
    ontology = evidence.ontology
    rows: Tensor | None = None
    labels: dict[str, Tensor] = {}
    for number, name in enumerate(versions):
        mine = version == number
        if not mine.any():
            continue
        known = samples.labels[name].read(ids[mine])
        if rows is None:
            rows = torch.zeros(len(ids), *known.shape[1:], dtype=torch.int32)  # label maps are large
            labels = {v.name: torch.full(rows.shape, NO_LABEL, dtype=known.dtype) for v in ontology.versions}
        rows[mine] = evidence.ids(known, name).int()
        for older in ontology.versions[: ontology.position(name) + 1]:
            implied = ontology.translate(known, name, older.name)
            if samples.keeps_labels:
                given = samples.labels[older.name].read(ids[mine]).long()
                implied = torch.where(given == NO_LABEL, implied, given)
            labels[older.name][mine] = implied.to(known.dtype)
    assert rows is not None
    sizes = samples.sizes.read(ids) if samples.sizes is not None else None
    return Batch(ids, samples.inputs.read(ids), rows, labels, sizes)


def join(batches: Sequence[Batch]) -> Batch:
    """Concatenate batches."""
    first = batches[0]
    return Batch(
        torch.cat([batch.ids for batch in batches]),
        torch.cat([batch.inputs for batch in batches]),
        torch.cat([batch.rows for batch in batches]),
        {version: torch.cat([batch.labels[version] for batch in batches]) for version in first.labels},
    )


def without_contradictions(batch: Batch, samples: Samples, evidence: Evidence, *, guess: bool = False) -> Batch:
    """Drop old labels that contradict the newest label, which only benchmarks have for all samples (appendix C).

    With `guess`, the evidence for pseudo-labels stays.
    """
    ontology = evidence.ontology
    newest = samples.labels[ontology.newest.name].read(batch.ids)
    labels, rows = dict(batch.labels), batch.rows
    for version in ontology.versions[:-1]:
        parents = ontology.translate(newest, ontology.newest.name, version.name)
        wrong = (labels[version.name] != NO_LABEL) & (parents != NO_LABEL) & (labels[version.name] != parents)
        first = evidence.offsets[version.name]
        given = (rows >= first) & (rows < first + len(version))
        labels[version.name] = labels[version.name].masked_fill(wrong, NO_LABEL)
        if not guess:
            rows = rows.masked_fill(wrong & given, UNLABELLED)
    return replace(batch, labels=labels, rows=rows)


def without_classes(batch: Batch, _: Samples, evidence: Evidence, *, dropped: Tensor) -> Batch:
    """Drop the labels of some classes of the newest version: those of the mask `dropped`, (classes,)."""
    newest = evidence.ontology.newest.name
    labels = batch.labels[newest]
    wrong = dropped[labels.long()] & (labels != NO_LABEL)  # the last class, in place of no label, is not used
    first = evidence.offsets[newest]
    given = (batch.rows >= first) & (batch.rows < first + len(dropped))
    kept = {**batch.labels, newest: labels.masked_fill(wrong, NO_LABEL)}
    rows = batch.rows.masked_fill(wrong & given, UNLABELLED)
    return replace(batch, labels=kept, rows=rows)


def evaluated_together(shape: Sequence[int]) -> int:
    """Number of inputs, of a shape (channels, height, width) or (d,), whose feature maps fit into memory together.

    >>> evaluated_together((3, 32, 32)), evaluated_together((3, 224, 224)), evaluated_together((1280,))
    (512, 83, 512)
    """
    return min(512, max(1, 2**22 // math.prod(shape[1:])))


def loader(steps: Steps, start: int = 0, workers: int = 0) -> Iterator[Step]:
    """Yield the steps from `start` on, in the same order with any number of workers.

    Files are read ahead by that many processes, by default by threads.
    """
    return steps.samples.each(steps.__getitem__, range(max(start, 0), len(steps)), workers)
