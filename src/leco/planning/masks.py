"""Masks that were drawn in Label Studio: one file for all regions of an annotation.

A file is named after what it shows. So the same export gives the same files again, annotators who drew the same have
the same mask, and no other file is ever written over.
"""

import hashlib
import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from leco.data.images import inspect_image
from leco.data.importers.brush import decode_brush
from leco.data.importers.importer import short
from leco.data.manifest.checks import look, normalise
from leco.data.manifest.decode import Picture, inspect_pictures
from leco.data.manifest.problems import Fault
from leco.data.masks import MaskRule, decode_mask, encode_mask
from leco.errors import LecoError, nearest
from leco.io import write_bytes
from leco.ontology.masks import read_mask
from leco.ontology.ontology import Ontology
from leco.ontology.version import NO_LABEL, Version

OVERLAP = "regions overlap"
Region = Mapping[str, Any]


def write_drawn(root: Path, image: str, folder: str, regions: Sequence[Region], newest: Version) -> str | Fault:
    """Draw the mask of an image below `folder` of the root; its path, or what is wrong with the regions."""
    mask = _draw(root / image, regions, newest)
    if isinstance(mask, Fault):
        return mask
    digest = hashlib.blake2b(mask.tobytes() + str(mask.shape).encode(), digest_size=8).hexdigest()
    path = f"{folder}/{image}.{digest}.png"
    return _write(root, path, mask) or path


def _draw(image: Path, regions: Sequence[Region], newest: Version) -> NDArray[Any] | Fault:
    """All regions in one mask; the largest value means no label."""
    try:
        height, width = inspect_image(image)
    except LecoError as error:
        return Fault(BAD_MASK, str(error))
    mask = np.full((height, width), NO_LABEL, dtype=np.int32)
    for number, region in enumerate(regions, start=1):
        index = _class(region, newest)
        if isinstance(index, Fault):
            return index._replace(message=f"region {number}: {index.message}")
        try:
            drawn = _pixels(region, width, height)
        except LecoError as error:
            return Fault(BAD_MASK, f"region {number}: {error}")
        others = mask[drawn & (mask != NO_LABEL) & (mask != index)]
        if len(others):
            message = f"{len(others):,} pixels are both {newest.handle(int(others[0]))!r} and {newest.handle(index)!r}"
            return Fault(OVERLAP, f"region {number}: {message}; erase them in one of the two")
        mask[drawn] = index
    if (mask == NO_LABEL).all():
        return Fault(BAD_MASK, "no pixel is drawn")
    return encode_mask(mask, len(newest))


def _class(region: Region, newest: Version) -> int | Fault:
    names = region.get("brushlabels")
    if not isinstance(names, list) or len(names) != 1 or not isinstance(names[0], str):
        return Fault(BAD_MASK, f"has the brush labels {short(names)}; it must have one, and be drawn with a brush")
    return class_called(names[0], newest)


def class_called(name: str, newest: Version) -> int | Fault:
    """The class that an annotator named."""
    try:
        index = newest.index(name)
    except LecoError as error:
        return Fault("unknown class", str(error))
    if index < 0:
        near = nearest(name, newest.handles)
        return Fault("unknown class", f"{name!r} is ignored in {newest.name}, and says nothing{near}")
    return index


def _pixels(region: Region, width: int, height: int) -> NDArray[np.bool_]:
    stream = region.get("rle")
    if region.get("format") != "rle" or not isinstance(stream, list):
        raise LecoError(f"has the format {short(region.get('format'))}; only 'rle', a list of bytes, is read")
    size = region.get("original_width"), region.get("original_height")
    if size != (width, height):
        drawn = " x ".join(short(side) for side in size)
        raise LecoError(f"was drawn on {drawn} pixels, but the image is {width}x{height}")
    return decode_brush(stream, width, height)


