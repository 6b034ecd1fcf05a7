"""Losses and counts of training steps: they stay on the device, and are read together, so that a GPU seldom waits."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

READ_EVERY = 50  # steps on a GPU; a loss that is NaN stops the run within as many


class Unread(NamedTuple):
    """Losses of a step, and totals and counts of the health of its pseudo-labels, on the device."""

    step: int
    rate: float  # of learning
    losses: dict[str, Tensor]
    health: dict[str, tuple[Tensor, Tensor]]


class Read(NamedTuple):
    """The same as numbers."""

    step: int
    rate: float
    losses: dict[str, float]
    health: dict[str, tuple[float, float]]


def read(steps: Sequence[Unread]) -> Iterator[Read]:
    """Read all values of some steps at once, and yield them step by step."""
    values = [value for step in steps for value in (*step.losses.values(), *sum(step.health.values(), ()))]
    numbers = iter(torch.stack(values).cpu().tolist() if values else ())
    for step, rate, losses, health in steps:
        read_losses = {name: next(numbers) for name in losses}
        yield Read(step, rate, read_losses, {name: (next(numbers), next(numbers)) for name in health})


class Pace:
    """Images per second between two readings: in between, steps are only queued."""

    def __init__(self) -> None:
        self.speed, self._images, self._seconds = 0.0, 0, 0.0

    def add(self, images: int, seconds: float, *, whole: bool) -> None:
        """Add a step; the speed changes with a `whole` stretch, after which the device has nothing left to do."""
        self._images, self._seconds = self._images + images, self._seconds + seconds
        if whole or not self.speed:
            self.speed = self._images / self._seconds
        if whole:
            self._images, self._seconds = 0, 0.0
