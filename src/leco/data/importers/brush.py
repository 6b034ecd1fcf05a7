"""What Label Studio's brush drew: runs of the bytes of an RGBA image, of which the opacity says what is drawn.

The stream holds 32 bits, how many values there are; 5 bits, the bits of a value; four times 4 bits, the bits that a
length may have (both less one); then the runs. Each says in 1 bit whether it repeats one value, in 2 bits which of the
four its length is written with, then its length less one, then its value, or all of its values.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from leco.errors import LecoError

_CHANNELS = 4  # red, green, blue, opacity


def decode_brush(stream: Sequence[int], width: int, height: int) -> NDArray[np.bool_]:
    """The pixels (height, width) that were drawn; whoever calls has checked the size against the real image.

    Only the opacity is kept, so a mask takes a byte for each pixel, whatever the stream says.
    """
    try:
        content = bytes(stream)
    except (TypeError, ValueError):
        raise LecoError("the brush stream is not a list of bytes, whole numbers from 0 to 255") from None
    bits = _Bits(content)
    total = bits.number(32)
    if total != width * height * _CHANNELS:
        raise LecoError(f"the brush stream holds {total:,} values; {width}x{height} pixels need {_CHANNELS} each")
    word = bits.number(5) + 1
    sizes = [bits.number(4) + 1 for _ in range(4)]
    drawn = np.zeros(width * height, dtype=bool)
    start = 0
    while start < total:
        repeats = bits.number(1)
        end = start + bits.number(sizes[bits.number(2)]) + 1
        if end > total:
            raise LecoError(f"the brush stream has a run that ends at value {end:,} of {total:,}")
        pixels = slice(start // _CHANNELS, end // _CHANNELS)  # those whose opacity, the last channel, is in the run
        if repeats:
            drawn[pixels] = bits.number(word) > 0
        else:
            drawn[pixels] = bits.above_zero(end - start, word)[_CHANNELS - 1 - start % _CHANNELS :: _CHANNELS]
        start = end
    return drawn.reshape(height, width)


class _Bits:
    """Bits of a stream, the highest of each byte first."""

    def __init__(self, content: bytes) -> None:
        self.content, self.place = content, 0

    def number(self, bits: int) -> int:
        first, end = self._take(bits)
        value = int.from_bytes(self.content[first // 8 : -(-end // 8)], "big")
        return value >> (-end % 8) & ((1 << bits) - 1)

    def above_zero(self, count: int, bits: int) -> NDArray[np.bool_]:
        """Which of several numbers are above 0."""
        first, end = self._take(count * bits)
        part = np.frombuffer(self.content, np.uint8, -(-end // 8) - first // 8, first // 8)
        values = np.unpackbits(part)[first % 8 :][: end - first].reshape(count, bits)
        above: NDArray[np.bool_] = values.max(axis=1) > 0
        return above

    def _take(self, bits: int) -> tuple[int, int]:
        first, self.place = self.place, self.place + bits
        if self.place > 8 * len(self.content):
            raise LecoError(f"the brush stream breaks off after {len(self.content):,} bytes")
        return first, self.place
