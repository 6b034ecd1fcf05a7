"""Pseudo-labels that are as frequent as the classes are: class-balanced assignment inside the coarse class."""

import torch
from torch import Tensor

from leco.methods.refinement import condition

ROUNDS = 50


def balancing_bias(logits_nc: Tensor, evidence_nc: Tensor, frequencies_c: Tensor) -> Tensor:
    """What to add to the logits of each class so that, given the labels, every class is guessed as often as it should.

    How often it should be: each sample is any class that its label allows, in proportion to `frequencies_c`, those of
    the new samples. The bias is found by Sinkhorn's iteration: guess, compare with what is expected, correct.

    >>> logits = torch.tensor([[2.0, 1.0], [1.5, 1.0]])
    >>> bias = balancing_bias(logits, torch.zeros(2, 2), torch.tensor([5.0, 5.0]))
    >>> condition(logits + bias, torch.zeros(2, 2)).sum(dim=0).round(decimals=3)
    tensor([1., 1.])
    """
    prior = frequencies_c.to(logits_nc).add(1).log().expand_as(logits_nc)
    expected = condition(prior, evidence_nc).sum(dim=0)
    bias = torch.zeros_like(expected)
    for _ in range(ROUNDS):
        guessed = condition(logits_nc + bias, evidence_nc).sum(dim=0)
        possible = (expected > 0) & (guessed > 0)
        bias = bias + torch.where(possible, (expected / guessed.where(possible, 1.0)).log(), 0.0)
    return bias - bias.mean()
