"""Exponential moving average of the weights, which is the model that is evaluated (appendix E of the paper)."""

import copy

import torch
from torch import nn

from leco.settings import AverageSettings


class Average:
    """A copy of a model whose weights are the exponential moving average of the model's.

    With a decay of 0.999, the initial weights would dominate a run of a few hundred steps; with `warm_up`, the decay
    grows as (1 + k) / (10 + k) up to its final value. Buffers (BatchNorm's statistics) are copied, as in FixMatch, or
    averaged as well (`norm`): statistics of the last few steps do not fit weights averaged over many.
    """

    def __init__(self, model: nn.Module, settings: AverageSettings) -> None:
        self.model = copy.deepcopy(model).eval().requires_grad_(False)
        self.settings = settings

    def decay_at(self, step: int) -> float:
        """Decay at step number `step` (from 0)."""
        decay = self.settings.decay
        return min(decay, (1 + step) / (10 + step)) if self.settings.warm_up else decay

    @torch.no_grad()
    def update(self, model: nn.Module, step: int) -> None:
        """Update the average after one training step."""
        ours, theirs = tuple(self.model.parameters()), tuple(p.detach() for p in model.parameters())
        share = 1 - self.decay_at(step)
        torch._foreach_lerp_(ours, theirs, share)
        for mine, buffer in zip(self.model.buffers(), model.buffers(), strict=True):
            if self.settings.norm and mine.is_floating_point():
                mine.lerp_(buffer, share)
            else:
                mine.copy_(buffer)
