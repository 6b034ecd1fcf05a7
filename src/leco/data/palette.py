"""Colours for classes."""

import colorsys

import torch
from torch import Tensor


def palette(num_classes: int) -> Tensor:
    """A colour per class, far apart in hue; the last one, for -1 (no label), is black: (c + 1, 3) uint8."""
    hues = [(index * 0.618034) % 1.0 for index in range(num_classes)]  # the golden ratio spreads any number of hues
    colours = [colorsys.hsv_to_rgb(h, 0.55 + 0.35 * (i % 2), 0.95 - 0.3 * (i % 3 == 2)) for i, h in enumerate(hues)]
    return torch.tensor([[round(255 * part) for part in colour] for colour in [*colours, (0, 0, 0)]], dtype=torch.uint8)
