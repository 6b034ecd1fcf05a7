"""Copies of large images and label maps, at the size that is trained at, of which any rows can be read alone.

A copy is a ZIP archive of bands of rows: JPEG for images, with colours at full resolution, and PNG for label maps.
"""

import io
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from zipfile import BadZipFile, ZipFile, ZipInfo

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from leco.data.masks import encode_mask, mask_labels
from leco.data.samples import Box
from leco.errors import LecoError, first_line
from leco.io import write_bytes
from leco.ontology.version import NO_LABEL

_BAND = 128  # rows
_QUALITY = 95


def write_copy(path: Path, pixels: Tensor) -> None:
    """Write an image (3, h, w) uint8, or a label map (h, w)."""
    height, width = pixels.shape[-2:]
    values = pixels.permute(1, 2, 0).numpy() if pixels.ndim == 3 else encode_mask(pixels.numpy(), int(pixels.max()) + 1)
    content = io.BytesIO()
    with ZipFile(content, "w") as archive:
        archive.comment = f"{height} {width}".encode()
        for top in range(0, height, _BAND):
            band, image = io.BytesIO(), Image.fromarray(np.ascontiguousarray(values[top : top + _BAND]))
            if pixels.ndim == 3:
                image.save(band, "JPEG", quality=_QUALITY, subsampling=0)
            else:
                image.save(band, "PNG", compress_level=1)
            archive.writestr(ZipInfo(str(top)), band.getvalue())  # without the time: equal copies are equal files
    write_bytes(path, content.getvalue())


def read_copy(path: Path, box: Box | None = None) -> Tensor:
    """Read what `write_copy` wrote, or a part of it."""
    with _opened(path) as (archive, height, width):
        top, bottom, left, right = box or (0, height, 0, width)
        first = top // _BAND * _BAND
        bands = [np.asarray(Image.open(io.BytesIO(archive.read(str(row))))) for row in range(first, bottom, _BAND)]
    values = np.concatenate(bands)[top - first : bottom - first, left:right]
    if values.ndim == 3:
        return torch.from_numpy(np.ascontiguousarray(values.transpose(2, 0, 1)))
    return torch.from_numpy(mask_labels(values).astype(np.int16))


@contextmanager
def _opened(path: Path) -> Iterator[tuple[ZipFile, int, int]]:
    """Open a copy; yield also its height and width."""
    try:
        with ZipFile(path) as archive:
            height, width = map(int, archive.comment.split())
            yield archive, height, width
    except (OSError, BadZipFile, KeyError, ValueError, zlib.error) as error:
        raise LecoError(
            f"{path}: is damaged ({first_line(error)}); delete it, and run the same command again"
        ) from None


@dataclass(frozen=True, eq=False)
class Copies:
    """A column of images or label maps, padded to squares, which are read from copies."""

    paths: Sequence[Path | None]  # None for a sample without a label map
    side: int
    channels: int  # 3, or 0 for label maps

    def __len__(self) -> int:
        return len(self.paths)

    def read(self, indices: Tensor) -> Tensor:
        """Decode the copies of some samples."""
        found = self._empty(len(indices), self.side, self.side)
        for square, index in zip(found, indices.tolist(), strict=True):
            if (path := self.paths[index]) is not None:
                pixels = read_copy(path)
                square[..., : pixels.shape[-2], : pixels.shape[-1]] = pixels
        return found

    def read_box(self, indices: Tensor, box: Box) -> Tensor:
        """Decode a part of the copy of one sample."""
        path = self.paths[int(indices)]
        if path is None:
            return self._empty(1, box[1] - box[0], box[3] - box[2])
        return read_copy(path, box)[None]

    def _empty(self, count: int, height: int, width: int) -> Tensor:
        if self.channels:
            return torch.zeros(count, self.channels, height, width, dtype=torch.uint8)
        return torch.full((count, height, width), NO_LABEL, dtype=torch.int16)


@dataclass(frozen=True, eq=False)
class Sizes:
    """A column of the heights and widths of copies."""

    paths: Sequence[Path]

    def __len__(self) -> int:
        return len(self.paths)

    def read(self, indices: Tensor) -> Tensor:
        """Read the sizes of some copies: (n, 2)."""
        found = []
        for index in indices.tolist():
            with _opened(self.paths[index]) as (_, height, width):
                found.append((height, width))
        return torch.tensor(found)
