"""Features of images from a frozen backbone: computed once, and kept in the store for all that use them.

An image is identified by its content, so that files may be renamed, and a set may grow by a few images or be read into
memory, without embedding anything again. Batches are written as they are computed, so that a process that is killed
continues, and memory does not grow with the number of images.
"""

import hashlib
import time
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import ClassVar

import numpy as np
import torch
from lightning_fabric import Fabric
from torch import Tensor, nn

from leco.data.file_digests import digest, file_digests, stamp
from leco.data.rng import Draws
from leco.data.samples import Files, InMemory, Samples
from leco.data.shards import Keys, Shards, Writer, as_keys
from leco.data.views.images import View
from leco.dataset import Periods
from leco.devices import place
from leco.errors import LecoError
from leco.experiments.machine import Machine, Stopped
from leco.experiments.store import Store
from leco.modalities import Normalise
from leco.models.folding import folded
from leco.models.network import digest_tensors
from leco.placement import sent_ahead
from leco.progress import Tick
from leco.records import FirstFormat, StoredRecord
from leco.text import duration

BATCH = 64
_MEASURED = 2_000  # features, for their mean length
_HELD = 2**28  # numbers, a gigabyte


@dataclass(frozen=True, eq=False)
class Embedder:
    """A frozen backbone, and how an image becomes its input."""

    backbone: nn.Module  # (n, c, h, w) -> (n, d)
    key: str  # identifies the backbone and its weights
    evaluate: View
    normalise: Normalise
    view: str  # identifies size, view and normalisation

    @classmethod
    def of(cls, backbone: nn.Module, name: str, periods: Periods) -> "Embedder":
        """Return the embedder of a dataset's images, in their evaluation view; weights are identified by content."""
        key = f"{name} {digest_tensors(backbone.state_dict())}"
        return cls(backbone, key, periods.views.evaluate, periods.normalise, _describe_view(periods))

    @property
    def fingerprint(self) -> str:
        """Sixteen hexadecimal digits: the name of the folder of its features."""
        return _short(f"{self.key}\n{self.view}")

    def on(self, device: torch.device) -> "Embedder":
        """The same with the backbone on a device."""
        return replace(self, backbone=place(self.backbone, device).eval())

    def faster(self, inputs: Tensor, ids: Tensor) -> "Embedder":
        """The same with BatchNorm folded into convolutions, if that changes nothing for one image."""
        return replace(self, backbone=folded(self.backbone, self._seen(inputs[:1], ids[:1])))

    def _seen(self, inputs: Tensor, ids: Tensor) -> Tensor:
        return self.normalise(self.evaluate(inputs, Draws(0, 0, ids, inputs.device)))

    @torch.no_grad()
    def features(self, inputs: Tensor, ids: Tensor) -> Tensor:
        """Compute the features (n, d) of images as they are stored."""
        features: Tensor = self.backbone(self._seen(inputs, ids))
        if features.ndim != 2 or len(features) != len(ids):
            raise LecoError(f"{self.key}: returns {tuple(features.shape)} for {len(ids)} images, not a vector for each")
        return features.float().cpu()


@dataclass(frozen=True, eq=False)
class Embedded:
    """A column of features, read from memory-mapped files; zeros for samples that were not embedded."""

    in_memory: ClassVar[bool] = True  # as far as time is concerned
    folder: Path
    shards: Shards
    rows: Tensor  # (samples,) row of each sample in the shards, or -1

    def __len__(self) -> int:
        return len(self.rows)

    def read(self, indices: Tensor) -> Tensor:
        """Return the features of some samples."""
        found = self.shards.read(self.rows[indices])
        if not found.isfinite().all():  # only finite ones were written
            raise LecoError(f"{self.folder}: is damaged: features are NaN or infinite; delete the folder")
        return found

    def held(self) -> "Embedded":
        """Return the same features in memory, unless they are many: steps read them in random order."""
        used = self.rows >= 0
        if int(used.sum()) * self.shards.width > _HELD:
            return self
        rows = torch.where(used, used.cumsum(0) - 1, -1)
        features = self.read(used.nonzero().squeeze(1))
        return Embedded(self.folder, Shards(as_keys([]), (features,)), rows)


