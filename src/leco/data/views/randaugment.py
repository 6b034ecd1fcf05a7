"""RandAugment with FixMatch's pool of operations, on whole batches; every operation gives the same result as PIL's.

The batch is sorted by operation, so that each runs once on its images, with a parameter per image. Most operations only
return a lookup table of 256 pixel values or an affine map; all images with tables, or with maps, are then transformed
together.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache

import torch
from torch import Tensor

from leco.data.rng import Draws
from leco.data.views.images import arange, check, cutout, pad_crop
from leco.placement import has_float64, send

LEVELS = 10  # FixMatch's m: the level is one of 1..9, in tenths of the maximum
COUNT = 2  # FixMatch's n: operations per image, each skipped with probability 0.5


def weak(images: Tensor, draws: Draws, flip: bool = True, padding: int = 4) -> Tensor:
    """FixMatch's weak view: flip, and shift by up to `padding` pixels."""
    return pad_crop(images, draws, padding, mirror=flip)


def strong(images: Tensor, draws: Draws, flip: bool = True, padding: int = 4, *, cut: bool = True) -> Tensor:
    """FixMatch's strong view: a weak view (other than that of `weak`), then RandAugment and cutout."""
    own = draws.branch("strong")
    seen = randaugment(weak(images, own, flip, padding), own)
    return cutout(seen, own) if cut else seen


def randaugment(images: Tensor, draws: Draws, count: int = COUNT) -> Tensor:
    """Apply `count` random operations of the pool to each image, each with probability 0.5 and at a random level."""
    check(images, draws)
    known = len(POOL) * len(STRENGTHS)
    settings = draws.at_home.integers("randaugment", 0, 2 * known, count)  # the upper half: do nothing
    settings = torch.where(settings < known, settings, setting("Identity"))
    for turn in range(count):
        images = apply_each(images, settings[:, turn])
    return images


def setting(name: str, level: int = 1, sign: int = 1) -> int:
    """Number of an operation at a level and with a sign, as `apply_each` takes it."""
    return list(POOL).index(name) * len(STRENGTHS) + STRENGTHS.index((level, sign))


def apply_each(images: Tensor, settings: Tensor) -> Tensor:
    """Apply to each image the operation, level and sign that its setting encodes; settings are on the CPU.

    So a GPU need not be asked how many images each operation has. PIL's pixels need 64 bits.
    """
    if not has_float64(images.device):
        return apply_each(images.cpu(), settings).to(images.device)
    operations = settings.div(len(STRENGTHS), rounding_mode="floor")
    counts = torch.bincount(operations, minlength=len(POOL)).tolist()
    order = _PLACES[operations].argsort(stable=True)
    amounts = _AMOUNTS[settings[order]].view(torch.int64)  # their bits: so one copy is enough
    plan = torch.stack([order, order.argsort(), _ROWS[settings[order]], amounts])
    order, back, rows, bits = send(plan, images.device).unbind()
    return _apply_sorted(images.index_select(0, order), counts, rows, bits.view(torch.double)).index_select(0, back)


def _apply_sorted(images: Tensor, counts: Sequence[int], rows: Tensor, amounts: Tensor) -> Tensor:
    done, start = [], 0
    for finish, names in GROUPS.items():
        first, outputs = start, []
        for name in names:
            end = start + counts[_NUMBER[name]]
            if end > start and not POOL[name].blind:
                outputs.append(POOL[name].make(images[start:end], amounts[start:end]))
            start = end
        known = sum(counts[_NUMBER[name]] for name in names if POOL[name].blind)
        if known:
            outputs.append(_looked_up(finish, images, rows[start - known : start]))
        if outputs:
            done.append(finish(images[first:start], torch.cat(outputs) if len(outputs) > 1 else outputs[0]))
    return torch.cat(done) if len(done) > 1 else done[0] if done else images


