"""Large images and their masks are shrunken once, to the size that is trained at, for all stages of a store.

A copy is named after the place, size and time of its file, and after how that is decoded. Copies are written one by
one, so that a process that is killed continues, and several processes can share them.
"""

import hashlib
import random
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, fields, is_dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch

from leco.data.ahead import read_ahead
from leco.data.copies import Copies, Sizes, write_copy
from leco.data.file_digests import stamp
from leco.data.samples import Column, Files, Samples
from leco.dataset import Periods
from leco.experiments.machine import Machine, Stopped
from leco.experiments.store import AnyStore, Store
from leco.progress import rate_bar

_KEPT = 4  # samples, in memory
_IMAGES = ""  # in place of a version
_SHRUNKEN: dict[tuple[Samples, Path], Samples] = {}


def shrunken(periods: Periods, store: AnyStore, machine: Machine) -> Periods:
    """Return the same periods; large images and masks are read from copies, made now or found in the store."""
    if not isinstance(store, Store):
        return periods
    pool = shrunken_samples(periods.pool, store.copies, machine)
    test = pool if periods.test is periods.pool else shrunken_samples(periods.test, store.copies, machine)
    return replace(periods, pool=pool, test=test)


def shrunken_samples(samples: Samples, folder: Path, machine: Machine) -> Samples:
    """Return the same samples, read from copies in a folder; the last ones are remembered."""
    if not are_large(samples):
        return samples
    if (samples, folder) not in _SHRUNKEN:
        _SHRUNKEN[samples, folder] = _shrink(samples, folder, machine)
        for oldest in list(_SHRUNKEN)[:-_KEPT]:
            del _SHRUNKEN[oldest]
    return _SHRUNKEN[samples, folder]


def are_large(samples: Samples) -> bool:
    """Whether samples are images with masks that are read from files."""
    return isinstance(samples.inputs, Files) and isinstance(samples.sizes, Files) and len(samples) > 0


def repeated(samples: Samples, count: int) -> Samples:
    """Return as many samples, all of them among `count` evenly spread ones, for measuring time."""

    def chosen(column: Column) -> Column:
        if not isinstance(column, Files):
            return column
        some = [column.paths[index] for index in torch.linspace(0, len(column) - 1, count).long().tolist()]
        return Files([some[index % count] for index in range(len(column))], column.decode)

    labels = {version: chosen(column) for version, column in samples.labels.items()}
    return replace(
        samples, inputs=chosen(samples.inputs), labels=labels, sizes=samples.sizes and chosen(samples.sizes), files=None
    )


def _shrink(samples: Samples, folder: Path, machine: Machine) -> Samples:
    """Make the copies that are missing; the processes of `torchrun` share the work."""
    fabric, work = machine.fabric("32-true"), _Work.of(samples, folder)
    missing: list[int] = fabric.broadcast(work.missing())
    mine = missing[fabric.global_rank :: fabric.world_size]
    shown = machine.shown and fabric.is_global_zero
    copies = read_ahead(work.copy, mine, machine.workers)
    with rate_bar("shrinking", "images", shown=shown) as tick, closing(copies) as done:
        for number, _ in enumerate(done, start=1):
            tick(number, len(mine))
            if machine.stop():
                raise Stopped("stopped; the same call continues")
    fabric.barrier()
    return work.result()


@dataclass(frozen=True, eq=False)
class _Work:
    """The copies of some samples."""

    samples: Samples
    files: Mapping[str, Files]  # the masks by version, and the images
    copies: Mapping[str, Sequence[Path | None]]  # the same; None where there is no mask

    @classmethod
    def of(cls, samples: Samples, folder: Path) -> "_Work":
        """Name the copies of all samples, in a folder."""
        columns = {**samples.labels, _IMAGES: samples.inputs}
        files = {name: column for name, column in columns.items() if isinstance(column, Files)}
        return cls(samples, files, {name: _places(column, folder) for name, column in files.items()})

    def missing(self) -> list[int]:
        """Samples of which a copy is missing, in random order: several processes then begin with different ones."""
        found = [index for index in range(len(self.samples)) if self._is_missing(index)]
        return random.Random().sample(found, len(found))

    def _is_missing(self, index: int) -> bool:
        row = (copies[index] for copies in self.copies.values())
        return any(copy is not None and not copy.is_file() for copy in row)

    def copy(self, index: int) -> None:
        """Make the copies of a sample, unless another process was faster."""
        if not self._is_missing(index):
            return
        assert self.samples.sizes is not None
        ((height, width),) = self.samples.sizes.read(torch.tensor([index])).tolist()
        for name, column in self.files.items():
            if (copy := self.copies[name][index]) is not None:
                copy.parent.mkdir(parents=True, exist_ok=True)
                write_copy(copy, column.decode(column.paths[index])[..., :height, :width])

    def result(self) -> Samples:
        """Return the samples as they are read from the copies, which are complete."""
        images = [copy for copy in self.copies[_IMAGES] if copy is not None]
        sizes = Sizes(images)
        side = int(sizes.read(torch.tensor([0])).max())  # of the square that all are padded to
        masks = {name: Copies(copies, side, 0) for name, copies in self.copies.items() if name != _IMAGES}
        labels: dict[str, Column] = {**self.samples.labels, **masks}
        return replace(self.samples, inputs=Copies(images, side, 3), labels=labels, sizes=sizes)


def _places(files: Files, folder: Path) -> list[Path | None]:
    """The place of the copy of each file; None for a mask that was not drawn."""
    how = str(_described(files.decode)).encode()
    found: list[Path | None] = []
    for path in files.paths:
        name = hashlib.blake2b(stamp(path) + how, digest_size=16).hexdigest() if path != Path() else ""
        found.append(folder / name[:2] / f"{name}.zip" if name else None)
    return found


def _described(value: Any) -> Any:
    """What a decoder depends on, in an order that does not change."""
    if isinstance(value, partial):
        return [_described(value.func), _described(value.keywords)]
    if is_dataclass(value):
        return [_described(getattr(value, field.name)) for field in fields(value)]
    if isinstance(value, Mapping):
        return sorted((key, _described(item)) for key, item in value.items())
    if isinstance(value, frozenset):
        return sorted(value)
    return f"{value.__module__}.{value.__qualname__}" if callable(value) else value
