"""Evaluation of a network on samples: one confusion matrix at each version, whole set at once."""

from collections.abc import Callable

import torch
from torch import Tensor

from leco.data.samples import Samples
from leco.evaluation import confusion, predict_at
from leco.ontology.ontology import Ontology
from leco.ontology.version import NO_LABEL

# Raw inputs and the ids of their samples to probabilities (n, c, ...) over the newest classes.
Predict = Callable[[Tensor, Tensor], Tensor]


@torch.no_grad()
def confusions(
    predict: Predict, samples: Samples, indices: Tensor, ontology: Ontology, batch_size: int = 512
) -> dict[str, Tensor]:
    """Confusion matrices of the newest version and every older one.

    Older versions are predicted by adding up what the classes that came from one class have.
    """
    newest = ontology.newest.name
    matrices = {version.name: torch.zeros(len(version), len(version) + 1).long() for version in ontology.versions}
    for ids in indices.split(batch_size):  # type: ignore[no-untyped-call]
        probs = predict(samples.inputs.read(ids), ids)
        for version, true in known_labels(samples, ids, ontology).items():
            predicted = predict_at(probs, ontology.transition(newest, version)).cpu()
            matrices[version] += confusion(predicted, true, len(ontology[version]))
    return matrices


def known_labels(samples: Samples, ids: Tensor, ontology: Ontology) -> dict[str, Tensor]:
    """The labels of some samples at every version: given, or else implied by the newest."""
    newest = ontology.newest.name
    now = samples.labels[newest].read(ids).long()
    found = {}
    for version in ontology.versions:
        given = samples.labels[version.name].read(ids).long()
        found[version.name] = torch.where(given == NO_LABEL, ontology.translate(now, newest, version.name), given)
    return found
