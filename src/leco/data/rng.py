"""Counter-based randomness: the numbers for a sample depend only on the seed, the step and the sample.

A generator's numbers depend on how many were drawn before: on the batch size, the workers, the ranks, and on where a
killed run resumed. A hash has no state.
"""

from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from zlib import crc32

import torch
from torch import Tensor

from leco.errors import LecoError
from leco.placement import send

# splitmix64 (Steele, Lea and Flood 2014): a counter in steps of GOLDEN, mixed by two multiplications.
GOLDEN, FIRST, SECOND = 0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB
WORD = 2**64


@dataclass(frozen=True, eq=False)
class Draws:
    """Random numbers of one batch at one step; a name distinguishes the draws of one sample.

    >>> draws = Draws(seed=0, step=7, ids=torch.tensor([12, 5]))
    >>> bool((draws.uniform("flip") == Draws(0, 7, torch.tensor([5, 12])).uniform("flip").flip(0)).all())
    True
    """

    seed: int
    step: int
    ids: Tensor  # (n,) int64, one per sample, the same in every epoch and on every rank
    device: torch.device | None = None  # where the numbers are needed; that of the ids if None

    def __post_init__(self) -> None:
        if self.ids.ndim != 1 or self.ids.dtype != torch.int64:
            shape = tuple(self.ids.shape)
            raise LecoError(f"sample ids must be a vector of int64, not {self.ids.dtype} of shape {shape}")

    def uniform(self, name: str, count: int = 1) -> Tensor:
        """`count` numbers in [0, 1) for each sample: (n, count), float32."""
        return self._sent(shift_right(self._words(name, count), 40).float() * 2.0**-24)

    def integers(self, name: str, low: int, high: int, count: int = 1) -> Tensor:
        """`count` integers in [low, high) for each sample: (n, count), int64."""
        if not 0 < high - low < 2**32:
            raise LecoError(f"the range [{low}, {high}) of {name!r} is empty")
        return self._sent(low + (shift_right(self._words(name, count), 33) * (high - low) >> 31))

    def levels(self, name: str, count: int = 1) -> Tensor:
        """`count` integers in [0, 65536) for each sample: (n, count), int32; four from each word, so faster."""
        there = replace(self, ids=self._sent(self.ids))  # many numbers: made where they are needed
        words = there._words(name, -(-count // 4)).contiguous()
        return words.view(torch.int16)[:, :count].int() + 32_768

    def normal(self, name: str, count: int = 1) -> Tensor:
        """`count` standard normal numbers for each sample: (n, count), float32, one of 65,536 quantiles each."""
        levels = self.levels(name, count)
        return _quantiles(levels.device).index_select(0, levels.view(-1)).view(levels.shape)

    @property
    def at_home(self) -> "Draws":
        """The same draws, whose numbers stay where the ids are, which a GPU need not be asked about."""
        return replace(self, device=None)

    def _sent(self, numbers: Tensor) -> Tensor:
        return numbers if self.device is None else send(numbers, self.device)

    def branch(self, name: str) -> "Draws":
        """Independent draws, so that a weak and a strong view of one sample are cropped differently."""
        return replace(self, seed=key(self.seed, crc32(name.encode())))

    def _words(self, name: str, count: int) -> Tensor:
        """64 random bits for each sample and draw number: one splitmix stream per (seed, step, name, sample)."""
        numbers = torch.arange(count, device=self.ids.device) * signed(GOLDEN)
        return mix(self._streams[:, None] + signed(key(crc32(name.encode()))) + numbers)

    @cached_property
    def _streams(self) -> Tensor:
        """64 random bits for each sample, hashed once for all names."""
        return mix(self.ids * signed(GOLDEN) + signed(key(self.seed, self.step)))


@lru_cache
def _quantiles(device: torch.device) -> Tensor:
    return normal_quantiles(65_536).to(device)


def normal_quantiles(count: int) -> Tensor:
    """Quantiles of the standard normal distribution, at the centres of `count` equal parts; 65,536 reach ±4.2."""
    middles = (torch.arange(count, dtype=torch.float64) + 0.5) / count
    quantiles: Tensor = torch.special.ndtri(middles).float()
    return quantiles


def key(*parts: int) -> int:
    """Hash a sequence of integers to one of 64 bits."""
    word = 0
    for part in parts:
        word = (word + GOLDEN ^ part % WORD) % WORD
        word = (word ^ word >> 30) * FIRST % WORD
        word = (word ^ word >> 27) * SECOND % WORD
        word ^= word >> 31
    return word


def mix(words: Tensor) -> Tensor:
    """Output function of splitmix64, on int64 with wrap-around."""
    words = (words ^ shift_right(words, 30)) * signed(FIRST)
    words = (words ^ shift_right(words, 27)) * signed(SECOND)
    return words ^ shift_right(words, 31)


def shift_right(words: Tensor, bits: int) -> Tensor:
    """Shift right, filling with zeros; torch fills those of negative numbers with ones."""
    return torch.bitwise_right_shift(words, bits) & ((1 << 64 - bits) - 1)


def signed(word: int) -> int:
    """Return the int64 with the bits of an unsigned word."""
    return word - WORD if word >= WORD // 2 else word
