"""A method as a sum of small terms over shared forward passes.

A term says which logits it needs; `forward_once` runs every distinct network, part of the batch and view exactly once.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Literal

import torch
from torch import Tensor

from leco.data.streams import Step
from leco.methods.indexed import guess, label_nll, label_nlls, soft_guess_nll
from leco.methods.losses import cross_entropy, hard_pseudo_nll
from leco.methods.method import Method
from leco.models.network import auxiliary
from leco.ontology.evidence import UNLABELLED, Evidence
from leco.ontology.version import NO_LABEL


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
    st_soft_filtered: bool = False  # ST-Soft always filtered, as it is coded; else only with /filter, as it is written
    coarse_on_new: bool = True  # joint and lpl also on the new samples; not in segmentation (appendix C)


@dataclass(frozen=True, eq=False)
class Mean:
    """A mean that is not divided yet: several processes add up both parts before they divide."""

    total: Tensor
    count: Tensor

    @classmethod
    def over(cls, values: Tensor, counted: Tensor) -> "Mean":
        """The mean of `values` over those `counted`; the others must be zero."""
        return cls(values.sum(), counted.sum())


@dataclass(frozen=True, eq=False)
class Loss:
    """A term's loss, as means to be added up, and what it saw of its pseudo-labels."""

    means: Sequence[Mean]
    health: Mapping[str, Mean] = field(default_factory=dict)


@dataclass(frozen=True)
class Term:
    """One summand of the loss."""

    name: str
    needs: tuple[Request, ...]
    loss: Callable[[Outputs, Step, Evidence], Loss]


@dataclass(frozen=True, eq=False)
class Combined:
    """What a step amounts to: the loss to differentiate, its terms, and the health of its pseudo-labels."""

    loss: Tensor
    terms: dict[str, float]
    health: dict[str, tuple[float, float]]  # total and count


def terms(method: Method, settings: Settings | None = None) -> tuple[Term, ...]:
    """The summands of a method, all with weight one (section 5.3 of the paper)."""
    settings = settings or Settings()
    summands = [Term("ce", (NEW,), newest_labels)]
    if method.coarse == "lpl":
        summands.append(Term("lpl", (NEW, HISTORY), partial(partial_labels, on_new=settings.coarse_on_new)))
    if method.coarse == "joint":
        summands.append(Term("joint", (NEW, HISTORY), partial(old_heads, on_new=settings.coarse_on_new)))
    if method.pseudo != "none":
        summands.append(pseudo_labels(method, settings))
    return tuple(summands)


def combine(losses: Mapping[str, Loss], add_up: Callable[[Tensor], Tensor] = lambda parts: parts) -> Combined:
    """Add up the losses of all terms; `add_up` adds totals and counts of several processes, where there are some.

    Every mean is divided by the count of all processes, so their gradients add up to those of one that sees it all.
    """
    means = [mean for loss in losses.values() for mean in (*loss.means, *loss.health.values())]
    parts = torch.stack([torch.stack((mean.total.detach().double(), mean.count.double())) for mean in means])
    whole = iter(add_up(parts).tolist())
    summands: list[Tensor] = []
    values: dict[str, float] = {}
    health: dict[str, tuple[float, float]] = {}
    for name, loss in losses.items():
        values[name] = 0.0
        for mean in loss.means:
            total, count = next(whole)
            summands.append(mean.total / max(count, 1.0))
            values[name] += total / max(count, 1.0)
        for quantity in loss.health:
            total, count = next(whole)
            health[quantity] = (total, count)
    return Combined(torch.stack(summands).sum(), values, health)


def forward_once(
    networks: Mapping[str, Callable[[Tensor], Logits]],
    views: Mapping[tuple[str, str], Tensor],
    summands: Sequence[Term],
    together: bool = False,
) -> dict[Request, Logits]:
    """Run every distinct request of the terms once; `views` holds inputs by (part, view). A teacher gets no gradient.

    Requests for a part that the batch does not have (no history in the first period) are left out. `together` makes
    one forward pass of all inputs of a network, whose BatchNorm then sees new samples and history mixed.
    """
    wanted = dict.fromkeys(request for term in summands for request in term.needs)
    requests = [request for request in wanted if (request.part, request.view) in views]
    groups = [[request] for request in requests]
    if together:
        groups = [[r for r in requests if r.network == name] for name in dict.fromkeys(r.network for r in requests)]
    outputs: dict[Request, Logits] = {}
    for group in groups:
        inputs = [views[request.part, request.view] for request in group]
        network = group[0].network
        differentiated = any(request in (NEW, HISTORY) for request in group)  # weak views only make pseudo-labels
        with torch.set_grad_enabled(torch.is_grad_enabled() and differentiated):
            logits = networks[network](torch.cat(inputs) if len(inputs) > 1 else inputs[0])
        start = 0
        for request, samples in zip(group, inputs, strict=True):
            stop = start + len(samples)
            outputs[request] = {version: values[start:stop] for version, values in logits.items()}
            start = stop
    return outputs


