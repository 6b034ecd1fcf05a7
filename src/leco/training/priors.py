"""Class frequencies as a part of the loss, not of the network: logit adjustment (Menon et al. 2021)."""

from collections.abc import Mapping

import torch
from torch import Tensor

from leco.data.batches import Steps
from leco.data.samples import Column
from leco.methods.refine import condition
from leco.methods.terms import Logits, Outputs, Request

_AT_ONCE = 4_096


def class_counts(labels: Column, indices: Tensor, classes: int) -> Tensor:
    """Number of samples, or pixels, with each label: (classes,)."""
    counts = torch.zeros(classes + 1, dtype=torch.int64)
    at_once = 1 if labels.read(indices[:1]).ndim > 1 else _AT_ONCE  # maps may be large
    for part in indices.split(at_once):  # type: ignore[no-untyped-call]
        given = labels.read(part).flatten().int().clamp(min=-1)  # negative: no label
        counts += torch.bincount(given + 1, minlength=classes + 1)
    return counts[1:]


def log_priors(steps: Steps, strength: float = 1.0) -> dict[str, Tensor]:
    """Return the log frequency of each newest class among the new samples, and as expected in the history: (c,) each.

    The class of a sample with an old label is expected as its label allows, at the frequencies of the new samples.
    Every class counts once more than it occurs.
    """
    newest = steps.evidence.ontology.newest
    new = class_counts(steps.samples.labels[newest.name], steps.new.indices, len(newest)).double() + 1
    counts = {"new": new}
    if len(steps.history.indices):
        counts["history"] = torch.ones_like(new)
        for row, count in zip(*_label_counts(steps), strict=True):
            evidence = steps.evidence.gather(row.view(1)).double()
            counts["history"] += count * condition(new.log().unsqueeze(0), evidence).squeeze(0)
    return {part: (strength * (found / found.sum()).log()).float() for part, found in counts.items()}


def _label_counts(steps: Steps) -> tuple[Tensor, Tensor]:
    """Evidence rows of the labels of the history, and how often each occurs."""
    pool, rows = steps.history, []
    for number, name in enumerate(pool.versions):
        labels = steps.samples.labels[name].read(pool.indices[pool.version == number])
        rows.append(steps.evidence.ids(labels, name))
    found: tuple[Tensor, Tensor] = torch.cat(rows).unique(return_counts=True)  # type: ignore[no-untyped-call]
    return found


def with_priors(outputs: Outputs, priors: Mapping[str, Tensor], version: str) -> dict[Request, Logits]:
    """Return the logits of a version as they are for samples of each part, whose classes have other frequencies."""
    return {request: {**logits, version: logits[version] + priors[request.part]} for request, logits in outputs.items()}
