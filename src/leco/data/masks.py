"""Label maps: images with one channel whose pixel values are classes."""

import re
import reprlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import sparse

from leco.data.ahead import read_ahead
from leco.data.images import opened
from leco.data.manifest.table import read_cells
from leco.errors import LecoError
from leco.io import read_json
from leco.ontology.inference import CoLabels
from leco.ontology.schema import name_problem
from leco.ontology.version import NO_LABEL

_SUFFIXES = {".png", ".tif", ".tiff", ".bmp"}  # lossless ones
_FORMATS = ("PNG", "TIFF", "BMP")
_ONE_CHANNEL = {"1", "L", "P", "I", "I;16", "I;16L", "I;16B"}
_LARGEST_VALUE = 65_535  # of a 16-bit mask
_LARGEST_LIST = 10_000_000  # bytes of a class list in JSON
_NO_CLASS = -2
MOST_IN_BYTES = 255  # classes; the value 255 means no label

Mask = NDArray[np.integer[Any]]


def read_mask(path: Path) -> Mask:
    """Read the pixel values of a mask, (height, width)."""
    with opened(path, _FORMATS, _unfit) as image:
        pixels = np.asarray(image)
        return pixels.astype(np.uint8) if pixels.dtype == bool else pixels


def _unfit(image: Any) -> str:
    """Return why an image cannot be a mask, or ""."""
    tags = getattr(image, "tag_v2", {})
    bits = {"L;2": 2, "L;4": 4}.get(str(image.tile[0].args) if image.tile else "") or max(tags.get(258, (8,)))
    found = ""
    if image.mode not in _ONE_CHANNEL:
        found = f"a {image.mode} image"
    elif getattr(image, "n_frames", 1) > 1:
        found = "several images"
    # Pillow would stretch grey values of 2 or 4 bits to 0..255, and invert the others, so that classes change.
    elif image.mode == "L" and bits != 8:
        found = f"a greyscale image of {bits} bits; save it with 8 bits"
    elif image.mode == "L" and tags.get(262) == 0:
        found = "a TIFF in which white is zero; save it as PNG"
    return f"is not a mask, which has one channel of class indices, but {found}" if found else ""


def void_value(mask: NDArray[Any]) -> int:
    """Return the pixel value that means no label: 255 of 8 bits, 65535 of 16."""
    return 255 if mask.dtype.itemsize == 1 else _LARGEST_VALUE


def mask_labels(mask: Mask) -> NDArray[np.int32]:
    """Return the class indices of the pixels of a checked mask, -1 where there is no label."""
    labels = mask.astype(np.int32)  # before -1 is put in: as a byte it would be 255 again
    labels[mask == void_value(mask)] = NO_LABEL
    return labels


def decode_mask(path: Path) -> NDArray[np.int32]:
    """Read a checked mask as class indices (height, width), -1 where there is no label."""
    return mask_labels(read_mask(path))


def encode_mask(labels: NDArray[Any], num_classes: int) -> NDArray[Any]:
    """Return the mask of class indices, -1 for no label: the inverse of `mask_labels`, in 8 bits if they suffice."""
    kind = np.uint8 if num_classes <= MOST_IN_BYTES else np.uint16
    return np.where(labels == NO_LABEL, np.iinfo(kind).max, labels).astype(kind)