def newest_labels(outputs: Outputs, step: Step, evidence: Evidence) -> Loss:
    """L, eq. 1: cross-entropy of the new samples."""
    logits = outputs[NEW][evidence.ontology.newest.name]
    return Loss([_label_nll(logits, step.new.rows, evidence)])


def partial_labels(outputs: Outputs, step: Step, evidence: Evidence, on_new: bool = True) -> Loss:
    """L_LPL, eq. 7: for every earlier version, all samples that have a label there, the new ones by implication."""
    newest = evidence.ontology.newest.name
    given = [
        [(logits, evidence.ids(labels, v.name)) for logits, labels in _given(outputs, step, newest, v.name, on_new)]
        for v in evidence.ontology.versions[:-1]
    ]
    losses = iter(label_nlls([pair for pairs in given for pair in pairs], evidence))
    return Loss([_add([Mean.over(next(losses), rows != UNLABELLED) for _, rows in pairs]) for pairs in given])


def old_heads(outputs: Outputs, step: Step, evidence: Evidence, on_new: bool = True) -> Loss:
    """L_Joint, eq. 6: the same samples, each earlier version through a head of its own."""
    means = []
    for version in evidence.ontology.versions[:-1]:
        given = _given(outputs, step, version.name, version.name, on_new)
        means.append(_add([Mean.over(cross_entropy(z, y), y != NO_LABEL) for z, y in given]))
    return Loss(means)


def pseudo_labels(method: Method, settings: Settings) -> Term:
    """L_SSL, eq. 2 to 5, refined as section 6.2 says; only history has pseudo-labels.

    Their health: the share that is kept, and the share that agrees with the old label before any refinement.
    """
    source = {
        "st-hard": Request("teacher", "history", "strong"),
        "st-soft": Request("teacher", "history", "strong"),
        "pl": HISTORY,
        "fixmatch": Request("student", "history", "weak"),
    }[method.pseudo]
    hard = method.pseudo == "st-hard" or (method.pseudo in ("pl", "fixmatch") and not settings.soft)
    filtered = method.refine == "filter" or (method.pseudo == "st-soft" and settings.st_soft_filtered)

    def loss(outputs: Outputs, step: Step, evidence: Evidence) -> Loss:
        if step.history is None:
            return Loss([])
        newest, rows = evidence.ontology.newest.name, step.history.rows
        logits, guesses = outputs[HISTORY][newest], outputs[source][newest].detach()
        guessed = guess(guesses, rows, evidence, method.refine)
        labelled, seen = rows != UNLABELLED, guessable(rows)
        keep = seen
        if filtered:
            keep = keep & guessed.agrees
        if not method.needs_teacher:
            keep = keep & (guessed.confidence > settings.threshold)
        if hard:
            nll = hard_pseudo_nll(logits, guessed.labels, keep)
        else:
            nll = soft_guess_nll(logits, guesses, rows, evidence, method.refine, keep)
        health = {"kept": Mean.over(keep, seen), "agreement": Mean.over(guessed.agrees & labelled, labelled)}
        return Loss([Mean.over(nll, seen)], health)

    return Term(str(Method("ce", method.pseudo, method.refine)).removeprefix("ce+"), (source, HISTORY), loss)


def guessable(rows: Tensor) -> Tensor:
    """Which samples get a pseudo-label: all, but no void pixels, or pixels outside an image.

    An image without any label is not void, but unlabelled.
    """
    labelled = rows != UNLABELLED
    if rows.dim() == 1:
        return torch.ones_like(labelled)
    unlabelled = ~labelled.flatten(1).any(dim=1)
    return labelled | unlabelled.view(-1, *[1] * (rows.dim() - 1))


def _label_nll(logits: Tensor, rows: Tensor, evidence: Evidence) -> Mean:
    return Mean.over(label_nll(logits, rows, evidence), rows != UNLABELLED)


def _given(outputs: Outputs, step: Step, head: str, version: str, on_new: bool) -> list[tuple[Tensor, Tensor]]:
    """Logits of a head, and labels of a version, of the new samples and of history."""
    parts = [(NEW, step.new)] if on_new else []
    if step.history is not None:
        parts.append((HISTORY, step.history))
    return [(outputs[request][head], batch.labels[version]) for request, batch in parts]


def _add(means: Sequence[Mean]) -> Mean:
    """The mean over several sets of samples together."""
    return Mean(sum(m.total for m in means), sum(m.count for m in means))  # type: ignore[arg-type]


def auxiliary_outputs(outputs: Outputs) -> dict[Request, Logits]:
    """The same outputs with a student's auxiliary logits in place of its final ones; empty if it has none.

    Where the weak view of the student, or a teacher, makes pseudo-labels, its final logits still do.
    """
    found = {
        request: {version: logits[auxiliary(version)] for version in logits if auxiliary(version) in logits}
        for request, logits in outputs.items()
        if request in (NEW, HISTORY)
    }
    return {**outputs, **found} if any(found.values()) else {}
