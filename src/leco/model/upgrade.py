"""Upgrade a model to a new version of its ontology: usable at once, and a start for training."""

import torch

import leco
from leco.errors import LecoError
from leco.model.description import Description
from leco.models.heads import classifiers, hand_over
from leco.models.network import AnyNetwork
from leco.ontology.changes import require_same
from leco.ontology.ontology import Ontology
from leco.ontology.version import NO_LABEL

# Nothing is known of a brand-new class until it is trained: its probability is below the precision of 32 bits.
_UNLIKELY = 24 * torch.tensor(2.0).log().item()


def upgraded(
    known: Description, old: Ontology, previous: AnyNetwork, ontology: Ontology, name: str
) -> tuple[Description, AnyNetwork]:
    """Return a model for the newest version of an ontology that continues the model's; `name` is for messages.

    Kept and renamed classes stay as they were; k classes that came from one share its probability equally, so that
    predictions in the old versions stay the same. A merged class is about as likely as its origins together; removed
    classes are no longer predicted, and brand-new ones not yet.
    """
    require_same(old, ontology, f"the ontology {ontology.name}", name)
    newest = ontology.newest.name
    if newest == known.newest:
        raise LecoError(f"{name}: is already a model of {newest}, the newest version of the ontology")
    heads = (*known.heads, newest) if len(known.heads) > 1 else (newest,)  # joint training keeps a head per version
    description = known.model_copy(
        update={
            "leco": leco.__version__,
            "heads": heads,
            "versions": tuple(version.name for version in ontology.versions),
            "ontology": ontology.fingerprint,
            "evaluated": (),
        }
    )
    network = description.build(ontology)  # every weight of it is set below
    hand_over(previous, network, ontology, "finetune", head_start=True)
    _suppress_new_classes(network, ontology, known.newest)
    return description, network.eval()


@torch.no_grad()
def _suppress_new_classes(network: AnyNetwork, ontology: Ontology, old: str) -> None:
    """Start brand-new classes as the average of the others, minus a constant that makes them negligible.

    The mean of some logits is at most the logarithm of the sum of their exponentials, so the bound holds for any input:
    of the logits that are left, since removed classes add nothing to that sum.
    """
    parents = ontology.transition(ontology.newest.name, old).parents
    new = torch.from_numpy(parents == NO_LABEL)
    for layer in classifiers(network.heads[-1]):
        assert layer.bias is not None
        if new.all():  # nothing is known of any class: all are equally likely
            layer.weight.zero_()
            layer.bias.zero_()
        else:
            layer.weight[new] = layer.weight[~new].mean(dim=0)
            layer.bias[new] = layer.bias[~new].mean() - _UNLIKELY
