"""A method as a sum of small terms over shared forward passes.

A term says which logits it needs; `forward_once` runs every distinct network, part of the batch and view exactly once.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from leco.data.streams import Step
from leco.methods.losses import evidence_nll, hard_pseudo_nll, joint_nll, soft_pseudo_nll
from leco.methods.method import Method
from leco.methods.refinement import agrees, condition
from leco.ontology.evidence import Evidence


@dataclass(frozen=True)
class Request:
    """The logits of one network on one view of one part of the batch."""

    network: Literal["student", "teacher"]
    part: Literal["new", "history"]
    view: Literal["weak", "strong"]


Logits = dict[str, Tensor]  # version -> (n, c, ...)
Outputs = Mapping[Request, Logits]
NEW = Request("student", "new", "strong")
HISTORY = Request("student", "history", "strong")


@dataclass(frozen=True)
class Settings:
    """What the paper's text and its released code leave open; defaults are the paper's."""

    threshold: float = 0.95  # of PL and FixMatch, after conditioning
    soft: bool = False  # PL and FixMatch with soft targets, as they are written; else hard ones, as they are coded


@dataclass(frozen=True)
class Term:
    """One summand of the loss."""

    name: str
    needs: tuple[Request, ...]
    loss: Callable[[Outputs, Step, Evidence], Tensor]


def terms(method: Method, settings: Settings | None = None) -> tuple[Term, ...]:
    """The summands of a method, all with weight one (section 5.3 of the paper)."""
    settings = settings or Settings()
    summands = [Term("ce", (NEW,), newest_labels)]
    if method.coarse == "lpl":
        summands.append(Term("lpl", (NEW, HISTORY), partial_labels))
    if method.coarse == "joint":
        summands.append(Term("joint", (NEW, HISTORY), old_heads))
    if method.pseudo != "none":
        summands.append(pseudo_labels(method, settings))
    return tuple(summands)


def forward_once(
    networks: Mapping[str, Callable[[Tensor], Logits]],
    views: Mapping[tuple[str, str], Tensor],
    summands: Sequence[Term],
) -> dict[Request, Logits]:
    """Run every distinct request of the terms once; `views` holds inputs by (part, view). A teacher gets no gradient.

    Requests for a part that the batch does not have (no history in the first period) are left out.
    """
    requests = dict.fromkeys(request for term in summands for request in term.needs)
    outputs: dict[Request, Logits] = {}
    for request in requests:
        if (request.part, request.view) not in views:
            continue
        with torch.set_grad_enabled(torch.is_grad_enabled() and request.network == "student"):
            outputs[request] = networks[request.network](views[request.part, request.view])
    return outputs


def newest_labels(outputs: Outputs, step: Step, evidence: Evidence) -> Tensor:
    """L, eq. 1: cross-entropy of the new samples."""
    logits = outputs[NEW][evidence.ontology.newest.name]
    return evidence_nll(logits, evidence.gather(step.new.rows), reduction="mean")


def partial_labels(outputs: Outputs, step: Step, evidence: Evidence) -> Tensor:
    """L_LPL, eq. 7: for every earlier version, all samples that have a label there, the new ones by implication."""
    newest = evidence.ontology.newest.name
    losses = []
    for version in evidence.ontology.versions[:-1]:
        logits, labels = _everyone(outputs, step, newest, version.name)
        rows = evidence.rows(labels, version.name)
        losses.append(evidence_nll(logits, rows, reduction="mean"))
    return _total(losses, outputs)


def old_heads(outputs: Outputs, step: Step, evidence: Evidence) -> Tensor:
    """L_Joint, eq. 6: the same samples, each earlier version through a head of its own."""
    pairs = [_everyone(outputs, step, version.name, version.name) for version in evidence.ontology.versions[:-1]]
    losses = [joint_nll([logits], [labels], reduction="mean") for logits, labels in pairs]
    return _total(losses, outputs)


def pseudo_labels(method: Method, settings: Settings) -> Term:
    """L_SSL, eq. 2 to 5, refined as section 6.2 says; only history has pseudo-labels."""
    source = {
        "st-hard": Request("teacher", "history", "strong"),
        "st-soft": Request("teacher", "history", "strong"),
        "pl": HISTORY,
        "fixmatch": Request("student", "history", "weak"),
    }[method.pseudo]
    hard = method.pseudo == "st-hard" or (method.pseudo in ("pl", "fixmatch") and not settings.soft)

    def loss(outputs: Outputs, step: Step, evidence: Evidence) -> Tensor:
        if step.history is None:
            return _total([], outputs)
        newest = evidence.ontology.newest.name
        guess = outputs[source][newest].detach()
        rows = evidence.gather(step.history.rows)
        probs = condition(guess, rows) if method.refine == "cond" else guess.softmax(dim=1)
        keep = agrees(guess, rows) if method.refine == "filter" else None
        if not method.needs_teacher:
            sure = probs.amax(dim=1) > settings.threshold
            keep = sure if keep is None else keep & sure
        logits = outputs[HISTORY][newest]
        if hard:
            return hard_pseudo_nll(logits, probs.argmax(dim=1), keep, reduction="mean")
        return soft_pseudo_nll(logits, probs, keep, reduction="mean")

    return Term(str(Method("ce", method.pseudo, method.refine)).removeprefix("ce+"), (source, HISTORY), loss)


def _everyone(outputs: Outputs, step: Step, head: str, version: str) -> tuple[Tensor, Tensor]:
    """Logits of a head, and labels of a version, of new samples and history together."""
    logits, labels = [outputs[NEW][head]], [step.new.labels[version]]
    if step.history is not None:
        logits.append(outputs[HISTORY][head])
        labels.append(step.history.labels[version])
    return torch.cat(logits), torch.cat(labels)


def _total(losses: Sequence[Tensor], outputs: Outputs) -> Tensor:
    """The sum, or, in the first period, a zero on the right device."""
    if losses:
        return torch.stack(list(losses)).sum()
    return next(iter(next(iter(outputs.values())).values())).new_zeros(())
