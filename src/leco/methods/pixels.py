"""Losses of very many samples (pixels), block by block: only the logits are kept for the backward pass.

`F.cross_entropy` allocates up to three more tensors of the size of the logits; this one their gradient and a block.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.utils.weak import WeakIdKeyDictionary

from leco.methods.losses import Reduction, check_shapes, evidence_nll, in_full, kept, reduce, soft_pseudo_nll
from leco.methods.method import Refine
from leco.methods.refine import agrees, condition
from leco.ontology.evidence import UNLABELLED, Evidence

LARGE = 2**27  # numbers in a block: large, so that threads rarely synchronise
SMALL = 2**21  # for blocks that are read many times and should fit a CPU's cache
At = tuple[slice, ...]  # which samples and, of large ones, which part of their first trailing dimension
Losses = Callable[[Tensor, At], Tensor]
Targets = Callable[[Tensor, At], tuple[Tensor, Tensor | None]]


def blocks(shape: Sequence[int], size: int) -> Iterator[At]:
    """Cut (n, c, ...) into blocks of similar size, at most `size` numbers if possible: whole samples, or stripes.

    >>> list(blocks((3, 5), size=10))
    [(slice(0, 2, None),), (slice(2, 4, None),)]
    >>> list(blocks((1, 5, 4, 8), size=100))
    [(slice(0, 1, None), slice(0, 2, None)), (slice(0, 1, None), slice(2, 4, None))]
    """
    samples, *trailing = shape[0], *shape[2:]
    sample = math.prod(shape[1:])
    if sample <= size or not trailing:
        step = max(1, size // max(1, sample))
        yield from ((slice(start, start + step),) for start in range(0, samples, step))
        return
    step = -(-trailing[0] // -(-sample // size))
    for number in range(samples):
        for start in range(0, trailing[0], step):
            yield slice(number, number + 1), slice(start, start + step)


def block(values_nc: Tensor, at: At) -> Tensor:
    """One block of (n, c, ...), as a view."""
    return values_nc[(at[0], slice(None), *at[1:])]


def blockwise_nll(logits_nc: Tensor, losses: Losses, targets: Targets, size: int = LARGE) -> Tensor:
    """Loss of each sample, (n, ...), whose gradient is that of cross-entropy: ``softmax(z) - target``.

    Given the log-probabilities of a block, `losses` returns the losses and `targets` the target probabilities, either
    of all classes, or of a few along with the indices of these classes; the others are zero.
    """
    nll: Tensor = _BlockwiseNLL.apply(logits_nc, losses, targets, size)
    return nll


class _BlockwiseNLL(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, logits_nc: Tensor, losses: Losses, targets: Targets, size: int) -> Tensor:
        ctx.save_for_backward(logits_nc)
        ctx.targets, ctx.size = targets, size
        dtype = torch.promote_types(logits_nc.dtype, torch.float32)
        nll = logits_nc.new_empty((logits_nc.shape[0], *logits_nc.shape[2:]), dtype=dtype)
        for at, log_probs in _log_probs(logits_nc, size):
            nll[at] = losses(log_probs, at)
        return nll

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, slope: Tensor) -> tuple[Tensor, None, None, None]:
        (logits_nc,) = ctx.saved_tensors
        gradient = torch.empty_like(logits_nc)
        for at, log_probs in _log_probs(logits_nc, ctx.size):
            target, classes = ctx.targets(log_probs, at)
            probs = log_probs.exp_()
            if classes is None:
                probs -= target
            else:
                probs.scatter_add_(1, classes, -target)
            torch.mul(probs, slope[at].unsqueeze(1), out=block(gradient, at))
        return gradient, None, None, None


def _log_probs(logits_nc: Tensor, size: int) -> Iterator[tuple[At, Tensor]]:
    """Yield the log-probabilities of each block in the same buffer: allocating memory costs as much as the maths."""
    memory: Tensor | None = None
    for at in blocks(logits_nc.shape, size):
        logits = in_full(block(logits_nc, at))
        if memory is None or memory.shape != logits.shape:
            memory = logits.new_empty(logits.shape)
        yield at, torch.log_softmax(logits, dim=1, out=memory)


_SPARSE = 8  # looking up single classes pays off if every label allows at most one class in eight


class Lookup(Protocol):
    """Log-likelihoods of the labels of samples (n, ...)."""

    @property
    def few(self) -> bool:
        """Whether only the classes that labels allow are looked up, not all."""
        ...

    def at(self, at: At) -> tuple[Tensor, Tensor | None]:
        """Log-likelihoods of a block of samples, (n, c or m, ...), and the classes they belong to; None for all."""
        ...


def look_up(rows: Tensor, evidence: Evidence, version: str | None = None, *, sparse: bool) -> Lookup:
    """Look up all classes or, if `sparse`, those that labels allow if they are few; all labels may be of one version.

    Nothing here waits for a GPU.
    """
    if rows.dim() == 1:
        most = evidence.longest(rows, version) if sparse else evidence.num_classes
        few = most <= max(1, evidence.num_classes // _SPARSE)
        return _OfSamples(rows, evidence, most if few else None)
    distinct, column = _distinct(rows, evidence)
    most = evidence.longest(distinct, version) if sparse else evidence.num_classes
    if most > max(1, evidence.num_classes // _SPARSE):
        return _OfPixels(rows, column, evidence.gather(distinct).T.contiguous(), None)
    classes, loglik = evidence.entries(distinct, most)
    return _OfPixels(rows, column, _padded(loglik, distinct).T.contiguous(), classes.T.contiguous())


def _padded(loglik_nm: Tensor, rows: Tensor) -> Tensor:
    """Without a label, all classes are possible, but one suffices: its loss is not used."""
    first = torch.arange(loglik_nm.shape[1], device=rows.device) == 0
    return loglik_nm.masked_fill((rows == UNLABELLED).unsqueeze(1) & first, 0.0)


@dataclass(frozen=True, eq=False)
class _OfSamples:
    """A label each, which differ: they are looked up in the evidence itself."""

    rows: Tensor  # (n,) row ids
    evidence: Evidence
    most: int | None  # classes that a label allows; None to look up all

    @property
    def few(self) -> bool:
        return self.most is not None

    def at(self, at: At) -> tuple[Tensor, Tensor | None]:
        rows = self.rows[at].long()
        if self.most is None:
            return self.evidence.gather(rows), None
        classes, loglik = self.evidence.entries(rows, self.most)
        return _padded(loglik, rows), classes


@dataclass(frozen=True, eq=False)
class _OfPixels:
    """Many labels, of which k are distinct: those are looked up once."""

    rows: Tensor  # (n, ...) row ids
    column: Tensor  # (num_rows,) column of a row id in `loglik`
    loglik: Tensor  # (c or m, k)
    classes: Tensor | None  # (m, k), or None for all; padding repeats a class with -inf

    @property
    def few(self) -> bool:
        return self.classes is not None

    def at(self, at: At) -> tuple[Tensor, Tensor | None]:
        column = self.column[self.rows[at]]
        return _spread(self.loglik, column), None if self.classes is None else _spread(self.classes, column)


def _distinct(rows: Tensor, evidence: Evidence) -> tuple[Tensor, Tensor]:
    """Row ids that occur, and "unlabelled"; and the position of each id among them. On GPUs, all row ids."""
    if rows.device.type != "cpu":
        every = torch.arange(len(evidence), device=rows.device)
        return every, every
    occurs = torch.bincount(rows.reshape(-1), minlength=len(evidence)) > 0  # no sorting: there may be millions
    occurs[UNLABELLED] = True
    return occurs.nonzero().squeeze(1), occurs.cumsum(0) - 1


def _spread(table: Tensor, column: Tensor) -> Tensor:
    """Columns of a table (m, k) for samples (n, ...): (n, m, ...)."""
    samples, trailing = column.shape[0], column.shape[1:]
    index = column.reshape(samples, 1, math.prod(trailing)).expand(-1, len(table), -1)
    return table.expand(samples, -1, -1).gather(2, index).view(samples, len(table), *trailing)


_SHARED = WeakIdKeyDictionary()


def shared_log_probs(logits_nc: Tensor) -> Tensor:
    """Log-probabilities in full precision; several losses of the same logits share them, forward and backward."""
    found: Tensor | None = _SHARED.get(logits_nc)  # type: ignore[no-untyped-call]
    if found is None or found.requires_grad != (logits_nc.requires_grad and torch.is_grad_enabled()):
        found = _SHARED[logits_nc] = torch.log_softmax(in_full(logits_nc), dim=1)
    return found


def _few_allowed(rows: Tensor, evidence: Evidence) -> tuple[Tensor, Tensor] | None:
    """The few classes that the label of each sample allows, and their log-likelihoods: (n, m) each; None if many."""
    label = look_up(rows, evidence, sparse=True)
    loglik, classes = label.at((slice(None),)) if label.few else (rows, None)
    return None if classes is None else (classes, loglik)


FEW = 2**16  # logits: below this number, blocks take longer than they save


def label_nll(
    logits_nc: Tensor,
    rows: Tensor,
    evidence: Evidence,
    reduction: Reduction = "none",
    *,
    version: str | None = None,
    few: int = FEW,
) -> Tensor:
    """`evidence_nll` of labels by their row ids (n, ...): eq. 1 for newest labels, eq. 7 for older ones.

    If all labels are of one `version`, naming it saves finding out how many classes they allow. As fast as
    `F.cross_entropy`, with half the memory (`benchmarks/pixel_losses.py`). Not twice differentiable.

    >>> from leco import Ontology
    >>> history = {"v1": ["dog", "cat"], "v2": {"poodle": {"from": "dog"}, "husky": {"from": "dog"}, "cat": None}}
    >>> evidence = Ontology.from_dict({"versions": [{"name": k, "classes": v} for k, v in history.items()]}).evidence()
    >>> label_nll(torch.zeros(3, 3), evidence.ids(["dog", "cat", ""], version="v1"), evidence).exp()
    tensor([1.5000, 3.0000, 1.0000])
    """
    _check_rows(logits_nc, rows, evidence)
    if logits_nc.numel() <= few:
        return evidence_nll(logits_nc, evidence.gather(rows), reduction)
    label = look_up(rows, evidence, version, sparse=True)
    labelled = evidence.informative[rows]
    if rows.dim() == 1 and label.few:
        loglik, classes = label.at((slice(None),))
        assert classes is not None
        nll = -torch.logsumexp(shared_log_probs(logits_nc).gather(1, classes) + loglik, dim=1)
        return reduce(nll.where(labelled, 0.0).clamp(min=0), labelled, reduction)

    def joint(log_probs: Tensor, at: At) -> tuple[Tensor, Tensor | None]:
        loglik, classes = label.at(at)
        return (log_probs if classes is None else log_probs.gather(1, classes)) + loglik, classes

    def losses(log_probs: Tensor, at: At) -> Tensor:
        possible, _ = joint(log_probs, at)
        # logsumexp written out: torch.exp is slow where it underflows, as it does for impossible classes.
        return possible.log_softmax(dim=1).amax(dim=1) - possible.amax(dim=1)

    def targets(log_probs: Tensor, at: At) -> tuple[Tensor, Tensor | None]:
        possible, classes = joint(log_probs, at)
        return possible.softmax(dim=1), classes

    size = SMALL if not label.few and logits_nc.device.type == "cpu" else LARGE
    nll = blockwise_nll(logits_nc, losses, targets, size)
    return reduce(nll.where(labelled, 0.0).clamp(min=0), labelled, reduction)


def label_nlls(given: Sequence[tuple[Tensor, Tensor, str]], evidence: Evidence) -> list[Tensor]:
    """`label_nll` of several logits, row ids and versions; small ones are concatenated, as operations have overhead."""
    if len(given) < 2 or sum(logits.numel() for logits, *_ in given) > FEW:
        return [label_nll(logits, rows, evidence, version=version) for logits, rows, version in given]
    logits, rows = torch.cat([z for z, *_ in given]), torch.cat([ids for _, ids, _ in given])
    return list(torch.split(label_nll(logits, rows, evidence), [len(rows) for _, rows, _ in given]))


class Guess(NamedTuple):
    """The pseudo-label of each sample, (n, ...)."""

    labels: Tensor  # the likeliest class
    confidence: Tensor  # its probability
    agrees: Tensor  # whether the class that was likeliest before conditioning is possible given the label


@torch.no_grad()
def guess(
    logits_nc: Tensor,
    rows: Tensor,
    evidence: Evidence,
    refine: Refine = "plain",
    *,
    complete: bool = False,
    few: int = FEW,
) -> Guess:
    """Pseudo-labels (section 6.2 of the paper): `condition`, if `refine` is ``"cond"``, and `agrees`.

    >>> from leco import Ontology
    >>> history = {"v1": ["dog", "cat"], "v2": {"poodle": {"from": "dog"}, "husky": {"from": "dog"}, "cat": None}}
    >>> evidence = Ontology.from_dict({"versions": [{"name": k, "classes": v} for k, v in history.items()]}).evidence()
    >>> guess(torch.tensor([[2.0, 0.0, 9.0]]), evidence.ids(["dog"], "v1"), evidence, refine="cond")
    Guess(labels=tensor([0]), confidence=tensor([0.8808]), agrees=tensor([False]))
    """
    _check_rows(logits_nc, rows, evidence)
    if logits_nc.numel() <= few:
        return _guess(logits_nc, evidence.gather(rows), refine)
    allowed = _few_allowed(rows, evidence) if complete and refine == "cond" else None
    if allowed is not None:
        classes, loglik = allowed
        confidence, place = condition(logits_nc.gather(1, classes), loglik).max(dim=1)
        likeliest = logits_nc.argmax(dim=1, keepdim=True)
        possible = ((classes == likeliest) & (loglik > -torch.inf)).any(dim=1)
        return Guess(classes.gather(1, place.unsqueeze(1)).squeeze(1), confidence, possible)
    label = look_up(rows, evidence, sparse=False)
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
    *,
    keep: Tensor | None = None,
    ignore: Tensor | None = None,
    reduction: Reduction = "none",
    complete: bool = False,
    few: int = FEW,
) -> Tensor:
    """`soft_pseudo_nll` with the probabilities given by another network's logits, conditioned if `refine` is "cond".

    They are computed in both the forward and the backward pass rather than stored. `complete` says that `rows` (n,) are
    of samples that all have a label; if labels allow few classes, only these are looked at.
    """
    _check_rows(logits_nc, rows, evidence)
    check_shapes(logits_nc, guess_logits_nc)
    others = guess_logits_nc.detach()
    if logits_nc.numel() <= few:
        probs_nc = _probs(others, evidence.gather(rows), refine)
        return soft_pseudo_nll(logits_nc, probs_nc, keep, ignore, reduction)
    counted = torch.ones_like(rows, dtype=torch.bool) if ignore is None else ~ignore
    allowed = _few_allowed(rows, evidence) if complete and refine == "cond" else None
    if allowed is not None:
        classes, loglik = allowed
        probs = condition(others.gather(1, classes), loglik)
        log_probs = shared_log_probs(logits_nc).gather(1, classes).masked_fill(probs == 0, 0.0)  # 0 log 0 is 0
        return reduce(kept(kept(-(probs * log_probs).sum(dim=1), counted), keep), counted, reduction)
    label = look_up(rows, evidence, sparse=False)

    def targets(_: Tensor, at: At) -> tuple[Tensor, None]:
        return _probs(block(others, at), label.at(at)[0], refine), None

    def losses(log_probs: Tensor, at: At) -> Tensor:
        probs, _ = targets(log_probs, at)
        return -(log_probs.masked_fill_(probs == 0, 0.0) * probs).sum(dim=1)  # 0 log 0 is 0

    nll = blockwise_nll(logits_nc, losses, targets, SMALL)
    return reduce(kept(kept(nll, counted), keep), counted, reduction)


def masked_divergence(
    logits_nc: Tensor, guess_logits_nc: Tensor, rows: Tensor, evidence: Evidence, *, few: int = FEW
) -> Tensor:
    """KL divergence from another network's probabilities, summed over the classes that the label allows: (n, ...).

    ST-Soft as it was released. With q the probabilities, E the label's column of the edge matrix and p those of the
    student: ``sum(E q (log q - log p))``. This is ``m (H(c, p) - H(c, q))`` with c the conditioned probabilities and m
    the probability of the label, so the gradient is that of ST-Soft with conditioning, times m.

    >>> from leco import Ontology
    >>> history = {"v1": ["dog", "cat"], "v2": {"poodle": {"from": "dog"}, "husky": {"from": "dog"}, "cat": None}}
    >>> evidence = Ontology.from_dict({"versions": [{"name": k, "classes": v} for k, v in history.items()]}).evidence()
    >>> student, teacher = torch.zeros(1, 3), torch.tensor([[0.5, 0.25, 0.25]]).log()
    >>> masked_divergence(student, teacher, evidence.ids(["dog"], "v1"), evidence)
    tensor([0.1308])
    """
    others = guess_logits_nc.detach()
    mass = label_nll(others, rows, evidence, few=few).neg().exp()
    student, teacher = (soft_guess_nll(z, others, rows, evidence, "cond", few=few) for z in (logits_nc, others))
    return mass * (student - teacher)


def _guess(logits_nc: Tensor, loglik_nc: Tensor, refine: Refine) -> Guess:
    confidence, labels = _probs(logits_nc, loglik_nc, refine).max(dim=1)
    return Guess(labels, confidence, agrees(logits_nc, loglik_nc))


def _probs(logits_nc: Tensor, loglik_nc: Tensor, refine: Refine) -> Tensor:
    return condition(logits_nc, loglik_nc) if refine == "cond" else in_full(logits_nc).softmax(dim=1)


def _check_rows(logits_nc: Tensor, rows: Tensor, evidence: Evidence) -> None:
    expected = (logits_nc.shape[0], evidence.num_classes, *logits_nc.shape[2:])
    if logits_nc.shape != expected or rows.shape != (expected[0], *expected[2:]):
        shapes = f"logits of shape {tuple(logits_nc.shape)} do not fit row ids of shape {tuple(rows.shape)}"
        raise ValueError(f"{shapes} and {evidence.num_classes} classes")
