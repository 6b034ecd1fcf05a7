"""Prediction on large images, window by window (appendix C of the paper)."""

from collections.abc import Callable, Mapping

import torch
import torch.nn.functional as F
from torch import Tensor

from leco.errors import LecoError


@torch.no_grad()
def sliding_window(
    network: Callable[[Tensor], Mapping[str, Tensor]],
    images: Tensor,
    version: str,
    window: int,
    stride: int,
    *,
    flip: bool = True,
) -> Tensor:
    """Probabilities (n, c, h, w) of a version's classes, averaged over all windows that cover a pixel.

    Square windows are `stride` pixels apart, the last of a row or column flush with the image's edge. With `flip`,
    windows of the mirrored image have the same weight. Normalised images (n, 3, h, w) smaller than the window are
    padded with zeros on the right and at the bottom. The network must be in evaluation mode.

    Memory: one (n, c, h, w) sum, and the logits of one window.
    """
    if not 0 < stride <= window:
        raise LecoError(f"the stride {stride} does not fit windows of {window} pixels; use 1 to {window}")
    height, width = images.shape[-2:]
    total: Tensor | None = None
    times = images.new_zeros(height, width, dtype=torch.float32)  # number of windows that cover each pixel
    for mirrored in (False, True) if flip else (False,):
        view = images.flip(3) if mirrored else images
        view = F.pad(view, (0, max(0, window - width), 0, max(0, window - height)))
        for top in starts(height, window, stride):
            for left in starts(width, window, stride):
                rows, columns = slice(top, top + window), slice(left, left + window)
                logits = network(view[:, :, rows, columns])[version]
                probs = logits[:, :, : height - top, : width - left].float().softmax(dim=1)  # without padding
                if total is None:
                    total = probs.new_zeros(*probs.shape[:2], height, width)
                if mirrored:
                    probs, columns = probs.flip(3), slice(max(0, width - left - window), width - left)
                total[:, :, rows, columns] += probs
                times[rows, columns] += 1
    assert total is not None
    return total.div_(times)


def starts(size: int, window: int, stride: int) -> list[int]:
    """First pixel of each window along an edge of `size` pixels, so that they cover it.

    >>> starts(10, window=4, stride=4)
    [0, 4, 6]
    >>> starts(3, window=4, stride=4)
    [0]
    """
    last = max(0, size - window)
    return [*range(0, last, stride), last]
