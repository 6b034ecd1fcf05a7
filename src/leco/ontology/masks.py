"""Label maps: images whose pixel values are classes."""

import csv
import io
import re
import reprlib
import warnings
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from leco.errors import LecoError, nearest
from leco.io import read_json, read_text
from leco.ontology.inference import CoLabels
from leco.ontology.schema import name_problem

_SUFFIXES = {".png", ".tif", ".tiff", ".bmp"}  # lossless ones
_FORMATS = ("PNG", "TIFF", "BMP")
_ONE_CHANNEL = {"1", "L", "P", "I", "I;16", "I;16L", "I;16B"}
_LARGEST_VALUE = 65_535
_LARGEST_LIST = 10_000_000  # bytes of a class list

Mask = NDArray[np.integer[Any]]


@dataclass(frozen=True)
class MaskClasses:
    """Which pixel value is which class; values of ignored classes are valid and skipped."""

    names: dict[int, str]
    ignored: frozenset[str] = frozenset()

    @property
    def classes(self) -> tuple[str, ...]:
        """Names of the classes, in the order of their values, without the ignored ones."""
        return tuple(dict.fromkeys(n for _, n in sorted(self.names.items()) if n not in self.ignored))

    @cached_property
    def codes(self) -> NDArray[np.int64]:
        """Class index of every pixel value: -1 if ignored, -2 if it is no class."""
        table = np.full(_LARGEST_VALUE + 1, -2, dtype=np.int64)
        position = {name: index for index, name in enumerate(self.classes)}
        for value, name in self.names.items():
            table[value] = position.get(name, -1)
        return table

    @classmethod
    def load(cls, path: Path, ignored: Iterable[str] = ()) -> "MaskClasses":
        """Read a class list: CSV with the columns `id` and `name`, or JSON as Mapillary and Cityscapes write it.

        Those of the `ignored` labels that are on the list are ignored.
        """
        records = _json_records(path) if path.suffix.lower() == ".json" else _csv_records(path)
        names: dict[int, str] = {}
        for place, value, name in records:
            if not re.fullmatch(r"-?[0-9]{1,9}", value):
                raise LecoError(f"{path}: {place}: the id {reprlib.repr(value)} is not a whole number")
            if int(value) < 0:
                continue  # Cityscapes' licence plate: never in a mask
            if int(value) > _LARGEST_VALUE:
                raise LecoError(f"{path}: {place}: the id {value} is above {_LARGEST_VALUE}, the largest pixel value")
            if int(value) in names:
                raise LecoError(f"{path}: {place}: the id {value} stands there twice")
            if problem := name_problem(name):
                raise LecoError(f"{path}: {place}: a class name {problem}")
            names[int(value)] = name
        if not names:
            raise LecoError(f"{path}: holds no classes")
        return cls(names, frozenset(ignored) & frozenset(names.values()))


def _csv_records(path: Path) -> list[tuple[str, str, str]]:
    try:
        rows = list(csv.reader(io.StringIO(read_text(path, _LARGEST_LIST), newline=""), strict=True))
    except csv.Error as error:
        raise LecoError(f"{path}: is not CSV: {error}") from None
    header = rows[0] if rows else []
    for column in ("id", "name"):
        if column not in header:
            raise LecoError(f"{path}: has no column {column!r}{nearest(column, header)}")
    places = header.index("id"), header.index("name")
    cells = [[*row, *[""] * len(header)] for row in rows[1:] if row]
    return [(f"row {n}", row[places[0]].strip(), row[places[1]].strip()) for n, row in enumerate(cells, start=2)]


def _json_records(path: Path) -> list[tuple[str, str, str]]:
    content = read_json(path, _LARGEST_LIST)
    labels = content.get("labels") if isinstance(content, dict) else content
    if not isinstance(labels, list):
        raise LecoError(f"{path}: holds no list `labels` of classes with a `name`")
    records = []
    for number, item in enumerate(labels):
        if not isinstance(item, dict) or not isinstance(item.get("name"), str):
            raise LecoError(f"{path}: labels[{number}] has no `name` that is text")
        records.append((f"labels[{number}]", str(item.get("id", number)), item["name"]))
    return records


def read_mask(path: Path) -> Mask:
    """Read a one-channel label map."""
    from PIL import Image

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", Image.DecompressionBombWarning)  # beyond twice that size it is an error
            with Image.open(path, formats=_FORMATS) as image:
                problem = _unfit(image)
                if problem:
                    raise LecoError(f"{path}: a label map has one channel of class ids; this is {problem}")
                pixels = np.asarray(image)
                return pixels.astype(np.uint8) if pixels.dtype == bool else pixels
    except LecoError:
        raise
    except Exception as error:  # a broken file can make the decoder raise almost anything
        raise LecoError(f"{path}: cannot be read as a label map: {error}") from None


