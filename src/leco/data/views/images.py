"""Views of whole batches of images: uint8 (n, c, h, w) in, uint8 out, on any device."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import torch
import torch.nn.functional as F
from torch import Tensor

from leco.data.rng import Draws
from leco.errors import LecoError
from leco.placement import constant, send

View = Callable[[Tensor, Draws], Tensor]
GREY = 127


def flip(images: Tensor, draws: Draws) -> Tensor:
    """Mirror each image, left to right, with probability 0.5."""
    return pad_crop(images, draws, padding=0, mirror=True)


def pad_crop(images: Tensor, draws: Draws, padding: int = 4, mirror: bool = False) -> Tensor:
    """Shift by up to `padding` pixels and fill the gap by reflection, after a random flip if `mirror`.

    Both in one step, because moving the pixels is most of the work.
    """
    check(images, draws)
    height, width = images.shape[-2:]
    if padding >= min(height, width):
        raise LecoError(f"cannot reflect {padding} pixels at the border of images of {height}x{width}")
    at_home = draws.at_home
    shifts = at_home.integers("pad_crop", -padding, padding + 1, 2)
    rows = reflect(arange(height, shifts) + shifts[:, :1], height)
    columns = reflect(arange(width, shifts) + shifts[:, 1:], width)
    if mirror:
        columns = torch.where(at_home.uniform("flip") < 0.5, width - 1 - columns, columns)
    places = send(torch.cat([rows * width, columns], dim=1).int(), images.device)
    rows, columns = torch.split(places, [height, width], dim=1)
    return gathered(images, rows[:, :, None] + columns[:, None, :])


def random_resized_crop(
    images: Tensor,
    draws: Draws,
    size: int = 224,
    scale: tuple[float, float] = (0.08, 1.0),
    ratio: tuple[float, float] = (3 / 4, 4 / 3),
) -> Tensor:
    """Crop a box of random area and aspect ratio and resize it to (size, size).

    Area and ratio are distributed as in torchvision, which however draws again if a box does not fit; this one clips.
    """
    check(images, draws)
    height, width = images.shape[-2:]
    area, shape, top, left = draws.at_home.uniform("random_resized_crop", 4).unbind(1)
    area = (scale[0] + (scale[1] - scale[0]) * area) * height * width
    shape = torch.exp(math.log(ratio[0]) + (math.log(ratio[1]) - math.log(ratio[0])) * shape)
    tall = (area / shape).sqrt().round().clamp(1, height)
    wide = (area * shape).sqrt().round().clamp(1, width)
    top, left = (top * (height - tall + 1)).floor(), (left * (width - wide + 1)).floor()
    return resample(images, send(torch.stack([top, left, tall, wide], dim=1), images.device), size)


def centre_crop_resize(images: Tensor, resize: int = 256, size: int = 224) -> Tensor:
    """Resize the shorter edge to `resize` and keep the central (size, size), in one step."""
    height, width = images.shape[-2:]
    side = min(height, width) * size / resize
    boxes = torch.full((len(images), 4), side, device=images.device)
    boxes[:, 0].fill_((height - side) / 2)
    boxes[:, 1].fill_((width - side) / 2)
    return resample(images, boxes, size)


def cutout(images: Tensor, draws: Draws) -> Tensor:
    """Grey out a square of half the image's side around a uniform centre, as in the FixMatch code that the paper uses.

    That code moves a square that would begin outside the image, clips one that would end outside, and makes it a pixel
    larger than documented.
    """
    check(images, draws)
    height, width = images.shape[-2:]
    side = max(height, width) // 2
    centre = draws.at_home.uniform("cutout", 2)
    top = (centre[:, :1] * height - side / 2).clamp(min=0).floor()
    left = (centre[:, 1:] * width - side / 2).clamp(min=0).floor()
    row, column = arange(height, centre), arange(width, centre)
    inside = torch.cat([(row >= top) & (row <= top + side), (column >= left) & (column <= left + side)], dim=1)
    rows, columns = torch.split(send(inside.byte(), images.device), [height, width], dim=1)
    return paint(images, rows[:, :, None] & columns[:, None, :], GREY)


def normalise(images: Tensor, mean: Tensor, std: Tensor) -> Tensor:
    """Normalise to a model's float32 input by mean and standard deviation per channel, of pixels in [0, 1]."""
    return Normalisation(mean, std)(images)


@dataclass(frozen=True, eq=False)
class Normalisation:
    """`normalise` with the statistics of some images."""

    mean: Tensor
    std: Tensor

    def __call__(self, images: Tensor) -> Tensor:
        """Normalise images to a model's float32 input."""
        shift, factor = (constant(each, images.device) for each in self._shift_and_factor)
        return (images.float() - shift) * factor

    @cached_property
    def _shift_and_factor(self) -> tuple[Tensor, Tensor]:
        return (255 * self.mean).view(-1, 1, 1), (1 / (255 * self.std)).view(-1, 1, 1)


def pixels(images: Tensor, rows: Tensor, columns: Tensor) -> Tensor:
    """Gather the pixels (n, c, a, b) at `rows` and `columns`, which broadcast to (n, a, b)."""
    return gathered(images, rows.int() * images.shape[3] + columns.int())


def gathered(images: Tensor, index: Tensor) -> Tensor:
    """Gather the pixels (n, c, a, b) at indices (n, a, b) of 32 bits, half the memory to write."""
    found = images.flatten(2).gather(2, index.long().flatten(1)[:, None].expand(-1, images.shape[1], -1))
    return found.view(*images.shape[:2], *index.shape[1:])


def paint(images: Tensor, where: Tensor, value: int) -> Tensor:
    """Set the pixels where the mask (n, h, w) is one, with bit operations: ten times as fast as `masked_fill`."""
    mask = where.byte()[:, None]
    return images & (mask - 1) | mask * value


def resample(images: Tensor, boxes: Tensor, size: int) -> Tensor:
    """Resize a box (top, left, height, width) of each image to (size, size): bilinear and antialiased, as PIL does."""
    rows = resampling_weights(boxes[:, 0], boxes[:, 2], images.shape[-2], size)
    columns = resampling_weights(boxes[:, 1], boxes[:, 3], images.shape[-1], size)
    resized = rows[:, None] @ images.float() @ columns[:, None].mT
    return resized.round().clamp(0, 255).byte()


def resampling_weights(start: Tensor, length: Tensor, edge: int, size: int) -> Tensor:
    """Weight of each of `edge` source pixels in each of `size` results: (n, size, edge), rows sum to one."""
    step = (length / size)[:, None, None]
    centre = start[:, None, None] + (arange(size, start)[:, None] + 0.5) * step
    source = arange(edge, start) + 0.5
    weights = (1 - (source - centre).abs() / step.clamp(min=1)).clamp(min=0)
    return F.normalize(weights, p=1, dim=2)


def reflect(index: Tensor, size: int) -> Tensor:
    """Reflect an index just outside [0, size) back inside, without repeating the border pixel."""
    return size - 1 - (size - 1 - index.abs()).abs()


def arange(size: int, like: Tensor) -> Tensor:
    """Return 0, 1, ..., size - 1 on the device of `like`."""
    return torch.arange(size, device=like.device)


def check(batch: Tensor, draws: Draws) -> None:
    """Raise instead of broadcasting the draws of one sample over a batch."""
    if batch.dim() == 4 and batch.shape[1] not in (1, 3):
        raise LecoError(f"images must have 1 or 3 channels, not {batch.shape[1]}")
    if len(batch) != len(draws.ids):
        raise LecoError(f"a batch of {len(batch)} samples needs {len(batch)} sample ids, not {len(draws.ids)}")