def _looked_up(finish: "Finish", images: Tensor, rows: Tensor) -> Tensor:
    """Outputs of operations that do not depend on the images' content, by their rows among those of all of them."""
    shape, device = images.shape[1:], images.device
    if finish is not move:
        return _blind_outputs(finish, shape, device).index_select(0, rows)
    if len(_blind_names(move)) * len(STRENGTHS) * shape[1] * shape[2] <= _MOST_SOURCES:
        return _all_sources(shape, device).index_select(0, rows)
    return sources(_blind_outputs(move, shape, device).index_select(0, rows), *shape[1:])


@lru_cache(maxsize=8)
def _blind_outputs(finish: "Finish", shape: torch.Size, device: torch.device) -> Tensor:
    """Outputs of the operations of a group at every strength, for images of a shape."""
    images = torch.zeros(len(STRENGTHS), *shape, dtype=torch.uint8)
    amounts = _AMOUNTS.view(len(POOL), -1)
    found = [POOL[name].make(images, amounts[_NUMBER[name]]).contiguous() for name in _blind_names(finish)]
    return send(torch.cat(found), device)


@lru_cache(maxsize=8)
def _all_sources(shape: torch.Size, device: torch.device) -> Tensor:
    return send(sources(_blind_outputs(move, shape, torch.device("cpu")), *shape[1:]), device)


def _blind_names(finish: "Finish") -> list[str]:
    return [name for name in GROUPS[finish] if POOL[name].blind]


# Functions that transform the images of several operations at once, given the output of each operation.

Finish = Callable[[Tensor, Tensor], Tensor]


def look_up(images: Tensor, tables: Tensor) -> Tensor:
    """Replace each pixel value by its entry in the table of its image and channel: (n, c, 256)."""
    return tables.gather(2, images.flatten(2).long()).view_as(images)


def move(images: Tensor, sources: Tensor) -> Tensor:
    """Take each pixel from another one: (n, h * w) indices of pixels; black where it is -1."""
    index = sources.clamp(min=0).long()[:, None].expand(-1, images.shape[1], -1)
    return (images.flatten(2).gather(2, index) * (sources >= 0).byte()[:, None]).view_as(images)


def sources(matrices: Tensor, height: int, width: int) -> Tensor:
    """Return where the pixel (x, y) is taken from: (ax + by + c, dx + ey + f), as an index, or -1 outside.

    Matrices are from `fixed`.
    """
    a, b, c, d, e, f = matrices.T[:, :, None, None]
    x = torch.arange(width, device=matrices.device, dtype=torch.int32)
    y = torch.arange(height, device=matrices.device, dtype=torch.int32)[:, None]
    columns, rows = (a * x + (b * y + c)) >> 16, (d * x + (e * y + f)) >> 16
    inside = (columns >= 0) & (columns < width) & (rows >= 0) & (rows < height)
    return torch.where(inside, rows * width + columns, -1).flatten(1)


def keep(_: Tensor, changed: Tensor) -> Tensor:
    """Return the images that the operation made."""
    return changed


# Operations that return lookup tables: (n, c, 256) uint8.


def autocontrast(images: Tensor, _: Tensor) -> Tensor:
    """Stretch each channel to the full range."""
    low, high = images.flatten(2).amin(2, keepdim=True).double(), images.flatten(2).amax(2, keepdim=True).double()
    # In double precision, in this order, and as a tensor division (torch computes 255.0 / x as 255 * (1 / x));
    # otherwise results are truncated to other integers than PIL's.
    scale = torch.full_like(low, 255.0) / (high - low)
    levels = arange(256, images)
    return torch.where(high > low, (levels * scale + -low * scale).clamp(0, 255), levels.double()).byte()


