"""What `losses` and `refinement` define, for labels given by their row ids, however many classes or samples (pixels).

Of few logits, these are the definitions themselves. Of many, evidence is made dense for one block at a time, if at
all, and no block is kept.
"""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from leco.methods.blockwise import LARGE, SMALL, At, block, blocks, blockwise_nll
from leco.methods.lookup import Lookup
from leco.methods.losses import Reduction, check_shapes, evidence_nll, in_full, kept, reduce, soft_pseudo_nll
from leco.methods.method import Refine
from leco.methods.refinement import agrees, condition
from leco.ontology.evidence import Evidence

FEW = 2**16  # logits: of these, going block by block takes longer than it saves


def label_nll(logits_nc: Tensor, rows: Tensor, evidence: Evidence, reduction: Reduction = "none") -> Tensor:
    """`evidence_nll` of labels by their row ids (n, ...): eq. 1 for newest labels, eq. 7 for older ones.

    Takes no longer than `F.cross_entropy`, and half its memory (`benchmarks/pixel_losses.py`). The gradient itself
    cannot be differentiated.

    >>> from leco import Ontology
    >>> history = {"v1": ["dog", "cat"], "v2": {"poodle": {"from": "dog"}, "husky": {"from": "dog"}, "cat": None}}
    >>> evidence = Ontology.from_dict({"versions": [{"name": k, "classes": v} for k, v in history.items()]}).evidence()
    >>> label_nll(torch.zeros(3, 3), evidence.ids(["dog", "cat", ""], version="v1"), evidence).exp()
    tensor([1.5000, 3.0000, 1.0000])
    """
    _check_rows(logits_nc, rows, evidence)
    if logits_nc.numel() <= FEW:
        return evidence_nll(logits_nc, evidence.gather(rows), reduction)
    label = Lookup.sparse(rows, evidence)

    def joint(log_probs: Tensor, at: At) -> tuple[Tensor, Tensor | None]:
        loglik, classes = label.at(at)
        return (log_probs if classes is None else log_probs.gather(1, classes)) + loglik, classes

    def losses(log_probs: Tensor, at: At) -> Tensor:
        possible, _ = joint(log_probs, at)
        # logsumexp in other words: torch.exp is slow where it underflows, as it does for impossible classes.
        return possible.log_softmax(dim=1).amax(dim=1) - possible.amax(dim=1)

    def targets(log_probs: Tensor, at: At) -> tuple[Tensor, Tensor | None]:
        possible, classes = joint(log_probs, at)
        return possible.softmax(dim=1), classes

    size = SMALL if label.classes is None and logits_nc.device.type == "cpu" else LARGE
    nll = blockwise_nll(logits_nc, losses, targets, size)
    return reduce(nll.where(label.labelled, 0.0).clamp(min=0), label.labelled, reduction)


def label_nlls(given: Sequence[tuple[Tensor, Tensor]], evidence: Evidence) -> list[Tensor]:
    """`label_nll` of several logits and row ids: of few together, since every operation on little takes as long."""
    if len(given) < 2 or sum(logits.numel() for logits, _ in given) > FEW:
        return [label_nll(logits, rows, evidence) for logits, rows in given]
    logits, rows = (torch.cat(parts) for parts in zip(*given, strict=True))
    return list(torch.split(label_nll(logits, rows, evidence), [len(rows) for _, rows in given]))


class Guess(NamedTuple):
    """The pseudo-label of each sample, (n, ...)."""

    labels: Tensor  # the likeliest class
    confidence: Tensor  # its probability
    agrees: Tensor  # whether the class that was likeliest before conditioning is possible given the label


@torch.no_grad()
def guess(logits_nc: Tensor, rows: Tensor, evidence: Evidence, refine: Refine = "plain") -> Guess:
    """Pseudo-labels (section 6.2 of the paper): `condition`, if `refine` is ``"cond"``, and `agrees`.

    >>> from leco import Ontology
    >>> history = {"v1": ["dog", "cat"], "v2": {"poodle": {"from": "dog"}, "husky": {"from": "dog"}, "cat": None}}
    >>> evidence = Ontology.from_dict({"versions": [{"name": k, "classes": v} for k, v in history.items()]}).evidence()
    >>> guess(torch.tensor([[2.0, 0.0, 9.0]]), evidence.ids(["dog"], "v1"), evidence, refine="cond")
    Guess(labels=tensor([0]), confidence=tensor([0.8808]), agrees=tensor([False]))
    """
    _check_rows(logits_nc, rows, evidence)
    if logits_nc.numel() <= FEW:
        return _guess(logits_nc, evidence.gather(rows), refine)
    label = Lookup.dense(rows, evidence)
    guesses = Guess(
        torch.empty_like(rows, dtype=torch.int64),
        torch.empty_like(rows, dtype=in_full(logits_nc[:0]).dtype),
        torch.empty_like(rows, dtype=torch.bool),
    )
    for at in blocks(logits_nc.shape, SMALL):
        for whole, part in zip(guesses, _guess(block(logits_nc, at), label.at(at)[0], refine), strict=True):
            whole[at] = part
    return guesses


def soft_guess_nll(
    logits_nc: Tensor,
    guess_logits_nc: Tensor,
    rows: Tensor,
    evidence: Evidence,
    refine: Refine = "plain",
    keep: Tensor | None = None,
    ignore: Tensor | None = None,
    reduction: Reduction = "none",
) -> Tensor:
    """`soft_pseudo_nll` with the probabilities, conditioned if so refined, that another network's logits stand for.

    They are made twice, in the forward and in the backward pass, rather than kept.
    """
    _check_rows(logits_nc, rows, evidence)
    check_shapes(logits_nc, guess_logits_nc)
    others = guess_logits_nc.detach()
    if logits_nc.numel() <= FEW:
        probs_nc = _probs(others, evidence.gather(rows), refine)
        return soft_pseudo_nll(logits_nc, probs_nc, keep, ignore, reduction)
    label = Lookup.dense(rows, evidence)

    def targets(_: Tensor, at: At) -> tuple[Tensor, None]:
        return _probs(block(others, at), label.at(at)[0], refine), None

    def losses(log_probs: Tensor, at: At) -> Tensor:
        probs, _ = targets(log_probs, at)
        return -(log_probs.masked_fill_(probs == 0, 0.0) * probs).sum(dim=1)  # 0 log 0 is 0

    nll = blockwise_nll(logits_nc, losses, targets, SMALL)
    counted = torch.ones_like(rows, dtype=torch.bool) if ignore is None else ~ignore
    return reduce(kept(kept(nll, counted), keep), counted, reduction)


def _guess(logits_nc: Tensor, loglik_nc: Tensor, refine: Refine) -> Guess:
    confidence, labels = _probs(logits_nc, loglik_nc, refine).max(dim=1)
    return Guess(labels, confidence, agrees(logits_nc, loglik_nc))


def _probs(logits_nc: Tensor, loglik_nc: Tensor, refine: Refine) -> Tensor:
    return condition(logits_nc, loglik_nc) if refine == "cond" else in_full(logits_nc).softmax(dim=1)


def _check_rows(logits_nc: Tensor, rows: Tensor, evidence: Evidence) -> None:
    expected = (logits_nc.shape[0], evidence.num_classes, *logits_nc.shape[2:])
    if logits_nc.shape != expected or rows.shape != (expected[0], *expected[2:]):
        raise ValueError(
            f"logits of shape {tuple(logits_nc.shape)} do not fit row ids of shape {tuple(rows.shape)} "
            f"and {evidence.num_classes} classes"
        )
