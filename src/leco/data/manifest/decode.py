"""The slow half of checking a manifest: open every image with its masks, once, and keep the pixels if asked to."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from leco.data import SPLITS
from leco.data.ahead import read_ahead
from leco.data.images import decode_image, inspect_image, letterbox_mask, letterboxed, middle_square, scaled_size
from leco.data.manifest.checks import impossible, impossible_classes
from leco.data.manifest.table import Fault
from leco.data.masks import Mask, mask_labels, read_mask, void_value
from leco.data.vectors import Tick
from leco.errors import LecoError
from leco.ontology.ontology import Ontology
from leco.ontology.version import NO_LABEL, Version

if TYPE_CHECKING:
    from leco.data.manifest.manifest import Manifest

IN_MEMORY = 1_000_000_000  # bytes of decoded images that are worth keeping
_AHEAD = 32  # images
_VALUES = 65_536  # of a 16-bit mask


@dataclass(frozen=True)
class Picture:
    """An image and its masks."""

    image: str | None  # None if it is missing; its masks are inspected all the same
    masks: tuple[tuple[str, str], ...] = ()  # (path, version)


@dataclass(frozen=True, eq=False)
class Decoded:
    """The pixels of all samples of a manifest, exactly as its `Samples` read them from files.

    Images with labels are cropped to their central square (`middle_square`), those with masks are padded (`letterbox`).
    """

    side: int
    rows: dict[str, int] = field(repr=False)  # of the images
    images: Tensor  # (n, 3, side, side) uint8
    sizes: Tensor | None = None  # (n, 2) height and width within the padded square; None if cropped
    masks: dict[str, Tensor] = field(default_factory=dict)  # version -> (n, side, side) int16

    @classmethod
    def allocate(cls, images: Sequence[str], side: int, versions: Sequence[str] | None) -> "Decoded":
        """Reserve memory for images; `versions` are those that may have masks, None for images with labels."""
        rows = {path: row for row, path in enumerate(images)}
        pixels = torch.empty(len(rows), 3, side, side, dtype=torch.uint8)
        if versions is None:
            return cls(side, rows, pixels)
        unlabelled = {v: torch.full((len(rows), side, side), NO_LABEL, dtype=torch.int16) for v in versions}
        return cls(side, rows, pixels, torch.zeros(len(rows), 2, dtype=torch.int64), unlabelled)

    def add_image(self, path: Path, image: str) -> tuple[int, ...]:
        """Decode and keep an image; return its height and width, () if it is cropped. Errors as of `inspect_image`."""
        row = self.rows[image]
        try:
            if self.sizes is None:
                self.images[row] = middle_square(path, self.side)
                return ()
            pixels = decode_image(path)
        except LecoError:
            inspect_image(path)  # the same error as of images that are not kept
            raise
        self.images[row] = letterboxed(pixels, self.side)
        self.sizes[row] = torch.tensor(scaled_size(pixels.shape, self.side))
        return pixels.shape[:2]

    def add_mask(self, image: str, version: str, mask: Mask) -> None:
        """Keep a mask of an image."""
        if image in self.rows:
            self.masks[version][self.rows[image]] = letterbox_mask(mask_labels(mask), self.side)

    def select(self, images: Sequence[str], masks: Mapping[str, Sequence[str]]) -> "Decoded | None":
        """Return some images, with those of their masks that are given ("" for none); None if one was not kept."""
        if any(image not in self.rows for image in images):
            return None
        kept = self
        if len(images) != len(self.images) or list(images) != list(self.rows):
            rows = torch.tensor([self.rows[image] for image in images])
            sizes = None if self.sizes is None else self.sizes[rows]
            drawn = {version: labels[rows] for version, labels in self.masks.items()}
            place = {image: row for row, image in enumerate(images)}
            kept = Decoded(self.side, place, self.images[rows], sizes, drawn)
        for version, labels in kept.masks.items():
            given = masks.get(version, [""] * len(images))
            labels[torch.tensor([not mask for mask in given])] = NO_LABEL
        return kept


def fits_memory(count: int, side: int, num_versions: int = 0, limit: int = IN_MEMORY) -> bool:
    """Return whether decoded squares, and a mask of each version, are small enough to be kept."""
    return count * side * side * (3 + 2 * num_versions) <= limit


Tally = dict[tuple[str, str], tuple[NDArray[np.int64], NDArray[np.int64]]]
"""By path and version of a mask, the classes in it and the number of pixels of each."""


@dataclass(frozen=True, eq=False)
class MaskRule:
    """The pixel values that are allowed in masks of one version."""

    version: Version
    newest: str
    allowed: NDArray[np.bool_]  # (65536,)

    @classmethod
    def of(cls, ontology: Ontology, version: str) -> "MaskRule":
        """Allow every class that some newest class comes from."""
        allowed = np.zeros(_VALUES, dtype=bool)
        allowed[: len(ontology[version])] = ~impossible_classes(ontology, version)
        return cls(ontology[version], ontology.newest.name, allowed)

    def fault(self, mask: NDArray[Any]) -> Fault | None:
        """Return the fault of the first wrong pixel, if any."""
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
        message = f"{pixel} has the value {value}, which is not a class of {self.version.name}; {near}"
        return Fault("unknown mask value", message)


def inspect_pictures(
    root: Path,
    pictures: Sequence[Picture],
    rules: Mapping[str, MaskRule],
    *,
    tick: Tick = lambda done, total: None,
    tally: Tally | None = None,
    keep: Decoded | None = None,
) -> Iterator[tuple[int, str, str | None, Fault]]:
    """Decode every image and mask; yield faults: (number of the picture, file, version or None for the image, fault).

    Masks without a fault are counted in `tally`, and pixels without a fault are added to `keep`, if given.
    """

    def inspect(number: int) -> list[tuple[str, str | None, Fault]]:
        return list(_inspect(root, pictures[number], rules, tally, keep))

    with closing(read_ahead(inspect, range(len(pictures)), count=_AHEAD)) as found:
        for number, faults in enumerate(found):
            yield from ((number, *fault) for fault in faults)
            tick(number + 1, len(pictures))


def _inspect(
    root: Path, picture: Picture, rules: Mapping[str, MaskRule], tally: Tally | None, keep: Decoded | None
) -> Iterator[tuple[str, str | None, Fault]]:
    """Yield the faults of an image and its masks: (file, version or None for the image, fault)."""
    size: tuple[int, ...] = ()
    image = picture.image
    if image is not None:
        try:
            size = inspect_image(root / image) if keep is None else keep.add_image(root / image, image)
        except LecoError as error:
            yield image, None, Fault("bad image", _without_path(root / image, error))
    masks: dict[str, Mask | Fault] = {}  # a file may be the mask of several versions
    for path, version in picture.masks:
        if path not in masks:
            masks[path] = _read(root / path)
        mask = masks[path]
        if isinstance(mask, Fault):
            yield path, version, mask
            continue
        if size and mask.shape != size:
            sizes = f"is {mask.shape[1]}x{mask.shape[0]}, but {image} is {size[1]}x{size[0]}"
            yield path, version, Fault("other size", sizes)
        if version in rules:
            if fault := rules[version].fault(mask):
                yield path, version, fault
                continue
            if tally is not None:
                tally[path, version] = _seen(mask)
            if keep is not None and image is not None:
                keep.add_mask(image, version, mask)


def _read(path: Path) -> Mask | Fault:
    try:
        return read_mask(path)
    except LecoError as error:
        return Fault("bad mask", _without_path(path, error))


def _without_path(path: Path, error: LecoError) -> str:
    return str(error).removeprefix(f"{path}: ")


def _seen(mask: Mask) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the classes in a checked mask and the number of pixels of each."""
    counts = np.bincount(mask.ravel())
    counts[void_value(mask) :] = 0
    classes = np.flatnonzero(counts)
    return classes, counts[classes]


