"""Samples: what a model sees of them, and what they are labelled as in each version."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import torch
from torch import Tensor


class Column(Protocol):
    """One thing known of every sample: an input, or a label."""

    def __len__(self) -> int: ...

    def read(self, indices: Tensor) -> Tensor:
        """The values of some samples, stacked."""
        ...


@dataclass(frozen=True, eq=False)
class InMemory:
    """A column small enough to be held whole: CIFAR's images, feature vectors, labels."""

    values: Tensor

    def __len__(self) -> int:
        return len(self.values)

    def read(self, indices: Tensor) -> Tensor:
        """The values of some samples."""
        return self.values[indices]


@dataclass(frozen=True, eq=False)
class Files:
    """A column that is read from files when asked for, by the workers of a DataLoader."""

    paths: Sequence[Path]
    decode: Callable[[Path], Tensor]

    def __len__(self) -> int:
        return len(self.paths)

    def read(self, indices: Tensor) -> Tensor:
        """Decode the files of some samples; all must have the same shape by then."""
        return torch.stack([self.decode(self.paths[index]) for index in indices.tolist()])

    def held(self) -> InMemory:
        """The whole column, read into memory."""
        first = self.decode(self.paths[0])
        values = first.new_empty(len(self.paths), *first.shape)
        for index, path in enumerate(self.paths):
            values[index] = self.decode(path)
        return InMemory(values)


@dataclass(frozen=True, eq=False)
class Few:
    """A few values that stand for those of all samples, where nothing matters but how long it takes to work on them."""

    values: Tensor
    count: int

    def __len__(self) -> int:
        return self.count

    def read(self, indices: Tensor) -> Tensor:
        """One of the values for each sample."""
        return self.values[indices % len(self.values)]


@dataclass(frozen=True, eq=False)
class Samples:
    """Inputs (uint8 images (c, h, w), or float features (d,)) and, for each version, labels (indices; -1 for none).

    A label is one number, or, for segmentation, a map (h, w). Images that were padded to be stacked have `sizes`: the
    height and width they really have. `keeps_labels` says that a sample's older labels are its own (it was relabelled),
    and not only what its newest label implies.
    """

    inputs: Column
    labels: dict[str, Column]
    sizes: Column | None = None
    keeps_labels: bool = False

    def __len__(self) -> int:
        return len(self.inputs)
