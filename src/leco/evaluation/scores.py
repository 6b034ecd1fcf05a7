"""Scores of a confusion matrix; every class counts the same, however rare."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from leco.evaluation.confusion import check_shape
from leco.ontology.ontology import Ontology
from leco.ontology.version import NO_LABEL


@dataclass(frozen=True)
class Scores:
    """Per-class accuracy (recall) and IoU as fractions; NaN where a class is absent from the set."""

    classes: tuple[str, ...]
    support: Tensor  # (c,) true samples or pixels
    accuracy: Tensor  # (c,) TP / (TP + FN)
    iou: Tensor  # (c,) TP / (TP + FN + FP), false positives from everywhere in the set

    @property
    def macc(self) -> float:
        """Mean per-class accuracy over the classes that occur."""
        return float(self.accuracy.nanmean())

    @property
    def miou(self) -> float:
        """Mean intersection over union over the classes that occur, each over the whole set (not per image)."""
        return float(self.iou.nanmean())

    @property
    def absent(self) -> tuple[str, ...]:
        """Classes that do not occur, and so are left out of both means."""
        return tuple(name for name, count in zip(self.classes, self.support.tolist(), strict=True) if not count)

    def of(self, classes: Sequence[str]) -> "Scores":
        """The scores of some classes only (116 of Mapillary's 124 are evaluated); of all, if none are named."""
        if not classes:
            return self
        chosen = torch.tensor([index for index, name in enumerate(self.classes) if name in set(classes)])
        names = tuple(self.classes[index] for index in chosen.tolist())
        return Scores(names, self.support[chosen], self.accuracy[chosen], self.iou[chosen])

    def table(self) -> list[dict[str, object]]:
        """One record per class, for a data frame or a file; None instead of NaN."""
        columns = zip(self.classes, self.support.tolist(), self.accuracy.tolist(), self.iou.tolist(), strict=True)
        return [
            {"class": name, "support": support, "accuracy": acc if support else None, "iou": iou if support else None}
            for name, support, acc, iou in columns
        ]


def scores(matrix: Tensor, classes: Sequence[str]) -> Scores:
    """Score a confusion matrix of `confusion`, (c, c + 1); `classes` are best a version's `handles`, which differ.

    >>> from leco.evaluation import confusion
    >>> found = scores(confusion(torch.tensor([0, 1, 1]), torch.tensor([0, 0, 1]), 3), ["cat", "dog", "eel"])
    >>> found.macc, found.miou, found.absent
    (0.75, 0.5, ('eel',))
    """
    check_shape(matrix, len(classes))
    hits = matrix.diagonal().double()
    support = matrix.sum(dim=1)
    predicted = matrix.sum(dim=0)[:-1]
    union = support + predicted - hits
    occurs = support > 0
    nan = torch.full_like(hits, torch.nan)
    return Scores(
        tuple(classes), support, torch.where(occurs, hits / support, nan), torch.where(occurs, hits / union, nan)
    )


def mistake_severity(matrix: Tensor, ontology: Ontology) -> float:
    """Mean severity of the mistakes in a newest-version matrix: how many versions back truth and prediction were one.

    1 is a mistake between siblings; the number of versions one at every level, or a prediction that names no class (the
    height of the lowest common ancestor, as in "Making Better Mistakes", Bertinetto et al. 2020). NaN without mistakes.
    """
    check_shape(matrix, len(ontology.newest))
    mistakes = matrix[:, :-1].cpu().clone().fill_diagonal_(0)
    true, predicted = mistakes.nonzero(as_tuple=True)
    severity = torch.full(true.shape, len(ontology.versions), dtype=torch.double)
    for back, version in reversed(list(enumerate(reversed(ontology.versions)))):
        parents = torch.from_numpy(ontology.transition(ontology.newest.name, version.name).parents)
        severity[(parents[true] == parents[predicted]) & (parents[true] != NO_LABEL)] = back
    count = mistakes[true, predicted]
    nameless = matrix[:, -1].sum().item()
    total = (severity * count).sum().item() + len(ontology.versions) * nameless
    number = count.sum().item() + nameless
    return total / number if number else math.nan