@dataclass(frozen=True)
class MaskClasses:
    """A list of the classes that pixel values mean; values of ignored classes are valid and skipped."""

    names: dict[int, str]
    ignored: frozenset[str] = frozenset()

    @property
    def classes(self) -> tuple[str, ...]:
        """Names of the classes in the order of their values, without the ignored ones."""
        return tuple(dict.fromkeys(n for _, n in sorted(self.names.items()) if n not in self.ignored))

    @classmethod
    def load(cls, path: Path, ignored: Iterable[str] = ()) -> "MaskClasses":
        """Read a class list: a table with the columns `id` and `name`, or JSON as of Mapillary and Cityscapes.

        Labels in `ignored` that are not on the list have no effect.
        """
        names: dict[int, str] = {}
        for place, value, name in _json_records(path) if path.suffix.lower() == ".json" else _table_records(path):
            if not re.fullmatch(r"-?[0-9]{1,9}", value):
                raise LecoError(f"{path}: {place}: id {reprlib.repr(value)} is not an integer")
            if int(value) < 0:
                continue  # Cityscapes' licence plate: never in a mask
            if int(value) > _LARGEST_VALUE:
                raise LecoError(f"{path}: {place}: id {value} is above {_LARGEST_VALUE}, the largest pixel value")
            if int(value) in names:
                raise LecoError(f"{path}: {place}: duplicate id {value}")
            if problem := name_problem(name):
                raise LecoError(f"{path}: {place}: a class name {problem}")
            names[int(value)] = name
        if not names:
            raise LecoError(f"{path}: lists no classes")
        return cls(names, frozenset(ignored) & frozenset(names.values()))

    def read(self, path: Path) -> NDArray[np.int32]:
        """Read a mask as indices into `classes`, -1 where it is ignored."""
        mask = _values(path)
        labels = self.indices[mask]
        if (labels == _NO_CLASS).any():
            self.index(int(mask[labels == _NO_CLASS][0]), path)
        return labels

    def index(self, value: int, path: Path) -> int:
        """Return the index of the class of a pixel value of a mask, -1 if it is ignored."""
        found = int(self.indices[value])
        if found == _NO_CLASS:
            row, column = (int(place[0]) for place in np.nonzero(_values(path) == value))
            close = min(self.names, key=lambda known: abs(known - value))
            raise LecoError(
                f"{path}: pixel (row {row}, column {column}) has the value {value}, which is not a class; "
                f"the nearest is {close} ({self.names[close]})"
            )
        return found

    @cached_property
    def indices(self) -> NDArray[np.int32]:
        """Index of the class of every pixel value; -1 for ignored classes, -2 for values that are no class."""
        table = np.full(_LARGEST_VALUE + 1, _NO_CLASS, dtype=np.int32)
        position = {name: index for index, name in enumerate(self.classes)}
        for value, name in self.names.items():
            table[value] = position.get(name, NO_LABEL)
        return table


def _table_records(path: Path) -> Iterator[tuple[str, str, str]]:
    for row, (value, name) in read_cells(path, "id", "name"):
        yield f"row {row}", value, name


def _json_records(path: Path) -> Iterator[tuple[str, str, str]]:
    content = read_json(path, _LARGEST_LIST)
    labels = content.get("labels") if isinstance(content, dict) else content
    if not isinstance(labels, list):
        raise LecoError(f"{path}: has no list `labels` of classes with a `name`")
    for number, item in enumerate(labels):
        if not isinstance(item, dict) or not isinstance(item.get("name"), str):
            raise LecoError(f"{path}: labels[{number}] has no `name` that is text")
        yield f"labels[{number}]", str(item.get("id", number)), item["name"]


def _values(path: Path) -> Mask:
    mask = read_mask(path)
    if mask.dtype.kind != "u" and mask.size and not 0 <= mask.min() <= mask.max() <= _LARGEST_VALUE:
        raise LecoError(f"{path}: pixel values must be 0 to {_LARGEST_VALUE}, not {mask.min()} to {mask.max()}")
    return mask


def pair_masks(old: Path, new: Path) -> tuple[list[tuple[Path, Path]], list[Path]]:
    """Match the masks below two folders by their paths without suffix; return also those without a partner."""
    olds, news = _masks_below(old), _masks_below(new)
    pairs = [(olds[stem], news[stem]) for stem in olds if stem in news]
    if not pairs:
        examples = f"{next(iter(news))}, {next(iter(olds))}, …"
        raise LecoError(f"no mask of {new} has the name of one in {old}: {examples}")
    alone = [path for stem, path in (*olds.items(), *news.items()) if not (stem in olds and stem in news)]
    return pairs, alone


