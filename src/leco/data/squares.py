"""Images and label maps of any shape as squares of one size, so that they can be stacked into batches."""

from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor

from leco.data.image_files import decode_image, inspect_image
from leco.ontology.version import NO_LABEL


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
