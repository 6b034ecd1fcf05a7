"""Confusion matrices, counted once over a whole set, at the newest version and at older ones.

A matrix has a row per true class and a column per predicted class, and one more column for predictions that name no
class (of an older version: a brand-new class has no place there). Matrices of batches, or of ranks, just add up.
"""

from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor

from leco.errors import LecoError
from leco.ontology.evidence import INTEGERS
from leco.ontology.ontology import Ontology
from leco.ontology.transition import Transition
from leco.ontology.version import NO_LABEL


def confusion(predicted: Tensor, true: Tensor, num_classes: int) -> Tensor:
    """Count (true, predicted) pairs of any shape: (c, c + 1). Samples without a true label (-1) are left out.

    >>> confusion(torch.tensor([0, 1, 1, 0]), torch.tensor([0, 0, 1, -1]), num_classes=2)
    tensor([[1, 1, 0],
            [0, 1, 0]])
    """
    if predicted.shape != true.shape:
        raise LecoError(f"predictions of shape {tuple(predicted.shape)} do not fit labels of {tuple(true.shape)}")
    for what, labels in (("prediction", predicted), ("label", true)):
        check_range(labels, num_classes, what)
    return pairs_counted(predicted, true, num_classes)


def check_range(labels: Tensor, num_classes: int, what: str = "label") -> None:
    """Refuse labels that are not indices of classes, nor -1."""
    if labels.dtype not in INTEGERS:
        raise LecoError(f"{what}s must be integers, not {labels.dtype}")
    labels = labels.long()
    wrong = labels[(labels < NO_LABEL) | (labels >= num_classes)]
    if len(wrong):
        raise LecoError(f"{what} {int(wrong[0])} is outside 0 to {num_classes - 1} (or -1 for none)")


def pairs_counted(predicted: Tensor, true: Tensor, num_classes: int) -> Tensor:
    """`confusion` of labels that were checked before; a GPU is not waited for."""
    predicted, true = predicted.long(), true.long()
    column = torch.where(predicted == NO_LABEL, num_classes, predicted)
    cells = num_classes * (num_classes + 1)
    cell = torch.where(true == NO_LABEL, cells, true * (num_classes + 1) + column).flatten()
    counts = torch.zeros(cells + 1, dtype=torch.int64, device=cell.device)
    counts.scatter_add_(0, cell, torch.ones_like(cell))
    return counts[:-1].view(num_classes, num_classes + 1)


def at_version(matrix: Tensor, transition: Transition) -> Tensor:
    """Return the confusion matrix of the same predictions in `transition.old`.

    True classes that do not exist there are left out; predicted ones count as no class.
    """
    check_shape(matrix, len(transition.new))
    matrix = matrix.long()
    parents = torch.from_numpy(transition.parents).to(matrix.device)
    size = len(transition.old)
    column = torch.cat([torch.where(parents == NO_LABEL, size, parents), parents.new_tensor([size])])
    named = parents != NO_LABEL
    narrow = matrix.new_zeros(len(transition.new), size + 1).index_add(1, column, matrix)
    return matrix.new_zeros(size, size + 1).index_add(0, parents[named], narrow[named])


def predict_at(probs_nc: Tensor, transition: Transition) -> Tensor:
    """Return the likeliest class of the older version, from probabilities over the newer: ``argmax(probs @ P)``.

    Better than renaming the likeliest new class: three breeds at 0.2 each say `dog`, though one cat has 0.4. Where
    classes that do not exist there are likelier, together, than any that does, it is -1.
    """
    projected = transition.project(probs_nc)
    best, index = projected.max(dim=1)
    nameless = probs_nc.sum(dim=1) - projected.sum(dim=1)
    return index.where(best >= nameless, NO_LABEL)


def check_shape(matrix: Tensor, num_classes: int) -> None:
    """Refuse a confusion matrix of another number of classes."""
    if matrix.shape != (num_classes, num_classes + 1):
        raise LecoError(f"a confusion matrix of shape {tuple(matrix.shape)} does not fit {num_classes} classes")


NAMELESS = -2  # the sample's class did not exist in that version: every prediction there is wrong


def known_labels(given: Mapping[str, Tensor], ontology: Ontology) -> dict[str, Tensor]:
    """Return the labels at every version: those given, or else those that follow from the next newer ones.

    A label follows only where it is certain: a sample of a merged class may have been of any of its origins (-1). It
    is `NAMELESS` where the class was brand-new later.
    """
    found: dict[str, Tensor] = {}
    for position, version in enumerate(ontology.versions):
        for newer in ontology.versions[position:]:
            if newer.name in given:
                labels = given[newer.name].long()
                certain = (
                    labels if newer is version else _certain(ontology.transition(newer.name, version.name))[labels]
                )
                known = found.get(version.name, torch.full_like(certain, NO_LABEL))
                found[version.name] = torch.where(known == NO_LABEL, certain, known)
    return found


def without_nameless(labels: Tensor) -> Tensor:
    """Replace `NAMELESS` by -1: a confusion matrix has no row for classes that did not exist."""
    return labels.clamp(min=NO_LABEL)


def _certain(transition: Transition) -> Tensor:
    """For every class of the newer version, its one label in the older; -1 indexes the last, which is no label."""
    counts = np.diff(transition.sparse.indptr)
    whole = transition.sparse.sum(axis=1) > 1 - 1e-6  # else a part of the class did not exist
    labels = np.where((counts == 1) & whole, transition.parents, NO_LABEL)
    labels[counts == 0] = NAMELESS
    return torch.from_numpy(np.append(labels, NO_LABEL))
