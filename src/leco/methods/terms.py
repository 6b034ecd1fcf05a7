"""A method as a sum of small terms over shared forward passes.

A term lists the logits it needs; `forward_once` runs each distinct (network, part of the batch, view) exactly once.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Literal, Protocol

import torch
from torch import Tensor

from leco.methods.losses import cross_entropy, hard_pseudo_nll, kept, uniform_nll
from leco.methods.method import Kind, Method, declare
from leco.methods.pixels import guess, label_nll, label_nlls, masked_divergence, soft_guess_nll
from leco.ontology.evidence import UNLABELLED, Evidence
from leco.ontology.version import NO_LABEL
from leco.placement import widest
from leco.registry import Registry
from leco.settings import HistorySettings, LossSettings, PseudoLabelSettings


@dataclass(frozen=True)
class Request:
    """The logits of one network on one view of one part of the batch."""

    network: Literal["student", "teacher"]
    part: Literal["new", "history"]
    view: Literal["weak", "strong"]


Logits = dict[str, Tensor]  # version -> (n, c, ...)
Outputs = Mapping[Request, Logits]
AUXILIARY_WEIGHT = 0.4  # of HRNet's OCR heads
NEW = Request("student", "new", "strong")
HISTORY = Request("student", "history", "strong")


class Labelled(Protocol):
    """Samples of one part of a batch: evidence rows, and labels by version."""

    @property
    def rows(self) -> Tensor:
        """Row ids of evidence (n, ...)."""
        ...

    @property
    def labels(self) -> Mapping[str, Tensor]:
        """Labels (n, ...) of every version that has any; -1 where one is missing."""
        ...

    @property
    def complete(self) -> bool:
        """Whether every sample is known to have a label."""
        ...


class Step(Protocol):
    """The samples of one training step."""

    @property
    def new(self) -> Labelled:
        """Samples labelled in the newest version."""
        ...

    @property
    def history(self) -> Labelled | None:
        """Samples of earlier periods."""
        ...


@dataclass(frozen=True, eq=False)
class Mean:
    """Numerator and denominator of a mean: several processes sum both before they divide."""

    total: Tensor
    count: Tensor

    @classmethod
    def over(cls, values: Tensor, counted: Tensor) -> "Mean":
        """Mean of `values` over those `counted`; the others must be zero."""
        return cls(values.sum(), counted.sum())


@dataclass(frozen=True, eq=False)
class Loss:
    """A term's loss, as means to be summed, and statistics of its pseudo-labels."""

    means: Sequence[Mean]
    health: Mapping[str, Mean] = field(default_factory=dict)


@dataclass(frozen=True)
class Term:
    """One term of the loss."""

    name: str
    needs: tuple[Request, ...]
    loss: Callable[[Outputs, Step, Evidence], Loss]
    check: Callable[[Step, Evidence], None] = lambda *_: None  # of labels on the CPU, before they are used


@dataclass(frozen=True, eq=False)
class Combined:
    """The loss of a step, the value of each term, and the health of the pseudo-labels; all on the device."""

    loss: Tensor
    terms: dict[str, Tensor]
    health: dict[str, tuple[Tensor, Tensor]]  # total and count


TermBuilder = Callable[[Method, PseudoLabelSettings, HistorySettings], Term]
TERMS: Registry[TermBuilder] = Registry("term")


def register_term(
    name: str, kind: Kind, *, needs_teacher: bool = False, needs_old_heads: bool = False
) -> Callable[[TermBuilder], TermBuilder]:
    """Register a loss for coarse labels, or for pseudo-labels of history, under a name for use in methods."""
    declare(name, kind, needs_teacher=needs_teacher, needs_old_heads=needs_old_heads)
    return TERMS.register(name)


def terms(
    method: Method,
    pseudo_labels: PseudoLabelSettings | None = None,
    history: HistorySettings | None = None,
    loss: LossSettings | None = None,
) -> tuple[Term, ...]:
    """Terms of a method, all with weight one (section 5.3 of the paper)."""
    settings = (pseudo_labels or PseudoLabelSettings(), history or HistorySettings())
    names = [method.coarse] * (method.coarse != "ce") + [method.pseudo] * (method.pseudo != "none")
    newest = partial(newest_labels, smoothing=(loss or LossSettings()).label_smoothing)
    return (Term("ce", (NEW,), newest), *(TERMS[name](method, *settings) for name in names))


def sums(losses: Mapping[str, Loss]) -> Tensor:
    """Totals and counts of all means, in their order: (means, 2)."""
    means = [mean for loss in losses.values() for mean in (*loss.means, *loss.health.values())]
    kind = widest(means[0].total.device)
    return torch.stack([torch.stack((mean.total.detach().to(kind), mean.count.to(kind))) for mean in means])


