"""Samples: inputs, and labels in each version."""

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import ClassVar, Protocol, TypeVar

import torch
from torch import Tensor

from leco.data.ahead import read_ahead

_Item = TypeVar("_Item")
_Found = TypeVar("_Found")
Box = tuple[int, int, int, int]  # rows from a first to before a last one, and columns likewise


class Column(Protocol):
    """One value per sample: an input or a label."""

    def __len__(self) -> int: ...

    def read(self, indices: Tensor) -> Tensor:
        """Return the values of some samples, stacked."""
        ...


@dataclass(frozen=True, eq=False)
class InMemory:
    """A column that fits in memory: CIFAR's images, feature vectors, labels."""

    in_memory: ClassVar[bool] = True
    values: Tensor

    def __len__(self) -> int:
        return len(self.values)

    def read(self, indices: Tensor) -> Tensor:
        """Return the values of some samples."""
        return self.values[indices]


@dataclass(frozen=True, eq=False)
class Files:
    """A column that is read from files on demand, by the workers of a DataLoader."""

    paths: Sequence[Path]
    decode: Callable[[Path], Tensor]

    def __len__(self) -> int:
        return len(self.paths)

    def read(self, indices: Tensor) -> Tensor:
        """Decode the files of some samples, which must give the same shape."""
        return torch.stack([self.decode(self.paths[index]) for index in indices.tolist()])

    def held(self) -> InMemory:
        """Read the whole column into memory."""
        first = self.decode(self.paths[0])
        values = first.new_empty(len(self.paths), *first.shape)
        for index, path in enumerate(self.paths):
            values[index] = self.decode(path)
        return InMemory(values)


@dataclass(frozen=True, eq=False)
class Few:
    """A few values in place of those of all samples, for measuring time."""

    in_memory: ClassVar[bool] = True
    values: Tensor
    count: int

    def __len__(self) -> int:
        return self.count

    def read(self, indices: Tensor) -> Tensor:
        """Return one of the values for each sample."""
        return self.values[indices % len(self.values)]


@dataclass(frozen=True, eq=False)
class Window:
    """A part of the image, or label map, of one sample; it is read once."""

    column: Column
    box: Box
    found: dict[int, Tensor] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.column)

    def read(self, indices: Tensor) -> Tensor:
        """Return the part of one sample."""
        index = int(indices)
        if index not in self.found:
            top, bottom, left, right = self.box
            alone = getattr(self.column, "read_box", None)  # others read the whole of it
            self.found[index] = (
                alone(indices, self.box) if alone else self.column.read(indices)[..., top:bottom, left:right]
            )
        return self.found[index]


@dataclass(frozen=True, eq=False)
class Samples:
    """Inputs (uint8 images (c, h, w), or float features (d,)) and, for each version, labels (indices; -1 for none).

    A label is one number or, for segmentation, a map (h, w). `sizes` are the heights and widths of images that were
    padded to be stacked. `keeps_labels` means that a sample's older labels were annotated, not implied by its newest.
    `files` are the files that the inputs were decoded from, one each, also if they are now in memory; `read_ns` is when
    reading them began, as `time.time_ns` returns it.
    """

    inputs: Column
    labels: dict[str, Column]
    sizes: Column | None = None
    keeps_labels: bool = False
    files: Sequence[Path] | None = None
    read_ns: int | None = None

    def __len__(self) -> int:
        return len(self.inputs)

    def within(self, box: Box) -> "Samples":
        """Return the samples with only a part of each image and label map."""
        labels: dict[str, Column] = {version: Window(column, box) for version, column in self.labels.items()}
        return replace(self, inputs=Window(self.inputs, box), labels=labels)

    @property
    def in_memory(self) -> bool:
        """Whether inputs and labels are in memory, or as quick to read."""
        return all(getattr(column, "in_memory", False) for column in (self.inputs, *self.labels.values()))

    def each(
        self, read: Callable[[_Item], _Found], items: Sequence[_Item], workers: int = 0
    ) -> Generator[_Found, None, None]:
        """Yield what `read` returns for each item, in their order; files are read ahead, as by `read_ahead`."""
        if self.in_memory:
            yield from map(read, items)
        else:
            yield from read_ahead(read, items, workers)