def equalize(images: Tensor, _: Tensor) -> Tensor:
    """Flatten the histogram of each channel."""
    size = images.shape[2] * images.shape[3]
    values = images.flatten(2).long()
    histogram = values.new_zeros(*values.shape[:2], 256).scatter_add_(2, values, torch.ones_like(values))
    brightest = histogram.gather(2, values.amax(2, keepdim=True))
    step = (size - brightest) // 255
    table = (histogram.cumsum(2) - histogram + step // 2) // step.clamp(min=1)
    return torch.where(step > 0, table.clamp(max=255), arange(256, images)).byte()


def posterize(images: Tensor, bits: Tensor) -> Tensor:
    """Keep the highest bits."""
    return tables(arange(256, images) & (256 - 2 ** (8 - bits.long()))[:, None], images)


def solarize(images: Tensor, amount: Tensor) -> Tensor:
    """Invert values of at least 256 - amount."""
    levels = arange(256, images)
    return tables(torch.where(levels < 256 - amount[:, None], levels, 255 - levels), images)


def brightness(images: Tensor, factor: Tensor) -> Tensor:
    """Blend with black."""
    return tables(blend(torch.zeros_like(factor)[:, None], arange(256, images), factor[:, None]), images)


def contrast(images: Tensor, factor: Tensor) -> Tensor:
    """Blend with the mean grey of the image."""
    size = images.shape[2] * images.shape[3]
    mean = (2 * grey(images).sum((1, 2, 3)) + size) // (2 * size)
    return tables(blend(mean[:, None], arange(256, images), factor[:, None]), images)


def tables(rows: Tensor, images: Tensor) -> Tensor:
    """Repeat a table (n, 256) for every channel."""
    return rows.byte()[:, None].expand(-1, images.shape[1], -1)


# Operations that return affine maps: (n, 6) int32.


def rotate(images: Tensor, degrees: Tensor) -> Tensor:
    """Turn anticlockwise around the centre."""
    x, y = images.shape[3] / 2, images.shape[2] / 2
    cos, sin = torch.cos(torch.deg2rad(degrees)), torch.sin(torch.deg2rad(degrees))
    return fixed(cos, -sin, x - cos * x + sin * y, sin, cos, y - sin * x - cos * y)


def shear_x(_: Tensor, amount: Tensor) -> Tensor:
    """Move each row by its distance from the top times `amount`."""
    one, zero = torch.ones_like(amount), torch.zeros_like(amount)
    return fixed(one, amount, zero, zero, one, zero)


def shear_y(_: Tensor, amount: Tensor) -> Tensor:
    """Move each column by its distance from the left times `amount`."""
    one, zero = torch.ones_like(amount), torch.zeros_like(amount)
    return fixed(one, zero, zero, amount, one, zero)


def translate_x(images: Tensor, share: Tensor) -> Tensor:
    """Move to the left by a share of the width, in whole pixels."""
    one, zero = torch.ones_like(share), torch.zeros_like(share)
    return fixed(one, zero, (share * images.shape[3]).trunc(), zero, one, zero)


def translate_y(images: Tensor, share: Tensor) -> Tensor:
    """Move up by a share of the height, in whole pixels."""
    one, zero = torch.ones_like(share), torch.zeros_like(share)
    return fixed(one, zero, zero, zero, one, (share * images.shape[2]).trunc())


def fixed(a: Tensor, b: Tensor, c: Tensor, d: Tensor, e: Tensor, f: Tensor) -> Tensor:
    """Affine map in fixed point with 16 fractional bits, like PIL's: the same pixels on every device."""
    centred = torch.stack([a, b, c + (a + b) / 2, d, e, f + (d + e) / 2], dim=1)  # of pixel centres
    return (65536 * centred + 0.5).floor().int()


# Operations that return the changed images: (n, c, h, w) uint8.


def identity(images: Tensor, _: Tensor) -> Tensor:
    """Change nothing."""
    return images


def colour(images: Tensor, factor: Tensor) -> Tensor:
    """Blend with the grey image."""
    return blend(grey(images), images, factor[:, None, None, None])


def sharpness(images: Tensor, factor: Tensor) -> Tensor:
    """Blend with the image smoothed by a 3x3 kernel of ones around a five; the border is not smoothed."""
    smooth = images.float()
    rows = smooth[:, :, :-2] + smooth[:, :, 1:-1] + smooth[:, :, 2:]
    box = rows[..., :-2] + rows[..., 1:-1] + rows[..., 2:]
    inner = smooth[:, :, 1:-1, 1:-1]
    inner.copy_(((box + 4 * inner) / 13).round())
    return blend(smooth, images, factor[:, None, None, None])


def grey(images: Tensor) -> Tensor:
    """Return luma (ITU-R 601) in PIL's fixed point: (n, 1, h, w) int32. A single channel is grey already."""
    if images.shape[1] == 1:
        return images.int()
    red, green, blue = images.int().unbind(1)
    return torch.bitwise_right_shift(19595 * red + 38470 * green + 7471 * blue + 32768, 16)[:, None]


def blend(other: Tensor, images: Tensor, factor: Tensor) -> Tensor:
    """Interpolate from `other` to `images` by a factor in [0, 1], in float32, truncated: PIL's ImageEnhance."""
    start = other.float()
    return (start + factor.float() * (images - start)).byte()


@dataclass(frozen=True)
class Operation:
    """A function, how its output transforms images, and its parameter: tenths of a maximum plus a bias."""

    make: Callable[[Tensor, Tensor], Tensor]  # images (n, c, h, w) and parameters (n,) float64
    finish: Finish
    maximum: float = 0.0
    bias: float = 0.0
    whole: bool = False  # truncate the parameter
    signed: bool = False  # in either direction
    blind: bool = False  # whether the output is independent of the image's content

    def parameter(self, level: int, sign: int) -> float:
        """Parameter at a level and with a sign, as FixMatch computes it."""
        value = level * self.maximum / LEVELS
        return (int(value) if self.whole else value) * (sign if self.signed else 1) + self.bias


STRENGTHS = [(level, sign) for level in range(1, LEVELS) for sign in (1, -1)]

# Grouped by the function that transforms the images, so that sorting keeps each group together.
POOL = {
    "Identity": Operation(identity, keep),
    "Color": Operation(colour, keep, 0.9, 0.05),
    "Sharpness": Operation(sharpness, keep, 0.9, 0.05),
    "AutoContrast": Operation(autocontrast, look_up),
    "Brightness": Operation(brightness, look_up, 0.9, 0.05, blind=True),
    "Contrast": Operation(contrast, look_up, 0.9, 0.05),
    "Equalize": Operation(equalize, look_up),
    "Posterize": Operation(posterize, look_up, 4, 4, whole=True, blind=True),
    "Solarize": Operation(solarize, look_up, 256, whole=True, blind=True),
    "Rotate": Operation(rotate, move, 30, whole=True, signed=True, blind=True),
    "ShearX": Operation(shear_x, move, 0.3, signed=True, blind=True),
    "ShearY": Operation(shear_y, move, 0.3, signed=True, blind=True),
    "TranslateX": Operation(translate_x, move, 0.3, signed=True, blind=True),
    "TranslateY": Operation(translate_y, move, 0.3, signed=True, blind=True),
}

_NUMBER = {name: number for number, name in enumerate(POOL)}
GROUPS: dict[Finish, list[str]] = {
    finish: sorted((name for name in POOL if POOL[name].finish is finish), key=lambda name: POOL[name].blind)
    for finish in (keep, look_up, move)
}
_IN_ORDER = [name for group in GROUPS.values() for name in group]  # so that those of a group are neighbours
_PLACES = torch.tensor([_IN_ORDER.index(name) for name in POOL])
# Of every setting: its parameter, and its row among the outputs that are looked up.
_AMOUNTS = torch.tensor([op.parameter(*strength) for op in POOL.values() for strength in STRENGTHS], dtype=torch.double)
_ROWS = torch.tensor(
    [
        _blind_names(operation.finish).index(name) * len(STRENGTHS) + number if operation.blind else 0
        for name, operation in POOL.items()
        for number in range(len(STRENGTHS))
    ]
)
_MOST_SOURCES = 2**24  # 64 MB: images of up to 431 x 431 pixels
