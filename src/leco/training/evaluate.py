"""Evaluation of a network on samples: one confusion matrix at each version, whole set at once."""

from collections.abc import Callable

import torch
from torch import Tensor, nn

from leco.data.draws import Draws
from leco.data.samples import Samples
from leco.evaluation import confusion, predict_at
from leco.ontology.ontology import Ontology
from leco.ontology.version import NO_LABEL


@torch.no_grad()
def confusions(
    network: nn.Module,
    samples: Samples,
    indices: Tensor,
    ontology: Ontology,
    prepare: Callable[[Tensor, Draws], Tensor],
    device: torch.device | None = None,
    batch_size: int = 512,
) -> dict[str, Tensor]:
    """Confusion matrices of the newest version and every older one; `prepare` turns raw inputs into the network's.

    Older versions are predicted by adding up what the classes that came from one class have. Samples that have no label
    of an older version have the one that their newest label implies.
    """
    newest = ontology.newest.name
    matrices = {version.name: torch.zeros(len(version), len(version) + 1).long() for version in ontology.versions}
    was_training = network.training
    network.eval()
    for ids in indices.split(batch_size):  # type: ignore[no-untyped-call]
        logits = network(prepare(samples.inputs.read(ids).to(device), Draws(0, 0, ids.to(device))))[newest]
        probs = logits.float().softmax(dim=1).cpu()
        now = samples.labels[newest].read(ids).long()
        for version in ontology.versions:
            given = samples.labels[version.name].read(ids).long()
            true = torch.where(given == NO_LABEL, ontology.translate(now, newest, version.name), given)
            predicted = predict_at(probs, ontology.transition(newest, version.name))
            matrices[version.name] += confusion(predicted, true, len(version))
    network.train(was_training)
    return matrices
