"""Every loss of the paper. Shapes: n samples, c newest classes, any trailing dimensions such as pixels: (n, c, ...).

All are computed in at least float32, from `log_softmax`, so that bfloat16 and logits of ±1e4 lose no precision.
"""

from collections.abc import Sequence
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from leco.ontology.version import NO_LABEL

Reduction = Literal["none", "mean", "sum"]


def evidence_nll(logits_nc: Tensor, evidence_nc: Tensor, reduction: Reduction = "none") -> Tensor:
    """Negative log-likelihood of each sample's label, of any version (the paper's L, eq. 1, and L_OldLPL, eq. 7).

    Cross-entropy for a newest-version label, learning with partial labels for a coarser one, zero for none. Equals
    ``lse(z) - lse(z + e)``, or ``-log(softmax(z) @ E)``. The mean is over samples whose label rules something out.

    >>> coarse = torch.tensor([[0.0, 0.0, -torch.inf]])
    >>> evidence_nll(torch.zeros(1, 3), coarse).exp()
    tensor([1.5000])
    """
    check_shapes(logits_nc, evidence_nc)
    log_probs = F.log_softmax(in_full(logits_nc), dim=1)
    labelled = (evidence_nc != 0).any(dim=1)
    nll = -torch.logsumexp(log_probs + evidence_nc, dim=1)
    # Exactly zero without a label and never negative; rounding would leave ±1e-7.
    return reduce(nll.where(labelled, 0.0).clamp(min=0), labelled, reduction)


def joint_nll(
    logits: Sequence[Tensor], labels: Sequence[Tensor], ignore_index: int = NO_LABEL, reduction: Reduction = "none"
) -> Tensor:
    """Cross-entropy of one head per version, summed over the heads (the paper's L_old, eq. 6: joint training).

    `logits` holds (n, classes of that version, ...) and `labels` (n, ...) for each head. With ``"mean"``, each head
    averages over the samples that have a label for it.

    >>> coarse, fine = torch.zeros(2, 2), torch.zeros(2, 4)
    >>> joint_nll([coarse, fine], [torch.tensor([0, 1]), torch.tensor([3, -1])]).exp()
    tensor([8., 2.])
    """
    if len(logits) != len(labels) or not logits:
        raise ValueError(f"joint_nll needs labels for every head: {len(logits)} heads, {len(labels)} label tensors")
    heads = [cross_entropy(z, y, ignore_index, reduction) for z, y in zip(logits, labels, strict=True)]
    return torch.stack(heads).sum(dim=0)


def cross_entropy(
    logits_nc: Tensor, labels: Tensor, ignore_index: int = NO_LABEL, reduction: Reduction = "none"
) -> Tensor:
    """Cross-entropy with integer labels; unlike torch's, the mean is zero, not NaN, if no sample is labelled."""
    nll = F.cross_entropy(in_full(logits_nc), labels.long(), ignore_index=ignore_index, reduction="none")
    return reduce(nll, labels != ignore_index, reduction)


def uniform_nll(logits_nc: Tensor) -> Tensor:
    """Cross-entropy with the uniform distribution, the part of a label that label smoothing spreads: (n, ...).

    >>> uniform_nll(torch.zeros(1, 4)).exp()
    tensor([4.])
    """
    return -F.log_softmax(in_full(logits_nc), dim=1).mean(dim=1)


def hard_pseudo_nll(
    logits_nc: Tensor,
    pseudo_labels: Tensor,
    keep: Tensor | None = None,
    ignore_index: int = NO_LABEL,
    reduction: Reduction = "none",
) -> Tensor:
    """Cross-entropy of the student with one-hot pseudo-labels (ST-Hard, eq. 2; PL and FixMatch as coded).

    `keep` (the paper's indicator, or `agrees`) sets the loss of rejected samples to zero. They still count in the
    mean, as in FixMatch: a batch with few reliable pseudo-labels pulls less. Ignored ones (void pixels) do not.
    """
    nll = cross_entropy(logits_nc, pseudo_labels, ignore_index)
    return reduce(kept(nll, keep), pseudo_labels != ignore_index, reduction)


def soft_pseudo_nll(
    logits_nc: Tensor,
    pseudo_probs_nc: Tensor,
    keep: Tensor | None = None,
    ignore: Tensor | None = None,
    reduction: Reduction = "none",
) -> Tensor:
    """Cross-entropy H(q, p) with soft pseudo-labels q (ST-Soft, eq. 3; PL and FixMatch as written, eq. 4 and 5).

    The paper calls it KL divergence; the two differ by the entropy of q, which has no gradient here: q is detached.
    `keep` is as in `hard_pseudo_nll`; samples to `ignore` (n, ...) cost nothing and do not count in the mean.
    """
    check_shapes(logits_nc, pseudo_probs_nc)
    probs_nc = pseudo_probs_nc.detach()
    log_probs = F.log_softmax(in_full(logits_nc), dim=1).masked_fill(probs_nc == 0, 0.0)  # 0 log 0 is 0
    nll = -(probs_nc * log_probs).sum(dim=1)
    counted = torch.ones_like(nll, dtype=torch.bool) if ignore is None else ~ignore
    return reduce(kept(kept(nll, counted), keep), counted, reduction)


def check_shapes(logits_nc: Tensor, other_nc: Tensor) -> None:
    """Raise instead of broadcasting one sample's row to others."""
    if logits_nc.shape != other_nc.shape:
        raise ValueError(f"logits of shape {tuple(logits_nc.shape)} do not fit rows of shape {tuple(other_nc.shape)}")


def in_full(logits: Tensor) -> Tensor:
    """Logits in float32, or float64 if they have it: half precision cannot resolve differences of logits of 1e4."""
    return logits.to(torch.promote_types(logits.dtype, torch.float32))


def kept(nll: Tensor, keep: Tensor | None) -> Tensor:
    """Set the losses of samples that are not kept to zero."""
    return nll if keep is None else nll.where(keep, 0.0)


def reduce(values: Tensor, counted: Tensor, reduction: Reduction) -> Tensor:
    """Sum `values`, or average them over those `counted`; the average is zero if none is."""
    match reduction:
        case "none":
            return values
        case "sum":
            return values.sum()
        case "mean":
            return values.sum() / counted.sum().clamp(min=1)
    raise ValueError(f"reduction must be 'none', 'mean' or 'sum', not {reduction!r}")