Counts = dict[str, dict[str, list[int]]]  # version -> split -> number for each class


@dataclass(frozen=True)
class MaskCounts:
    """Number of images that show each class, and of its pixels."""

    images: Counts
    pixels: Counts
    read: int  # masks
    total: int

    @property
    def note(self) -> str:
        """The end of a message, if not all masks were read."""
        read = f" (in {self.read:,} of {self.total:,} masks; --every-file reads all)"
        return "" if self.read == self.total else read


def mask_counts(manifest: "Manifest", ontology: Ontology) -> MaskCounts:
    """Count the classes in the masks that were decoded when the manifest was read."""
    images: Counts = {}
    pixels: Counts = {}
    read = total = 0
    for version, masks in manifest.masks.items():
        sums = np.zeros((2, len(SPLITS), len(ontology[version])), dtype=np.int64)
        for mask, split in zip(masks, manifest.split.tolist(), strict=True):
            total += bool(mask)
            if mask and (mask, version) in manifest.tally:
                classes, counts = manifest.tally[mask, version]
                sums[0, SPLITS.index(split), classes] += 1
                sums[1, SPLITS.index(split), classes] += counts
                read += 1
        images[version], pixels[version] = (dict(zip(SPLITS, part.tolist(), strict=True)) for part in sums)
    return MaskCounts(images, pixels, read, total)
