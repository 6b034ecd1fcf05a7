"""The joint view of images and label maps in segmentation (appendix C of the paper)."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from leco.data.batches import Batch
from leco.data.rng import Draws
from leco.data.samples import Box
from leco.data.views.images import arange, check, pixels
from leco.errors import LecoError
from leco.ontology.evidence import UNLABELLED
from leco.ontology.version import NO_LABEL


@dataclass(frozen=True)
class JointCrop:
    """A `Crop` for `data.batches`: `joint` for images, evidence rows and labels of all versions."""

    base_size: int
    crop: int
    scale: tuple[float, float]

    def __call__(self, batch: Batch, seed: int, step: int, corner: tuple[int, int] = (0, 0)) -> Batch:
        """Return the same samples, cropped; pixels outside an image have no label."""
        versions = list(batch.labels)
        masks = [batch.rows, *(batch.labels[version] for version in versions)]
        sizes = torch.tensor(batch.inputs.shape[-2:]).expand(len(batch), 2) if batch.sizes is None else batch.sizes
        images, found = cropped(batch.inputs, masks, self._places(batch.ids, sizes, seed, step), corner=corner)
        small = [mask.to(whole.dtype) for mask, whole in zip(found, masks, strict=True)]
        rows = small[0].clamp(min=UNLABELLED)
        return Batch(batch.ids, images, rows, dict(zip(versions, small[1:], strict=True)))

    def box(self, ids: Tensor, sizes: Tensor, seed: int, step: int) -> Box:
        """Return the part of one image that its crop is made of."""
        return self._places(ids, sizes, seed, step).box()

    def _places(self, ids: Tensor, sizes: Tensor, seed: int, step: int) -> "Places":
        return places(sizes, Draws(seed, step, ids), self.base_size, self.crop, self.scale)


@dataclass(frozen=True, eq=False)
class Places:
    """Where the pixels of a crop come from, for n images."""

    row: Tensor  # (n, crop) fractional row of each row of the crop
    rows: Tensor  # (n, crop) the nearest row
    column: Tensor
    columns: Tensor
    outside: Tensor  # (n, crop, crop) pixels beyond the image

    def box(self) -> Box:
        """Return the smallest box that holds all of them."""
        edges = []
        for fraction, nearest in ((self.row, self.rows), (self.column, self.columns)):
            edges += [min(int(fraction.min()), int(nearest.min())), 1 + int(max(fraction.ceil().max(), nearest.max()))]
        return edges[0], edges[1], edges[2], edges[3]


def photometric(images: Tensor, draws: Draws, strength: float = 0.4) -> Tensor:
    """Change brightness, contrast and the balance of channels: a strong view that moves no pixel."""
    check(images, draws)
    brightness, contrast, *balance = (1 + strength * (2 * draws.uniform("photometric", 5) - 1)).unbind(dim=1)
    channels = torch.stack(balance, dim=1).sqrt()[:, : images.shape[1], None, None]
    values = images.float() * brightness.view(-1, 1, 1, 1) * channels
    middle = values.mean(dim=(1, 2, 3), keepdim=True)
    return torch.lerp(middle, values, contrast.view(-1, 1, 1, 1)).round().clamp(0, 255).byte()


def joint(
    images: Tensor,
    masks: Sequence[Tensor],
    draws: Draws,
    base_size: int,
    crop: int,
    *,
    scale: tuple[float, float] = (0.5, 2.1),
    fill: int = 0,
    sizes: Tensor | None = None,
) -> tuple[Tensor, list[Tensor]]:
    """Flip, scale the longer edge to `base_size` times a factor in `scale`, and crop (crop, crop).

    Images uint8 (n, c, h, w) are resampled bilinearly; masks (n, h, w) by the nearest pixel, as int64. If the scaled
    image is smaller than the crop, the right and the bottom are padded: images with `fill`, masks with -1 (no label).
    Only the crop is resampled: the scaled image, 40 times its size in the paper, is never computed. `sizes` (n, 2) are
    height and width of images that were padded to be stacked; the padding is not part of the image.
    """
    check(images, draws)
    if sizes is None:
        sizes = torch.tensor(images.shape[-2:], device=images.device).expand(len(images), 2)
    return cropped(images, masks, places(sizes.to(images.device), draws, base_size, crop, scale), fill)


def places(sizes: Tensor, draws: Draws, base_size: int, crop: int, scale: tuple[float, float]) -> Places:
    """Draw the places of the crops of images of some heights and widths, (n, 2)."""
    height, width = sizes.unsqueeze(2).unbind(1)  # each (n, 1)
    factor, mirrored, top, left = draws.uniform("joint", 4)[..., None].unbind(1)  # each (n, 1)
    longer = base_size * (scale[0] + (scale[1] - scale[0]) * factor)
    longest = torch.maximum(height, width)
    row, rows, row_inside = source(longer, height, longest, top, crop)
    column, columns, column_inside = source(longer, width, longest, left, crop)
    column = torch.where(mirrored < 0.5, width - 1 - column, column)
    columns = torch.where(mirrored < 0.5, width - 1 - columns, columns)
    return Places(row, rows, column, columns, ~(row_inside[:, :, None] & column_inside[:, None, :]))


def cropped(
    images: Tensor, masks: Sequence[Tensor], found: Places, fill: int = 0, corner: tuple[int, int] = (0, 0)
) -> tuple[Tensor, list[Tensor]]:
    """Resample images and masks, of which only the part right of and below `corner` is given."""
    for mask in masks:
        if mask.shape != (len(images), *images.shape[-2:]):
            raise LecoError(f"a mask of shape {tuple(mask.shape)} does not fit images of {tuple(images.shape)}")
    top, left = corner
    rows, columns = found.rows[:, :, None] - top, found.columns[:, None, :] - left
    moved = [pixels(mask[:, None], rows, columns)[:, 0].long() for mask in masks]
    return (
        bilinear(images, found.row - top, found.column - left).masked_fill_(found.outside[:, None], fill),
        [mask.masked_fill_(found.outside, NO_LABEL) for mask in moved],
    )


def source(longer: Tensor, size: Tensor, longest: Tensor, position: Tensor, crop: int) -> tuple[Tensor, Tensor, Tensor]:
    """For each of the `crop` pixels of an edge: its source position, the nearest pixel, and whether it is inside."""
    scaled = (longer * size / longest).round().clamp(min=1)
    start = (position * ((scaled - crop).clamp(min=0) + 1)).floor()
    place = arange(crop, position) + start
    fraction = torch.minimum(((place + 0.5) * size / scaled - 0.5).clamp(min=0), size - 1.0)
    # In integers: half-way between two pixels, rounding errors would differ between devices.
    nearest = torch.div((2 * place.long() + 1) * size, 2 * scaled.long(), rounding_mode="floor")
    return fraction, torch.minimum(nearest, size - 1), place < scaled


def bilinear(images: Tensor, row: Tensor, column: Tensor) -> Tensor:
    """Interpolate images at fractional rows (n, a) and columns (n, b): (n, c, a, b) uint8."""
    top, left = row.floor(), column.floor()
    bottom, right = row.ceil().long()[:, :, None], column.ceil().long()[:, None, :]
    down, across = (row - top)[:, None, :, None], (column - left)[:, None, None, :]
    top, left = top.long()[:, :, None], left.long()[:, None, :]
    upper = torch.lerp(pixels(images, top, left).float(), pixels(images, top, right).float(), across)
    lower = torch.lerp(pixels(images, bottom, left).float(), pixels(images, bottom, right).float(), across)
    return torch.lerp(upper, lower, down).round().byte()