def _masks_below(folder: Path) -> dict[str, Path]:
    if not folder.is_dir():
        raise LecoError(f"{folder}: no such folder")
    files: dict[str, Path] = {}
    for file in sorted(folder.rglob("*")):
        if file.suffix.lower() in _SUFFIXES:
            stem = file.relative_to(folder).with_suffix("").as_posix()
            if stem in files:
                raise LecoError(f"{file}: has the same name as {files[stem].name}; remove one of them")
            files[stem] = file
    if not files:
        raise LecoError(f"{folder}: has no masks ({', '.join(sorted(_SUFFIXES))})")
    return files


def count_masks(
    pairs: Iterable[tuple[Path, Path]],
    old_classes: MaskClasses | None = None,
    new_classes: MaskClasses | None = None,
    tick: Callable[[int], object] = lambda done: None,
) -> CoLabels:
    """Count the pixels that have each pair of classes, some pairs of masks at a time.

    Without a class list, every value that occurs is a class named by its number. `tick` is called with the number
    of pairs done.
    """
    pixels: Counter[tuple[int, int]] = Counter()
    images: Counter[int] = Counter()
    for number, counted in enumerate(read_ahead(partial(_count_pair, old_classes, new_classes), pairs), start=1):
        pixels.update(counted)
        images.update({new for _, new in counted})
        tick(number)
    if not pixels:
        raise LecoError("no pixel is labelled in both versions")
    old_names, old_index = _names(old_classes, {pair[0] for pair in pixels})
    new_names, new_index = _names(new_classes, {pair[1] for pair in pixels})
    cells = [new_index[n] for _, n in pixels], [old_index[o] for o, _ in pixels]
    counts = sparse.csr_array((list(pixels.values()), cells), shape=(len(new_names), len(old_names)))
    seen_in = np.zeros(len(new_names), dtype=np.int64)
    for value, count in images.items():
        seen_in[new_index[value]] = count
    ignored = [tuple(sorted(listed.ignored)) if listed else () for listed in (old_classes, new_classes)]
    return CoLabels(old_names, new_names, counts, seen_in, (ignored[0], ignored[1]))


def _count_pair(
    old_classes: MaskClasses | None, new_classes: MaskClasses | None, pair: tuple[Path, Path]
) -> Counter[tuple[int, int]]:
    """Count the pixels of two masks by their old and new class, or value."""
    masks = [_values(path) for path in pair]
    if masks[0].shape != masks[1].shape:
        sizes = f"is {_size(masks[1])}, but {pair[0]} is {_size(masks[0])}"
        raise LecoError(f"{pair[1]}: {sizes}; both must label the same pixels")
    found: Counter[tuple[int, int]] = Counter()
    for values, count in _count(*masks).items():
        old, new = (
            value if classes is None else classes.index(value, path)
            for value, classes, path in zip(values, (old_classes, new_classes), pair, strict=True)
        )
        if old != NO_LABEL and new != NO_LABEL:
            found[old, new] += count
    return found


def _count(old: Mask, new: Mask) -> dict[tuple[int, int], int]:
    """Count the pixels of each (old, new) pair of values."""
    if not old.size:
        return {}
    height, width = int(old.max()) + 1, int(new.max()) + 1
    if height * width < 10_000_000:  # sorting millions of pixels would take ten times as long
        codes = old.astype(np.int32)
        codes *= width
        codes += new
        table = torch.bincount(torch.from_numpy(codes.ravel()))
        return {divmod(code, width): int(table[code]) for code in table.nonzero().ravel().tolist()}
    present, counts = np.unique(old.astype(np.int64) * width + new, return_counts=True)
    return {divmod(int(code), width): int(count) for code, count in zip(present, counts, strict=True)}


def _names(classes: MaskClasses | None, values: set[int]) -> tuple[tuple[str, ...], dict[int, int]]:
    """Return the names of the classes, and the index of every value among them."""
    if classes is not None:
        return classes.classes, {index: index for index in range(len(classes.classes))}
    return tuple(str(value) for value in sorted(values)), {value: n for n, value in enumerate(sorted(values))}


def _size(mask: NDArray[Any]) -> str:
    return f"{mask.shape[1]}x{mask.shape[0]}"
