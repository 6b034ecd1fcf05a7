"""Evaluation of a network on samples: one confusion matrix at each version, whole set at once."""

from collections.abc import Callable

import torch
from torch import Tensor

from leco.data.samples import Samples
from leco.evaluation import confusion, known_labels, predict_at, without_nameless
from leco.ontology.ontology import Ontology

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
        for version, true in labels_of(samples, ids, ontology).items():
            predicted = predict_at(probs, ontology.transition(newest, version)).cpu()
            matrices[version] += confusion(predicted, without_nameless(true), len(ontology[version]))
    return matrices


def labels_of(samples: Samples, ids: Tensor, ontology: Ontology) -> dict[str, Tensor]:
    """What is known of some samples at every version."""
    return known_labels({v.name: samples.labels[v.name].read(ids) for v in ontology.versions}, ontology)