def combine(losses: Mapping[str, Loss], add_up: Callable[[Tensor], Tensor] = lambda parts: parts) -> Combined:
    """Sum the losses of all terms; `add_up` sums totals and counts over processes, if there are several.

    Every mean is divided by the count of all processes, so that gradients sum to those of a single process.
    """
    parts = sums(losses)
    whole = iter(add_up(parts).unbind())
    summands: list[Tensor] = []
    values: dict[str, Tensor] = {}
    health: dict[str, tuple[Tensor, Tensor]] = {}
    for name, loss in losses.items():
        values[name] = parts.new_zeros(())
        for mean in loss.means:
            total, count = next(whole).unbind()
            summands.append(mean.total / count.clamp(min=1).to(mean.total.dtype))
            values[name] = values[name] + total / count.clamp(min=1)
        for quantity in loss.health:
            total, count = next(whole).unbind()
            health[quantity] = (total, count)
    return Combined(torch.stack(summands).sum(), values, health)


def forward_once(
    networks: Mapping[str, Callable[[Any], Logits]],
    views: Mapping[tuple[str, str], Tensor],
    summands: Sequence[Term],
) -> dict[Request, Logits]:
    """Run every distinct request of the terms once; `views` holds inputs by (part, view). A teacher gets no gradient.

    Requests for a part that the batch lacks (history in the first period) are skipped. New samples and history are
    forwarded separately, so that BatchNorm normalises each by its own statistics (decision 10); heads with very many
    classes see both at once (`Network.joins_parts`).
    """
    wanted = dict.fromkeys(request for term in summands for request in term.needs)
    outputs: dict[Request, Logits] = {}
    both = (NEW, HISTORY)
    student = networks["student"]
    if getattr(student, "joins_parts", False) and all(r in wanted and (r.part, r.view) in views for r in both):
        inputs = tuple(views[request.part, request.view] for request in both)
        sizes = [len(part) for part in inputs]
        found = {version: torch.split(logits, sizes) for version, logits in student(inputs).items()}
        outputs = {request: {v: parts[place] for v, parts in found.items()} for place, request in enumerate(both)}
    for request in wanted:
        if request not in outputs and (request.part, request.view) in views:
            differentiated = request in (NEW, HISTORY)  # weak views only make pseudo-labels
            with torch.set_grad_enabled(torch.is_grad_enabled() and differentiated):
                outputs[request] = networks[request.network](views[request.part, request.view])
    return outputs


def newest_labels(outputs: Outputs, step: Step, evidence: Evidence, smoothing: float = 0.0) -> Loss:
    """L, eq. 1: cross-entropy of the new samples, of whose labels a share (`smoothing`) is spread over all classes."""
    logits, rows = outputs[NEW][evidence.ontology.newest.name], step.new.rows
    nll = label_nll(logits, rows, evidence, version=evidence.ontology.newest.name)
    if smoothing:
        nll = (1 - smoothing) * nll + smoothing * uniform_nll(logits).where(rows != UNLABELLED, 0.0)
    return Loss([Mean.over(nll, rows != UNLABELLED)])


def partial_labels(outputs: Outputs, step: Step, evidence: Evidence, on_new: bool = True, sums: bool = False) -> Loss:
    """L_LPL, eq. 7: for every earlier version, all samples with a label in it; those of new samples are implied."""
    newest = evidence.ontology.newest.name
    given = [
        [
            (logits, evidence.known_ids(labels, v.name), v.name)
            for logits, labels in _given(outputs, step, newest, v.name, on_new)
        ]
        for v in evidence.ontology.versions[:-1]
    ]
    losses = iter(label_nlls([part for parts in given for part in parts], evidence))
    means = [_add([Mean.over(next(losses), rows != UNLABELLED) for _, rows, _ in parts]) for parts in given]
    return Loss(_per_new_sample(means, step) if sums else means)


def check_labels(step: Step, evidence: Evidence, on_new: bool = True) -> None:
    """Refuse labels of earlier versions that no newest class explains."""
    for version in evidence.with_impossible:
        for batch in (step.new if on_new else None, step.history):
            if batch is not None:
                evidence.ids(batch.labels[version], version)


def old_heads(outputs: Outputs, step: Step, evidence: Evidence, on_new: bool = True, sums: bool = False) -> Loss:
    """L_Joint, eq. 6: the same samples, with a separate head for each earlier version."""
    means = []
    for version in evidence.ontology.versions[:-1]:
        given = _given(outputs, step, version.name, version.name, on_new)
        means.append(_add([Mean.over(cross_entropy(z, y), y != NO_LABEL) for z, y in given]))
    return Loss(_per_new_sample(means, step) if sums else means)


@register_term("lpl", "coarse")
def _partial_labels_term(_: Method, __: PseudoLabelSettings, history: HistorySettings) -> Term:
    loss = partial(partial_labels, on_new=history.coarse_on_new, sums=history.sums)
    return Term("lpl", (NEW, HISTORY), loss, partial(check_labels, on_new=history.coarse_on_new))


@register_term("joint", "coarse", needs_old_heads=True)
def _old_heads_term(_: Method, __: PseudoLabelSettings, history: HistorySettings) -> Term:
    return Term("joint", (NEW, HISTORY), partial(old_heads, on_new=history.coarse_on_new, sums=history.sums))