def embed(
    samples: Samples,
    indices: Tensor,
    embedder: Embedder,
    store: Store,
    machine: Machine,
    *,
    tick: Tick = lambda done, total: None,
    batch: int = BATCH,
    shard: int = 4_096,
    seconds: float = 10.0,
) -> Embedded:
    """Return the features of some samples; those that the store does not have yet are computed and added to it.

    `tick` is called with the numbers of new images that are done, and of all new ones. A shard is written every
    `shard` images or `seconds`. When the machine is asked to stop, the last batch is written first; the same call
    continues from there. The processes of `torchrun` share the images.
    """
    fabric = machine.fabric("32-true")
    folder = store.features / embedder.fingerprint
    indices = indices.unique()  # type: ignore[no-untyped-call]
    identified = _identify(samples, indices, store, machine) if fabric.is_global_zero else None
    identified = fabric.broadcast(identified)
    assert identified is not None
    stored = Shards.open(folder, machine.say if fabric.is_global_zero else lambda _: None)
    _, first = np.unique(identified.contents, return_index=True)  # equal images are embedded once
    first.sort()
    missing: Tensor = fabric.broadcast(torch.from_numpy(first[stored.find(identified.contents[first]) < 0]))
    if len(missing):
        started = time.monotonic()
        work = _Work(samples, indices, identified, embedder, folder, stored.width)
        work.run(missing, machine, fabric, tick=tick, batch=batch, writer=Writer(folder, rows=shard, seconds=seconds))
        fabric.barrier()
        stored = Shards.open(folder)
        if fabric.is_global_zero:
            took = time.monotonic() - started
            machine.note(
                f"embedded {len(missing):,} new images of {len(indices):,} with {embedder.key} in {duration(took)} "
                f"({len(missing) / max(took, 1e-9):,.0f} images/s)"
            )
    found = torch.from_numpy(stored.find(identified.contents))
    if (found < 0).any():
        raise LecoError(f"{folder}: features were deleted while they were read; run the same command again")
    rows = torch.full((len(samples),), -1)
    rows[indices] = found
    return Embedded(folder, stored, rows)


class About(StoredRecord):
    """`about.json`: what is in a folder of features, for people."""

    format: FirstFormat = 1
    backbone: str
    view: str
    dimensions: int


@dataclass(frozen=True, eq=False)
class _Identified:
    """Digests of the contents of some samples and, if they are files, of their paths, sizes and times."""

    contents: Keys
    stamps: Keys | None


def _identify(samples: Samples, indices: Tensor, store: Store, machine: Machine) -> _Identified:
    files = _files(samples)
    if files is None:
        values = (row for ids in indices.split(BATCH) for row in samples.inputs.read(ids))  # type: ignore[no-untyped-call]
        return _Identified(as_keys([digest(row.numpy().tobytes()) for row in values]), None)
    paths = [files[index] for index in indices.tolist()]

    def check() -> None:
        if machine.stop():
            raise Stopped("stopped; the same call continues")

    contents, stamps = file_digests(paths, store.files, say=machine.say, check=check)
    if isinstance(samples.inputs, InMemory) and samples.read_ns is not None:
        for path in paths:
            if path.stat().st_ctime_ns > samples.read_ns:  # its content is not that of the image in memory
                raise LecoError(f"{path}: changed after it was read; read the dataset again")
    return _Identified(contents, stamps)


def _files(samples: Samples) -> Sequence[Path] | None:
    """The file of each sample, if its inputs come from files."""
    return samples.inputs.paths if samples.files is None and isinstance(samples.inputs, Files) else samples.files


