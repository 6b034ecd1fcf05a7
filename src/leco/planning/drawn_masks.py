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

from leco.data.image_files import inspect_image
from leco.data.mask_files import encode_mask
from leco.data.problems import Fault
from leco.data.sources.brush import decode_brush
from leco.data.sources.source import short
from leco.errors import LecoError, nearest
from leco.ontology.files import write_bytes
from leco.ontology.masks import read_mask
from leco.ontology.version import NO_LABEL, Version
from leco.planning.mask_answers import BAD_MASK

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