@register_term("st-hard", "pseudo", needs_teacher=True)
@register_term("st-soft", "pseudo", needs_teacher=True)
@register_term("pl", "pseudo")
@register_term("fixmatch", "pseudo")
def pseudo_labels(method: Method, settings: PseudoLabelSettings, _: HistorySettings) -> Term:
    """L_SSL, eq. 2 to 5, refined as in section 6.2; only history has pseudo-labels.

    Their health is the share that is kept, and the share that agrees with the old label before any refinement.
    """
    source = {
        "st-hard": Request("teacher", "history", "strong"),
        "st-soft": Request("teacher", "history", "strong"),
        "pl": HISTORY,
        "fixmatch": Request("student", "history", "weak"),
    }[method.pseudo]
    hard = method.pseudo == "st-hard" or (method.pseudo in ("pl", "fixmatch") and not settings.soft)
    masked = method.pseudo == "st-soft" and method.refine != "cond" and settings.st_soft_masked

    def loss(outputs: Outputs, step: Step, evidence: Evidence) -> Loss:
        if step.history is None:
            return Loss([])
        newest, rows = evidence.ontology.newest.name, step.history.rows
        logits, guesses = outputs[HISTORY][newest], outputs[source][newest].detach()
        complete = rows.dim() == 1 and step.history.complete
        guessed = guess(guesses, rows, evidence, method.refine, complete=complete)
        labelled, seen = rows != UNLABELLED, guessable(rows)
        keep = seen
        if method.refine == "filter":
            keep = keep & guessed.agrees
        if not method.needs_teacher:
            keep = keep & (guessed.confidence > settings.threshold)
        if hard:
            nll = hard_pseudo_nll(logits, guessed.labels, keep)
        elif masked:
            nll = kept(masked_divergence(logits, guesses, rows, evidence), keep)
        else:
            nll = soft_guess_nll(logits, guesses, rows, evidence, method.refine, keep=keep, complete=complete)
        health = {"kept": Mean.over(keep, seen), "agreement": Mean.over(guessed.agrees & labelled, labelled)}
        return Loss([Mean.over(nll, seen)], health)

    return Term(str(Method("ce", method.pseudo, method.refine)).removeprefix("ce+"), (source, HISTORY), loss)


def guessable(rows: Tensor) -> Tensor:
    """Mask of the samples that get a pseudo-label: all, except void pixels and pixels outside an image.

    An image without any label is unlabelled, not void.
    """
    labelled = rows != UNLABELLED
    if rows.dim() == 1:
        return torch.ones_like(labelled)
    unlabelled = ~labelled.flatten(1).any(dim=1)
    return labelled | unlabelled.view(-1, *[1] * (rows.dim() - 1))


def _given(outputs: Outputs, step: Step, head: str, version: str, on_new: bool) -> list[tuple[Tensor, Tensor]]:
    """Logits of a head, and labels of a version, of the new samples and of history."""
    parts = [(NEW, step.new)] if on_new else []
    if step.history is not None:
        parts.append((HISTORY, step.history))
    return [(outputs[request][head], batch.labels[version]) for request, batch in parts]


def _add(means: Sequence[Mean]) -> Mean:
    """Pool means over several sets of samples."""
    return Mean(sum(m.total for m in means), sum(m.count for m in means))  # type: ignore[arg-type]


def _per_new_sample(means: Sequence[Mean], step: Step) -> list[Mean]:
    """Return the same sums, divided by the number of new samples: the paper's sums, relative to that of eq. 1."""
    new = (step.new.rows != UNLABELLED).sum()
    return [Mean(mean.total, new) for mean in means]


def auxiliary(version: str) -> str:
    """Key of a version's auxiliary logits, for networks that have them; no version can have this name."""
    return f"{version}\nauxiliary"


def auxiliary_outputs(outputs: Outputs) -> dict[Request, Logits]:
    """The outputs with a student's auxiliary logits in place of its final ones; empty if it has none.

    Pseudo-labels still come from the final logits of the teacher or of the student's weak view.
    """
    found = {
        request: {version: logits[auxiliary(version)] for version in logits if auxiliary(version) in logits}
        for request, logits in outputs.items()
        if request in (NEW, HISTORY)
    }
    return {**outputs, **found} if any(found.values()) else {}


def all_losses(terms: Sequence[Term], outputs: Outputs, batch: Step, evidence: Evidence) -> dict[str, Loss]:
    """Losses of every term and, if the network has auxiliary heads, theirs at HRNet's weight."""
    losses = {term.name: term.loss(outputs, batch, evidence) for term in terms}
    auxiliary = auxiliary_outputs(outputs)
    for term in terms if auxiliary else ():
        means = term.loss(auxiliary, batch, evidence).means
        losses[f"auxiliary {term.name}"] = Loss([Mean(AUXILIARY_WEIGHT * m.total, m.count) for m in means])
    return losses
