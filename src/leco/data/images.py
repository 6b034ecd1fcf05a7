"""Decode images to 8-bit RGB arrays and scale them to squares; refuse those without one right conversion."""

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from math import ceil
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image, UnidentifiedImageError
from torch import Tensor

from leco.data.ahead import quiet
from leco.errors import LecoError
from leco.ontology.version import NO_LABEL

SUFFIXES = (".png", ".jpg", ".jpeg", ".webp", ".bmp", ".gif", ".tif", ".tiff")
_FORMATS = ("PNG", "JPEG", "WEBP", "BMP", "GIF", "TIFF")
_EIGHT_BIT = {"1", "L", "LA", "La", "P", "PA", "RGB", "RGBA", "RGBa", "RGBX"}
# Pillow silently halves RGB of 16 bits per channel; only the raw mode, "RGB;16B", shows it. (BMP's "BGR;16" is 5-6-5.)
_SIXTEEN_BIT = re.compile(r"(RGB|RGBA|RGBX|RGBa|LA|L|I);16[BLNS]")
_REMEDY = "convert it to 8-bit RGB"
_ORIENTATION = 0x0112
_LONGEST_LINE = 4  # times its width
_TURNS = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}


def decode_image(path: Path, size: int | None = None) -> NDArray[np.uint8]:
    """Read an image as (height, width, 3), its shorter side scaled to `size` if given.

    EXIF orientation is applied; greyscale and palette images become RGB, and transparency is dropped. Refused are
    CMYK, more than 8 bits per channel and multiple frames, which have no one right conversion, and decompression bombs
    (Pillow's limit). A JPEG is decoded at the smallest of its own scales that is sufficient. Of a phone's
    multi-picture JPEG, the main picture is read. Of a line of pixels that would be a bomb once it is scaled, the middle
    is scaled.
    """
    with opened(path) as image:
        short, long = sorted(image.size)
        if size is not None and size < short:
            image.draft(None, (ceil(image.width * size / short), ceil(image.height * size / short)))
        upright, _ = _upright(image)
        if size is None:
            return np.array(upright)
        other = int(size * long / short)  # as torchvision rounds
        if _bomb(size, other):
            upright = _middle(upright)
            other = int(size * max(upright.size) / min(upright.size))
        target = (size, other) if upright.width <= upright.height else (other, size)
        return np.array(upright.resize(target, Image.Resampling.BILINEAR))


def _middle(image: Image.Image) -> Image.Image:
    """Cut the middle out of a long line of pixels."""
    width, height = image.size
    longest = _LONGEST_LINE * min(image.size)
    left, top = max(0, width - longest) // 2, max(0, height - longest) // 2
    return image.crop((left, top, min(left + longest, width), min(top + longest, height)))


def inspect_image(path: Path) -> tuple[int, int]:
    """Decode an image only for its errors; return the (height, width) that `decode_image` would give.

    A JPEG is decoded at an eighth of its size, which takes a third of the time and still reads every byte.
    """
    with opened(path) as image:
        width, height = image.size
        image.draft(None, (1, 1))
        _, swapped = _upright(image)
        return (width, height) if swapped else (height, width)


def middle_square(path: Path, side: int) -> Tensor:
    """Decode an image, scale its shorter side to `side` and crop the centre: (3, side, side) uint8.

    For classification, where the centre matters most.
    """
    pixels = decode_image(path, side)
    top, left = (pixels.shape[0] - side) // 2, (pixels.shape[1] - side) // 2
    return channels_first(pixels[top : top + side, left : left + side])


def letterbox(path: Path, side: int) -> Tensor:
    """Decode an image, scale its longer side to `side` and pad it: (3, side, side) uint8.

    For segmentation, where every pixel matters.
    """
    return letterboxed(decode_image(path), side)


def letterboxed(pixels: NDArray[np.uint8], side: int) -> Tensor:
    """Scale the longer side of a decoded image to `side` and pad it: (3, side, side) uint8."""
    small = scaled(pixels, side)
    square = np.zeros((side, side, 3), dtype=np.uint8)
    square[: small.shape[0], : small.shape[1]] = small
    return channels_first(square)


def scaled(pixels: NDArray[np.uint8], side: int) -> NDArray[np.uint8]:
    """Scale the longer side of a decoded image to `side`."""
    height, width = scaled_size(pixels.shape, side)
    return np.asarray(Image.fromarray(pixels).resize((width, height), Image.Resampling.BILINEAR))


