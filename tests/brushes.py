"""A small encoder of Label Studio's brush streams, for tests that draw."""

import numpy as np
from numpy.typing import NDArray

SIZES = (3, 4, 8, 16)


def brush_stream(mask: NDArray[np.bool_], rng: np.random.Generator | None = None) -> list[int]:
    """Pixels as a stream, in runs of the bytes of an RGBA image: at random, or each as long as it repeats."""
    colour = np.full((*mask.shape, 3), 0) if rng is None else rng.integers(1, 256, (*mask.shape, 3))
    values = np.concatenate([colour, mask[..., None] * 255], axis=2).ravel().tolist()
    bits = f"{len(values):032b}{7:05b}" + "".join(f"{size - 1:04b}" for size in SIZES)
    start = 0
    while start < len(values):
        alike = next((n for n in range(start, len(values)) if values[n] != values[start]), len(values)) - start
        length = alike if rng is None or alike > 1 else min(int(rng.integers(1, 40)), len(values) - start)
        which = next(number for number, size in enumerate(SIZES) if length <= 1 << size)
        bits += f"{int(length <= alike)}{which:02b}{length - 1:0{SIZES[which]}b}"
        bits += "".join(f"{value:08b}" for value in values[start : start + (1 if length <= alike else length)])
        start += length
    bits += "0" * (-len(bits) % 8)
    return [int(bits[place : place + 8], 2) for place in range(0, len(bits), 8)]
