"""A picture of views, one labelled row each: the way to see what an augmentation really does."""

from collections.abc import Sequence
from itertools import accumulate

import numpy as np
from PIL import Image, ImageDraw, ImageFont
from torch import Tensor

GAP, LETTERS, LEAST = 4, 14, 64  # pixels between images, height of a letter, least side of an image


def contact_sheet(rows: Sequence[tuple[str, Tensor]]) -> Image.Image:
    """Draw rows of images (k, c, h, w) uint8 with c = 1 or 3 under each other; tiny ones are enlarged."""
    strips = [(label, strip(images)) for label, images in rows]
    font = ImageFont.load_default(LETTERS)
    margin = 2 * GAP + int(max((font.getlength(label) for label, _ in strips), default=0))
    width = margin + max((image.width for _, image in strips), default=0)
    *tops, height = accumulate((image.height for _, image in strips), initial=0)
    sheet = Image.new("RGB", (max(width, 1), max(height, 1)), "white")
    draw = ImageDraw.Draw(sheet)
    for top, (label, image) in zip(tops, strips, strict=True):
        draw.text((GAP, top + image.height // 2), label, "black", font, anchor="lm")
        sheet.paste(image, (margin, top))
    return sheet


def strip(images: Tensor) -> Image.Image:
    """The images of one row, side by side."""
    times = -(-LEAST // min(images.shape[-2:]))
    pixels = images.cpu().expand(-1, 3, -1, -1).permute(0, 2, 3, 1).numpy()
    pixels = pixels.repeat(times, axis=1).repeat(times, axis=2)
    bordered = np.pad(pixels, ((0, 0), (0, GAP), (0, GAP), (0, 0)), constant_values=255)
    return Image.fromarray(np.concatenate(list(bordered), axis=1))
