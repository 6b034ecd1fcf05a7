"""Images as people have them, turned into 8-bit RGB arrays, or refused with what to do about it."""

import re
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from math import ceil
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor

from leco.errors import LecoError
from leco.ontology.version import NO_LABEL

SUFFIXES = (".png", ".jpg", ".jpeg", ".webp", ".bmp", ".gif", ".tif", ".tiff")
_FORMATS = ("PNG", "JPEG", "WEBP", "BMP", "GIF", "TIFF")
_EIGHT_BIT = {"1", "L", "LA", "La", "P", "PA", "RGB", "RGBA", "RGBa", "RGBX"}
# Pillow quietly halves RGB of 16 bits per channel; only the raw mode, "RGB;16B", tells. (BMP's "BGR;16" is 5-6-5.)
_SIXTEEN_BIT = re.compile(r"(RGB|RGBA|RGBX|RGBa|LA|L|I);16[BLNS]")
_REMEDY = "convert it to 8-bit RGB"
_ORIENTATION = 0x0112


def decode_image(path: Path, size: int | None = None) -> NDArray[np.uint8]:
    """Read an image as (height, width, 3), its shorter side resized to `size` if given.

    EXIF orientation is honoured, as every viewer does; greyscale and palette images become RGB and transparency is
    dropped. CMYK, more than 8 bits per channel and several frames have no one right conversion and are refused; so are
    decompression bombs (Pillow's limit). A JPEG is decoded at the smallest of its own scales that is large enough.
    Of a phone's multi-picture JPEG, the main picture counts.
    """
    from PIL import Image

    with _opened(path) as image:
        short, long = sorted(image.size)
        if size is not None and size < short:
            image.draft(None, (ceil(image.width * size / short), ceil(image.height * size / short)))
        upright, _ = _upright(image)
        if size is None:
            return np.array(upright)
        other = int(size * long / short)  # as torchvision rounds
        _refuse_bomb(size, other)
        target = (size, other) if upright.width <= upright.height else (other, size)
        return np.array(upright.resize(target, Image.Resampling.BILINEAR))


def inspect_image(path: Path) -> tuple[int, int]:
    """Decode an image for the sake of its errors; return (height, width) as `decode_image` would give it.

    At an eighth of its size a JPEG takes a third of the time, and every byte of it is read all the same.
    """
    with _opened(path) as image:
        width, height = image.size
        image.draft(None, (1, 1))
        _, turned = _upright(image)
        return (width, height) if turned else (height, width)


@contextmanager
def _opened(path: Path) -> Iterator["Image.Image"]:
    """Open an image that can be decoded to 8-bit RGB; whatever goes wrong until it is closed becomes a LecoError.

    Many threads at once need a `warnings.catch_warnings` around them all, since Python restores filters per process.
    """
    from PIL import Image, UnidentifiedImageError

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of odd EXIF data and the like; what matters is raised
            with Image.open(path, formats=_FORMATS) as image:
                _refuse(image)
                yield image
    except (Image.DecompressionBombError, _RefusedError) as error:
        problem = str(error) if isinstance(error, _RefusedError) else f"is too large to be decoded safely: {error}"
        raise LecoError(f"{path}: {problem}") from None
    except UnidentifiedImageError:
        what = "is not an image" if path.stat().st_size else "is empty (0 bytes), not an image"
        raise LecoError(f"{path}: {what} ({', '.join(_FORMATS)})") from None
    except Exception as error:  # a broken file can make the decoder raise almost anything
        raise LecoError(f"{path}: cannot be decoded: {error}") from None


class _RefusedError(Exception):
    """An image that could be decoded, but not in one right way."""


def _refuse(image: "Image.Image") -> None:
    _refuse_bomb(*image.size)
    # A JPEG with several pictures (MPO) is a photo and its preview or depth map.
    if getattr(image, "n_frames", 1) > 1 and image.format != "MPO":
        frames = getattr(image, "n_frames", 1)
        raise _RefusedError(f"holds {frames} frames; save the one that is meant as an image of its own")
    if image.mode == "CMYK":
        raise _RefusedError(f"is CMYK, whose colours depend on a printer; {_REMEDY}")
    deep_tiff = max(getattr(image, "tag_v2", {}).get(258, (8,))) > 8  # also where each colour is a plane of its own
    if image.mode not in _EIGHT_BIT or deep_tiff or _SIXTEEN_BIT.search(str(getattr(image, "tile", ""))):
        deep = "more than 8 bits per channel" if image.mode in _EIGHT_BIT else f"the pixel format {image.mode}"
        raise _RefusedError(f"has {'16-bit pixels' if image.mode.startswith('I') else deep}; {_REMEDY}")


