"""The exponential moving average of the weights, which is what is evaluated (appendix E of the paper)."""

import copy

import torch
from torch import nn

from leco.settings import AverageSettings


class Average:
    """A copy of a model whose weights follow it slowly.

    With a decay of 0.999, weights of the first steps would dominate a run of a few hundred; `warm_up` lets the decay
    grow as (1 + k) / (10 + k) until it is reached. Buffers (BatchNorm's statistics) are copied, as FixMatch does, or
    averaged, too (`norm`): those of the last few steps do not fit weights that are an average of many.
    """

    def __init__(self, model: nn.Module, settings: AverageSettings) -> None:
        self.model = copy.deepcopy(model).eval().requires_grad_(False)
        self.settings = settings

    def decay_at(self, step: int) -> float:
        """The share of the old average that step number `step` (from 0) keeps."""
        decay = self.settings.decay
        return min(decay, (1 + step) / (10 + step)) if self.settings.warm_up else decay

    @torch.no_grad()
    def update(self, model: nn.Module, step: int) -> None:
        """Follow the model after one step."""
        ours, theirs = tuple(self.model.parameters()), tuple(p.detach() for p in model.parameters())
        share = 1 - self.decay_at(step)
        torch._foreach_lerp_(ours, theirs, share)
        for mine, buffer in zip(self.model.buffers(), model.buffers(), strict=True):
            if self.settings.norm and mine.is_floating_point():
                mine.lerp_(buffer, share)
            else:
                mine.copy_(buffer)
