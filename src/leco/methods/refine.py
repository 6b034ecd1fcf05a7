"""Pseudo-labels made consistent with the old label of a sample (section 6.2 of the paper)."""

import torch
from torch import Tensor

from leco.methods.losses import check_shapes, in_full


def condition(logits_nc: Tensor, evidence_nc: Tensor) -> Tensor:
    """Probabilities given the sample's label: the Bayes posterior (the paper's Conditioning).

    For a tree this is "zero the classes outside the coarse label, renormalise", without its division by a sum that
    underflows to zero.

    >>> condition(torch.tensor([[2.0, 0.0, 9.0]]), torch.tensor([[0.0, 0.0, -torch.inf]]))
    tensor([[0.8808, 0.1192, 0.0000]])
    """
    check_shapes(logits_nc, evidence_nc)
    possible = in_full(logits_nc).masked_fill(evidence_nc == -torch.inf, -torch.inf)
    # Relative to the likeliest possible class: log 0.7 would be rounded away when added to a logit of 1e4.
    return torch.softmax(possible - possible.amax(dim=1, keepdim=True) + evidence_nc, dim=1)


def agrees(logits_nc: Tensor, evidence_nc: Tensor) -> Tensor:
    """Whether the likeliest class is possible given the sample's label (the paper's Filtering keeps these).

    >>> agrees(torch.tensor([[2.0, 0.0, 9.0]]), torch.tensor([[0.0, 0.0, -torch.inf]]))
    tensor([False])
    """
    check_shapes(logits_nc, evidence_nc)
    likeliest = logits_nc.argmax(dim=1, keepdim=True)
    return evidence_nc.gather(1, likeliest).squeeze(1) > -torch.inf


ROUNDS = 50


def balancing_bias(logits_nc: Tensor, evidence_nc: Tensor, frequencies_c: Tensor) -> Tensor:
    """Bias to add to the logits so that, given the labels, every class is predicted at its expected frequency.

    A sample is expected to be any class that its label allows, in proportion to `frequencies_c`, the class frequencies
    of the new samples. Found by Sinkhorn's iteration: predict, compare with the expectation, correct.

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