def _unfit(image: Any) -> str:
    if image.mode not in _ONE_CHANNEL:
        return f"a {image.mode} image"
    if getattr(image, "n_frames", 1) > 1:
        return "several images"
    # Grey values of 2 or 4 bits would be stretched to 0..255, and so would be other classes; so would inverted ones.
    tags = getattr(image, "tag_v2", {})
    bits = {"L;2": 2, "L;4": 4}.get(str(image.tile[0].args) if image.tile else "") or max(tags.get(258, (8,)))
    if image.mode == "L" and bits != 8:
        return f"a grey image of {bits} bits; save it with 8 bits"
    if image.mode == "L" and tags.get(262) == 0:
        return "a TIFF whose white is zero; save it as PNG"
    return ""


def pair_masks(old: Path, new: Path) -> tuple[list[tuple[Path, Path]], list[Path]]:
    """Match the masks of two folders, and of the folders below them, by their names; return those left over, too."""
    found = []
    for folder in (old, new):
        if not folder.is_dir():
            raise LecoError(f"{folder}: there is no such folder")
        files: dict[str, Path] = {}
        for file in sorted(folder.rglob("*")):
            if file.suffix.lower() in _SUFFIXES:
                stem = file.relative_to(folder).with_suffix("").as_posix()
                if stem in files:
                    raise LecoError(f"{file}: is there as {files[stem].name}, too; which one is meant?")
                files[stem] = file
        if not files:
            raise LecoError(f"{folder}: holds no label maps ({', '.join(sorted(_SUFFIXES))})")
        found.append(files)
    olds, news = found
    pairs = [(olds[stem], news[stem]) for stem in olds if stem in news]
    if not pairs:
        raise LecoError(
            f"no label map of {new} has the name of one in {old}: {next(iter(news))}, {next(iter(olds))}, …"
        )
    alone = [
        path for files, others in ((olds, news), (news, olds)) for stem, path in files.items() if stem not in others
    ]
    return pairs, alone


def count_masks(
    pairs: Iterable[tuple[Path, Path]],
    old_classes: MaskClasses | None = None,
    new_classes: MaskClasses | None = None,
    tick: Callable[[], object] = lambda: None,
) -> CoLabels:
    """Count the pixels that carry each pair of classes, one pair of masks at a time.

    Without a list of classes, every value that occurs is a class named by its number. `tick` is called after each pair.
    """
    pixels: dict[tuple[int, int], int] = {}
    images: dict[int, int] = {}
    for old_path, new_path in pairs:
        old, new = encode_mask(old_path, old_classes), encode_mask(new_path, new_classes)
        if old.shape != new.shape:
            raise LecoError(
                f"{new_path}: is {_size(new)}, but {old_path} is {_size(old)}; they must be the same pixels"
            )
        both = (old >= 0) & (new >= 0)
        counted = _count(old[both], new[both])
        for pair, count in counted.items():
            pixels[pair] = pixels.get(pair, 0) + count
        for value in {pair[1] for pair in counted}:
            images[value] = images.get(value, 0) + 1
        tick()
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


def _count(old: NDArray[np.int64], new: NDArray[np.int64]) -> dict[tuple[int, int], int]:
    """How many pixels carry each (old, new) pair of values."""
    if not old.size:
        return {}
    width = int(new.max()) + 1
    codes = old * width + new
    if (int(old.max()) + 1) * width < 10_000_000:  # sorting millions of pixels would take ten times as long
        counts = np.bincount(codes)
        present = np.flatnonzero(counts)
        return {divmod(int(code), width): int(counts[code]) for code in present}
    present, counts = np.unique(codes, return_counts=True)
    return {divmod(int(code), width): int(count) for code, count in zip(present, counts, strict=True)}


def _names(classes: MaskClasses | None, values: set[int]) -> tuple[tuple[str, ...], dict[int, int]]:
    if classes is not None:
        return classes.classes, {index: index for index in range(len(classes.classes))}
    return tuple(str(value) for value in sorted(values)), {value: n for n, value in enumerate(sorted(values))}


def encode_mask(path: Path, classes: MaskClasses | None) -> NDArray[np.int64]:
    """Read a label map as class indices, -1 where it is ignored; as its values, where there is no class list."""
    mask = read_mask(path).astype(np.int64)
    if mask.size and not 0 <= mask.min() <= mask.max() <= _LARGEST_VALUE:
        raise LecoError(f"{path}: pixel values must be 0 to {_LARGEST_VALUE}, not {mask.min()} to {mask.max()}")
    if classes is None:
        return mask
    encoded = classes.codes[mask]
    if (encoded == -2).any():
        wrong = int(mask[encoded == -2][0])
        row, column = (int(i[0]) for i in np.nonzero(encoded == -2))
        close = min(classes.names, key=lambda value: abs(value - wrong))
        raise LecoError(
            f"{path}: pixel (row {row}, column {column}) has the value {wrong}, which is no class; "
            f"the nearest is {close} ({classes.names[close]})"
        )
    return encoded


def _size(mask: NDArray[Any]) -> str:
    return f"{mask.shape[1]}x{mask.shape[0]}"
