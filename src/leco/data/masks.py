"""Masks of a manifest: pixel values are class indices of their version, the largest value means no label."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from leco.data.manifest.checks import SPLITS, impossible, impossible_classes
from leco.data.manifest.problems import Fault
from leco.ontology.masks import read_mask
from leco.ontology.ontology import Ontology
from leco.ontology.version import NO_LABEL, Version

if TYPE_CHECKING:
    from leco.data.manifest.manifest import Manifest


_VALUES = 65_536  # of a 16-bit mask
MOST_IN_BYTES = 255  # classes; the value 255 means no label


def void_value(mask: NDArray[Any]) -> int:
    """The pixel value that means no label: 255 of 8 bits, 65535 of 16."""
    return 255 if mask.dtype.itemsize == 1 else _VALUES - 1


def decode_mask(path: Path) -> NDArray[np.int32]:
    """Read a checked mask as class indices (height, width), -1 where there is no label."""
    mask = read_mask(path)
    labels = mask.astype(np.int32)  # before -1 is put in: as a byte it would be 255 again
    labels[mask == void_value(mask)] = NO_LABEL
    return labels


def encode_mask(labels: NDArray[Any], num_classes: int) -> NDArray[Any]:
    """Class indices, -1 for no label, as the values of a mask that `decode_mask` reads: 8 bits where they suffice."""
    kind = np.uint8 if num_classes <= MOST_IN_BYTES else np.uint16
    return np.where(labels == NO_LABEL, np.iinfo(kind).max, labels).astype(kind)


Tally = dict[tuple[str, str], tuple[NDArray[np.int64], NDArray[np.int64]]]
"""By path and version, the classes that are in a mask, and how many pixels each of them has."""


def seen_in(mask: NDArray[Any]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The classes that are in a checked mask, and how many pixels each of them has."""
    counts = np.bincount(mask.ravel())
    counts[void_value(mask) :] = 0
    classes = np.flatnonzero(counts)
    return classes, counts[classes]


@dataclass(frozen=True, eq=False)
class MaskRule:
    """Which pixel values a mask of one version may have."""

    version: Version
    newest: str
    allowed: NDArray[np.bool_]  # (65536,)

    @classmethod
    def of(cls, ontology: Ontology, version: str) -> "MaskRule":
        """Every class that some newest class can explain."""
        allowed = np.zeros(_VALUES, dtype=bool)
        allowed[: len(ontology[version])] = ~impossible_classes(ontology, version)
        return cls(ontology[version], ontology.newest.name, allowed)

    def fault(self, mask: NDArray[Any]) -> Fault | None:
        """The first wrong pixel, or none."""
        void = void_value(mask)
        inside = (mask >= 0) & (mask < _VALUES)
        wrong = ~(self.allowed[np.where(inside, mask, 0)] & inside) & (mask != void)
        if not wrong.any():
            return None
        row, column = (int(i) for i in np.unravel_index(int(np.argmax(wrong)), wrong.shape))
        value = int(mask[row, column])
        pixel = f"pixel (row {row}, column {column})"
        if 0 <= value < len(self.version):
            removed = impossible(self.version.handle(value), self.version.name, self.newest)
            return removed._replace(message=f"{pixel}: {removed.message}")
        last = len(self.version) - 1
        near = f"the nearest is {last} ({self.version.handle(last)!r}); {void} means no label"
        message = f"{pixel} has the value {value}, which is no class of {self.version.name}; {near}"
        return Fault("unknown mask value", message)


Counts = dict[str, dict[str, list[int]]]  # version -> split -> number for each class


@dataclass(frozen=True)
class MaskCounts:
    """In how many images each class is, and how many pixels it has."""

    images: Counts
    pixels: Counts
    read: int  # masks
    total: int

    @property
    def note(self) -> str:
        """The end of a message, where not all masks were read."""
        read = f" (in the {self.read:,} of {self.total:,} masks that were read; --every-file reads all)"
        return "" if self.read == self.total else read


def mask_counts(manifest: "Manifest", ontology: Ontology, tally: Tally) -> MaskCounts:
    """Add up what was seen in the masks that are samples of a manifest."""
    images: Counts = {}
    pixels: Counts = {}
    read = total = 0
    for version, masks in manifest.masks.items():
        sums = np.zeros((2, len(SPLITS), len(ontology[version])), dtype=np.int64)
        for mask, split in zip(masks, manifest.split.tolist(), strict=True):
            total += bool(mask)
            if mask and (mask, version) in tally:
                classes, counts = tally[mask, version]
                sums[0, SPLITS.index(split), classes] += 1
                sums[1, SPLITS.index(split), classes] += counts
                read += 1
        images[version], pixels[version] = (dict(zip(SPLITS, part.tolist(), strict=True)) for part in sums)
    return MaskCounts(images, pixels, read, total)
