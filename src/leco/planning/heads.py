"""A linear head on frozen features, trained by the evidence of labels of any version: a fraction of a second."""

import torch
import torch.nn.functional as F
from torch import Tensor

from leco.methods.losses import evidence_nll
from leco.ontology.evidence import Evidence

_STEPS = 40
_BLOCK = 16_384  # rows whose logits are held at once


def fit_head(features: Tensor, labels: Tensor, weights: Tensor, evidence: Evidence, prior: float) -> Tensor:
    """Weights (d + 1, c) of the likeliest head: evidence losses and a Gaussian prior, by L-BFGS from zero.

    A row counts `weights` times. From the same numbers, and on the same number of threads, the same head is found.
    """
    head = torch.zeros(features.shape[1] + 1, evidence.num_classes, requires_grad=True)
    optimiser = torch.optim.LBFGS(
        [head], max_iter=_STEPS, history_size=10, tolerance_change=1e-6, line_search_fn="strong_wolfe"
    )
    total = float(weights.sum())

    def closure() -> Tensor:
        optimiser.zero_grad()
        penalty = prior / total * head[:-1].square().sum()
        penalty.backward()  # type: ignore[no-untyped-call]
        value = penalty.detach()
        for block in torch.arange(len(features)).split(_BLOCK):  # type: ignore[no-untyped-call]
            nll = evidence_nll(logits(head, features[block]), evidence.gather(labels[block]))
            loss = (nll * weights[block]).sum() / total
            loss.backward()  # type: ignore[no-untyped-call]
            value = value + loss.detach()
        return value

    optimiser.step(closure)  # type: ignore[no-untyped-call]
    return head.detach()


def logits(head: Tensor, features: Tensor) -> Tensor:
    """(n, c); the last row of a head is its bias."""
    return F.linear(features, head[:-1].T, head[-1])


def history_weight(new: int, old: int) -> float:
    """What a row of history counts: less where they are many, as in the paper's batches (K = M).

    Together they weigh no more than the new ones. It is fixed for all subsamples of the same data, or history would
    count for less where new labels are few, just when it is needed most.

    >>> history_weight(100, 400)
    0.25
    """
    return min(1.0, new / max(old, 1))