@dataclass(frozen=True, eq=False)
class _Work:
    """Samples of which some are to be embedded."""

    samples: Samples
    indices: Tensor
    identified: _Identified
    embedder: Embedder
    folder: Path
    width: int  # of stored features; 0 if there are none

    def run(self, missing: Tensor, machine: Machine, fabric: Fabric, *, tick: Tick, batch: int, writer: Writer) -> None:
        """Embed this process's share of the missing samples, given by their places in `indices`."""
        embedder = self.embedder.on(fabric.device)
        blocks = missing[fabric.global_rank :: fabric.world_size].split(batch)  # type: ignore[no-untyped-call]
        inputs_alone = replace(self.samples, labels={}, sizes=None)
        read = inputs_alone.each(inputs_alone.inputs.read, [self.indices[places] for places in blocks], machine.workers)
        sent = sent_ahead(read, fabric.device, lambda inputs, send: send(inputs))
        share = -(-len(missing) // fabric.world_size)  # of the first process, the largest
        with writer, closing(read):
            for number in range(-(-share // batch)):
                # All processes stop after the same batch.
                if fabric.all_reduce(torch.tensor(float(machine.stop())), reduce_op="sum"):
                    raise Stopped("stopped, and saved the features; the same call continues")
                if number == 0 and fabric.is_global_zero:
                    tick(0, len(missing))
                if number < len(blocks):
                    inputs = next(sent)
                    if number == 0:
                        embedder = embedder.faster(inputs, self.indices[blocks[0]])
                    features = self._embed(embedder, inputs, blocks[number])
                    writer.add(self.identified.contents[blocks[number].numpy()], features)
                if fabric.is_global_zero:
                    if number == 0:
                        self._describe(features.shape[1])
                    tick(min(len(missing), (number + 1) * batch * fabric.world_size), len(missing))

    def _embed(self, embedder: Embedder, inputs: Tensor, places: Tensor) -> Tensor:
        """Compute the features of a batch, and refuse those that must not be stored."""
        ids = self.indices[places]
        features = embedder.features(inputs, ids)
        if self.width and features.shape[1] != self.width:
            raise LecoError(
                f"{self.folder}: holds features of {self.width} dimensions, but {self.embedder.key} returns "
                f"{features.shape[1]}; delete the folder"
            )
        finite = features.isfinite().all(dim=1)
        if not finite.all():
            name = self._name(int(ids[int(finite.int().argmin())]))
            raise LecoError(f"{name}: its features of {self.embedder.key} are NaN or infinite; check the weights")
        if self.identified.stamps is not None and not isinstance(self.samples.inputs, InMemory):
            files = _files(self.samples)
            assert files is not None
            for index, known in zip(ids.tolist(), self.identified.stamps[places.numpy()].tolist(), strict=True):
                if stamp(files[index]) != known:
                    raise LecoError(f"{files[index]}: changed while it was embedded; run the same command again")
        return features

    def _name(self, index: int) -> str:
        files = _files(self.samples)
        return f"sample {index}" if files is None else str(files[index])

    def _describe(self, dimensions: int) -> None:
        """Note for people what is in the folder."""
        if not (self.folder / "about.json").is_file():
            about = About(backbone=self.embedder.key, view=self.embedder.view, dimensions=dimensions)
            about.write(self.folder / "about.json")


def _short(text: str) -> str:
    return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()


def _describe_view(periods: Periods) -> str:
    """How a sample becomes an input: modality, size, evaluation view and normalisation."""
    mean, std = periods.modality.statistics(periods.normalise)
    size = " x ".join(map(str, periods.raw_shape))
    view = _describe(periods.views.evaluate)
    return f"{periods.modality.name}, {size}, {view}, mean {list(mean)}, std {list(std)}"


def _describe(view: View) -> str:
    """Name of a view, with its options, which may be views, too."""
    if isinstance(view, partial):
        options = {name: _describe(value) if callable(value) else value for name, value in view.keywords.items()}
        return f"{_describe(view.func)}({options})"
    return f"{view.__module__}.{getattr(view, '__qualname__', type(view).__qualname__)}"
