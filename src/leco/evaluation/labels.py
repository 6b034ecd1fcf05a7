"""What is known of samples at every version: evaluation must not invent a truth."""

from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor

from leco.ontology.ontology import Ontology
from leco.ontology.transition import Transition
from leco.ontology.version import NO_LABEL

NAMELESS = -2  # the sample's class had no name in that version: whatever is answered there is wrong


def known_labels(given: Mapping[str, Tensor], ontology: Ontology) -> dict[str, Tensor]:
    """The labels at every version: given there, or else what follows from the next newer one that says it.

    A label follows only where the class can have had no other: of a class that was merged, nobody knows which of its
    origins a sample was (-1). `NAMELESS` where the class was brand-new later.
    """
    found: dict[str, Tensor] = {}
    for position, version in enumerate(ontology.versions):
        for newer in ontology.versions[position:]:
            if newer.name in given:
                labels = given[newer.name].long()
                told = labels if newer is version else _told(ontology.transition(newer.name, version.name))[labels]
                known = found.get(version.name, torch.full_like(told, NO_LABEL))
                found[version.name] = torch.where(known == NO_LABEL, told, known)
    return found


def without_nameless(labels: Tensor) -> Tensor:
    """Labels for a confusion matrix, which has no row for classes without a name."""
    return labels.clamp(min=NO_LABEL)


def _told(transition: Transition) -> Tensor:
    """For every class of the newer version, its one label in the older; the last, which -1 finds, is no label."""
    counts = np.diff(transition.sparse.indptr)
    whole = transition.sparse.sum(axis=1) > 1 - 1e-6  # else a part of the class had no name
    told = np.where((counts == 1) & whole, transition.parents, NO_LABEL)
    told[counts == 0] = NAMELESS
    return torch.from_numpy(np.append(told, NO_LABEL))