def _write(root: Path, path: str, mask: NDArray[Any]) -> Fault | None:
    """Write a mask, unless it is there; what is there otherwise stays."""
    from PIL import Image

    target = root / path
    try:
        if not target.resolve().is_relative_to(root.resolve()):
            return Fault(BAD_MASK, f"{path}: a link there leaves the root folder; remove it, or rename the answers")
        if target.exists():
            there = read_mask(target)
            same = there.shape == mask.shape and bool((there == mask).all())
            return None if same else Fault(BAD_MASK, f"{path}: is another mask already; rename the answers")
        target.parent.mkdir(parents=True, exist_ok=True)
    except LecoError as error:
        return Fault(BAD_MASK, str(error))
    except RuntimeError:  # what Python makes of links that lead in a circle
        return Fault(BAD_MASK, f"{path}: its links lead in a circle")
    except OSError as error:
        raise LecoError(f"{target}: cannot be written: {error.strerror}") from None
    content = io.BytesIO()
    Image.fromarray(mask).save(content, "png")
    write_bytes(target, content.getvalue())
    return None


OUTSIDE = "outside the old class"
BAD_MASK = "bad mask"
MOST_OUTSIDE = 0.1  # of the pixels that both masks label: edges are never drawn twice alike


def mask_problems(
    answers: Sequence[tuple[str, str]], known: Mapping[str, Mapping[str, str]], ontology: Ontology, root: Path
) -> list[Fault | None]:
    """What stands against the mask of each image; `known` are the masks that it has, by version."""
    newest = ontology.newest.name
    found: list[Fault | None] = []
    pictures = []
    for image, mask in answers:
        clean = normalise(mask)
        wrong = clean if isinstance(clean, Fault) else look(root, [clean])[1].get(clean)
        found.append(None if wrong is None else Fault(BAD_MASK, f"{mask}: {wrong.message}{wrong.remedy()}"))
        pictures.append(Picture(image, () if isinstance(clean, Fault) or wrong else ((clean, newest),)))
    rules = {newest: MaskRule.of(ontology, newest)}
    for number, file, _, fault in inspect_pictures(root, pictures, rules, lambda done, total: None):
        found[number] = found[number] or Fault(BAD_MASK, f"{file}: {fault.message}{fault.remedy()}")
    fits = {version.name: _fits(ontology, version.name) for version in ontology.versions[:-1]}
    for number, picture in enumerate(pictures):
        if found[number] is None:
            path = picture.masks[0][0]
            found[number] = _against(root, path, known.get(picture.image or "", {}), newest, fits)
    return found


def _fits(ontology: Ontology, version: str) -> NDArray[np.bool_]:
    """(old, new) whether a newest class may have had this label."""
    table = ontology.transition(ontology.newest.name, version).sparse.toarray().T > 0
    fits: NDArray[np.bool_] = table | ontology.ended(version)[0][:, None]
    return fits


def _against(
    root: Path, path: str, masks: Mapping[str, str], newest: str, fits: Mapping[str, NDArray[np.bool_]]
) -> Fault | None:
    if newest in masks and normalise(masks[newest]) == path:
        return None
    drawn = decode_mask(root / path)
    if newest in masks:  # a later export of the same drawing is another file
        same = _shows(root / masks[newest], drawn)
        return None if same else Fault("labelled otherwise", f"{path}, but the manifest has {masks[newest]} ({newest})")
    for version, mask in masks.items():
        try:
            old = decode_mask(root / mask)
        except LecoError as error:
            return Fault(BAD_MASK, f"the mask of {version} cannot be compared: {error}")
        if old.shape != drawn.shape or old.max(initial=-1) >= len(fits[version]):
            return Fault(BAD_MASK, f"the mask of {version}, {mask}, has another size, or a value that is no class")
        both = (old >= 0) & (drawn >= 0)
        outside = float((~fits[version][old[both], drawn[both]]).mean()) if both.any() else 0.0
        if outside > MOST_OUTSIDE:
            return Fault(OUTSIDE, f"{outside:.0%} of its pixels are no class that {mask} ({version}) can be")
    return None


def _shows(path: Path, mask: NDArray[np.int32]) -> bool:
    try:
        return np.array_equal(decode_mask(path), mask)
    except LecoError:
        return False
