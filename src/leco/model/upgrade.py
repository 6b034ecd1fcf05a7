"""A model for a new version of its ontology: usable at once as what it was, and a start for training."""

import torch

import leco
from leco.errors import LecoError
from leco.model.description import Description
from leco.models.heads import classifiers, hand_over
from leco.models.network import AnyNetwork
from leco.ontology.changes import require_same
from leco.ontology.ontology import Ontology
from leco.ontology.version import NO_LABEL

# Nothing says how likely a brand-new class is: less than rounding in 32 bits notices, until it is trained.
_UNLIKELY = 24 * torch.tensor(2.0).log().item()


def upgraded(
    known: Description, old: Ontology, previous: AnyNetwork, ontology: Ontology, name: str
) -> tuple[Description, AnyNetwork]:
    """A model for the newest version of an ontology that continues the model's own; `name` is its name in messages.

    Kept and renamed classes are what they were; a class that became k shares its probability equally, so answers in
    the old versions stay the same. What was merged is about as likely as the classes it came from together, what was
    removed cannot be answered with any more, and what is brand-new is not answered with yet.
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
    """Let brand-new classes begin as an average of the others that is too unlikely to be noticed.

    The mean of some logits is at most the logarithm of the sum of their exponentials, so the bound holds for any input:
    of the logits that are still answered with, since what was removed adds nothing to that sum.
    """
    parents = ontology.transition(ontology.newest.name, old).parents
    new = torch.from_numpy(parents == NO_LABEL)
    for layer in classifiers(network.heads[-1]):
        assert layer.bias is not None
        if new.all():  # nothing is known of any class: all are as likely
            layer.weight.zero_()
            layer.bias.zero_()
        else:
            layer.weight[new] = layer.weight[~new].mean(dim=0)
            layer.bias[new] = layer.bias[~new].mean() - _UNLIKELY
