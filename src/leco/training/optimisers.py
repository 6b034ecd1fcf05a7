"""Optimisers and learning-rate schedules by name (appendices C and E of the paper)."""

import math
from collections.abc import Callable, Iterable

import torch
from torch import nn

from leco.registry import Registry
from leco.settings import OptimiserSettings

Schedule = Callable[[int, int], float]  # step k of K steps -> factor of the initial learning rate
OptimiserBuilder = Callable[[Iterable[nn.Parameter], OptimiserSettings], torch.optim.Optimizer]
SCHEDULES: Registry[Schedule] = Registry("schedule")
OPTIMISERS: Registry[OptimiserBuilder] = Registry("optimiser")


@SCHEDULES.register("cosine")
def cosine(step: int, steps: int) -> float:
    """cos(7πk / 16K): FixMatch's schedule, which ends at about a fifth of the initial rate.

    >>> round(cosine(0, 100), 3), round(cosine(100, 100), 3)
    (1.0, 0.195)
    """
    return math.cos(7 * math.pi * step / (16 * steps))


@SCHEDULES.register("poly")
def poly(step: int, steps: int) -> float:
    """(1 - k/K)^0.9: HRNet's schedule for segmentation.

    >>> poly(0, 100), poly(100, 100)
    (1.0, 0.0)
    """
    return float((1 - step / steps) ** 0.9)


@OPTIMISERS.register("sgd")
def sgd(parameters: Iterable[nn.Parameter], settings: OptimiserSettings) -> torch.optim.Optimizer:
    """Stochastic gradient descent with momentum: the paper's."""
    (rate,) = settings.learning_rate
    return torch.optim.SGD(
        parameters,
        lr=rate,
        momentum=settings.momentum,
        weight_decay=settings.weight_decay,
        nesterov=settings.nesterov,
    )


@OPTIMISERS.register("adamw")
def adamw(parameters: Iterable[nn.Parameter], settings: OptimiserSettings) -> torch.optim.Optimizer:
    """Adam with decoupled weight decay (Loshchilov and Hutter 2019)."""
    (rate,) = settings.learning_rate
    betas = (settings.momentum, 0.999)
    return torch.optim.AdamW(parameters, lr=rate, betas=betas, weight_decay=settings.weight_decay)
