"""Logit adjustment (Menon et al. 2021): a network that does not prefer the classes that it saw most of."""

import torch
from torch import Tensor

from leco.data.samples import Column
from leco.training.handover import AnyNetwork, with_own_heads

_AT_ONCE = 4_096


def class_counts(labels: Column, indices: Tensor, classes: int) -> Tensor:
    """(classes,): how many samples, or pixels, are labelled as each class."""
    counts = torch.zeros(classes + 1, dtype=torch.int64)
    at_once = 1 if labels.read(indices[:1]).ndim > 1 else _AT_ONCE  # maps may be large
    for part in indices.split(at_once):  # type: ignore[no-untyped-call]
        given = labels.read(part).flatten().int().clamp(min=-1)  # what is below 0 is no class
        counts += torch.bincount(given + 1, minlength=classes + 1)
    return counts[1:]


def log_frequencies(counts: Tensor) -> Tensor:
    """How frequent each class is, 0 on average; one that never occurs counts as the rarest that does."""
    logs = counts.clamp(min=int(counts[counts > 0].min())).log()
    return logs - logs.mean()


@torch.no_grad()
def adjusted(network: AnyNetwork, counts: Tensor, strength: float) -> AnyNetwork:
    """The network with `strength` times the log frequency of each class taken off its newest logits.

    At 1, every class is as likely beforehand as any other. All but the heads is shared with `network`, which stays as
    it is.
    """
    other, (classifier, *_) = with_own_heads(network)
    assert classifier.bias is not None
    classifier.bias.sub_(strength * log_frequencies(counts).to(classifier.bias))
    return other