def scaled_size(shape: Sequence[int], side: int) -> tuple[int, int]:
    """Return the height and width of an image whose longer side is scaled to `side`."""
    scale = side / max(shape[:2])
    return max(1, round(shape[0] * scale)), max(1, round(shape[1] * scale))


def letterbox_size(path: Path, side: int) -> Tensor:
    """Return the height and width of an image within its padded square: (2,)."""
    return torch.tensor(scaled_size(inspect_image(path), side))


def letterbox_mask(labels: NDArray[Any], side: int) -> Tensor:
    """Scale a label map like its image, by nearest neighbour; the padding is unlabelled: (side, side) int16."""
    height, width = scaled_size(labels.shape, side)
    rows = ((np.arange(height) + 0.5) * labels.shape[0] / height).astype(int)
    columns = ((np.arange(width) + 0.5) * labels.shape[1] / width).astype(int)
    square = np.full((side, side), NO_LABEL, dtype=np.int16)
    square[:height, :width] = labels[rows][:, columns]
    return torch.from_numpy(square)


def channels_first(pixels: NDArray[np.uint8]) -> Tensor:
    """(h, w, 3) -> (3, h, w)."""
    return torch.from_numpy(np.ascontiguousarray(pixels.transpose(2, 0, 1)))


class _RefusedError(Exception):
    """The image could be decoded, but not in one right way."""


def _unfit(image: Image.Image) -> str:
    """Return why an image cannot be converted to 8-bit RGB, or ""."""
    if problem := _bomb(*image.size):
        return problem
    frames = getattr(image, "n_frames", 1)
    if frames > 1 and image.format != "MPO":  # a JPEG with multiple pictures is a photo and its preview or depth map
        return f"has {frames} frames; save the right one as a single image"
    if image.mode == "CMYK":
        return f"is CMYK, whose colours depend on a printer; {_REMEDY}"
    deep_tiff = max(getattr(image, "tag_v2", {}).get(258, (8,))) > 8  # also if each colour is a plane of its own
    if image.mode not in _EIGHT_BIT or deep_tiff or _SIXTEEN_BIT.search(str(getattr(image, "tile", ""))):
        deep = "more than 8 bits per channel" if image.mode in _EIGHT_BIT else f"the pixel format {image.mode}"
        return f"has {'16-bit pixels' if image.mode.startswith('I') else deep}; {_REMEDY}"
    return ""


def _bomb(width: int, height: int) -> str:
    """A few kilobytes may unpack to gigabytes; so may a line of pixels whose short side is scaled up."""
    if Image.MAX_IMAGE_PIXELS and width * height > Image.MAX_IMAGE_PIXELS:
        pixels = f"{width}x{height} pixels, more than {Image.MAX_IMAGE_PIXELS:,}"
        return f"is too large to be decoded safely: {pixels}; scale it down or crop it"
    return ""


@contextmanager
def opened(
    path: Path, formats: tuple[str, ...] = _FORMATS, unfit: Callable[[Image.Image], str] = _unfit
) -> Iterator[Image.Image]:
    """Open an image that is not `unfit`; any error until it is closed becomes a `LecoError`."""
    try:
        with quiet(), Image.open(path, formats=formats) as image:
            if problem := unfit(image):
                raise _RefusedError(problem)
            yield image
    except _RefusedError as error:
        raise LecoError(f"{path}: {error}") from None
    except Image.DecompressionBombError as error:
        raise LecoError(f"{path}: is too large to be decoded safely: {error}") from None
    except UnidentifiedImageError:
        what = "not an image" if path.stat().st_size else "empty (0 bytes), not an image"
        raise LecoError(f"{path}: is {what} ({', '.join(formats)})") from None
    except Exception as error:  # a broken file can make the decoder raise almost anything
        raise LecoError(f"{path}: cannot be decoded: {error}") from None


def _upright(image: Image.Image) -> tuple[Image.Image, bool]:
    """Decode to RGB and apply the EXIF orientation; return also whether that swaps height and width."""
    image.load()  # which turns a TIFF already
    orientation = _orientation(image)
    # Via RGBA, as Pillow warns if a palette with transparent entries becomes RGB directly.
    through = image.convert("RGBA") if image.mode == "P" and "transparency" in image.info else image
    rgb = through.convert("RGB")
    return (rgb.transpose(_TURNS[orientation]) if orientation in _TURNS else rgb), orientation >= 5


def _orientation(image: Image.Image) -> int:
    try:
        orientation = int(image.getexif().get(_ORIENTATION, 1))
        return orientation if 1 <= orientation <= 8 else 1
    except Exception:  # the picture is fine even if its metadata is not
        return 1