def _refuse_bomb(width: int, height: int) -> None:
    """A few kilobytes may unpack to gigabytes; so may a line of pixels whose short side is made larger."""
    from PIL import Image

    if Image.MAX_IMAGE_PIXELS and width * height > Image.MAX_IMAGE_PIXELS:
        pixels = f"{width}x{height} pixels, more than {Image.MAX_IMAGE_PIXELS:,}"
        raise _RefusedError(f"is too large to be decoded safely: {pixels}; make it smaller, or crop it")


def _upright(image: "Image.Image") -> tuple["Image.Image", bool]:
    """Decode to RGB and turn as EXIF says; say whether height and width changed places."""
    from PIL import Image

    image.load()  # which turns a TIFF already
    turn = Image.Transpose
    turns = {
        2: turn.FLIP_LEFT_RIGHT,
        3: turn.ROTATE_180,
        4: turn.FLIP_TOP_BOTTOM,
        5: turn.TRANSPOSE,
        6: turn.ROTATE_270,
        7: turn.TRANSVERSE,
        8: turn.ROTATE_90,
    }
    orientation = _orientation(image)
    # By way of RGBA, as Pillow does not like palettes with transparent entries to become RGB directly.
    through = image.convert("RGBA") if image.mode == "P" and "transparency" in image.info else image
    rgb = through.convert("RGB")
    return (rgb.transpose(turns[orientation]) if orientation in turns else rgb), orientation >= 5


def _orientation(image: "Image.Image") -> int:
    try:
        orientation = int(image.getexif().get(_ORIENTATION, 1))
        return orientation if 1 <= orientation <= 8 else 1
    except Exception:  # the picture is fine even where the notes on it are not
        return 1


def middle_square(path: Path, side: int) -> Tensor:
    """Decode an image, its shorter edge scaled to `side`, and take the middle: (3, side, side) uint8.

    For classification, where what is in the middle counts.
    """
    pixels = decode_image(path, side)
    top, left = (pixels.shape[0] - side) // 2, (pixels.shape[1] - side) // 2
    return channels_first(pixels[top : top + side, left : left + side])


def letterbox(path: Path, side: int) -> Tensor:
    """Decode an image, its longer edge scaled to `side`, and pad it: (3, side, side) uint8.

    For segmentation, where every pixel counts.
    """
    pixels = scaled(decode_image(path), side)
    square = np.zeros((side, side, 3), dtype=np.uint8)
    square[: pixels.shape[0], : pixels.shape[1]] = pixels
    return channels_first(square)


def scaled(pixels: NDArray[np.uint8], side: int) -> NDArray[np.uint8]:
    """An image whose longer edge has `side` pixels."""
    height, width = _fit(pixels.shape, side)
    return np.asarray(Image.fromarray(pixels).resize((width, height), Image.Resampling.BILINEAR))


def letterbox_size(path: Path, side: int) -> Tensor:
    """Height and width that an image has within its padded square: (2,)."""
    return torch.tensor(_fit(inspect_image(path), side))


def letterbox_mask(labels: NDArray[Any], side: int) -> Tensor:
    """Scale a label map like its image, taking the nearest pixel; the padding has no label: (side, side) int16."""
    height, width = _fit(labels.shape, side)
    rows = ((np.arange(height) + 0.5) * labels.shape[0] / height).astype(int)
    columns = ((np.arange(width) + 0.5) * labels.shape[1] / width).astype(int)
    square = np.full((side, side), NO_LABEL, dtype=np.int16)
    square[:height, :width] = labels[rows][:, columns]
    return torch.from_numpy(square)


def _fit(shape: tuple[int, ...], side: int) -> tuple[int, int]:
    scale = side / max(shape[:2])
    return max(1, round(shape[0] * scale)), max(1, round(shape[1] * scale))


def channels_first(pixels: NDArray[np.uint8]) -> Tensor:
    """(h, w, 3) -> (3, h, w)."""
    return torch.from_numpy(np.ascontiguousarray(pixels.transpose(2, 0, 1)))
