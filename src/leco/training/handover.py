"""What a period's model takes over from the one before (section 4 of the paper, and two ways beyond it)."""

from typing import Literal

import torch
from torch import nn

from leco.errors import LecoError
from leco.models.network import Network
from leco.models.ocr import OcrHead
from leco.models.segmentation import SegmentationNetwork
from leco.ontology.ontology import Ontology
from leco.ontology.version import NO_LABEL

Strategy = Literal["finetune", "freeze", "scratch", "lp-ft"]
AnyNetwork = Network | SegmentationNetwork


def hand_over(
    previous: AnyNetwork, network: AnyNetwork, ontology: Ontology, strategy: Strategy, head_start: bool
) -> None:
    """Prepare a new network in place.

    `finetune` and `lp-ft` start from the features of the previous period (FinetunePrev), `freeze` keeps them fixed
    (FreezePrev), `scratch` starts anew (TrainScratch). What a head has below its classifiers (OCR) is features, too.
    With a `head_start`, each class begins as the class it came from: an old head's row, by id where the class lives
    on, else by its parent.
    """
    if strategy == "scratch":
        return
    network.backbone.load_state_dict(previous.backbone.state_dict())
    old_heads = dict(zip(previous.versions, previous.heads, strict=True))
    last = previous.versions[-1]
    for version, head in zip(network.versions, network.heads, strict=True):
        if version in old_heads:  # joint training: an old version's head goes on
            head.load_state_dict(old_heads[version].state_dict())
            continue
        take_features(old_heads[last], head)
        if head_start:
            start_from_parents(old_heads[last], head, ontology, last, version)


def heads_only(strategy: Strategy, step: int, head_steps: int) -> bool:
    """Whether a step leaves the backbone alone; `lp-ft` does so for the first `head_steps`."""
    return strategy == "freeze" or (strategy == "lp-ft" and step < head_steps)


def classifiers(head: nn.Module) -> list[nn.Linear | nn.Conv2d]:
    """The layers of a head that have a row per class."""
    match head:
        case OcrHead():
            return [head.classifier, head.auxiliary_classifier]
        case nn.Linear() | nn.Conv2d():
            return [head]
    raise LecoError(f"classes cannot start from their parents in a {type(head).__name__}: it is no linear head")


def take_features(old_head: nn.Module, head: nn.Module) -> None:
    """Copy what lies below a head's classifiers and knows no classes: nothing for a linear head."""
    for name, part in head.named_children():
        if part not in classifiers(head):
            part.load_state_dict(old_head.get_submodule(name).state_dict())


@torch.no_grad()
def start_from_parents(old_head: nn.Module, head: nn.Module, ontology: Ontology, old: str, new: str) -> None:
    """Copy rows of a head to the classes that came from them; brand-new classes keep their random start.

    A class split off shares its parent's logit, less the logarithm of how many share it, so that the old
    probabilities stay what they were. (Nearly so in an OCR head, where pixels attend to each sibling separately.)
    """
    parents = torch.from_numpy(ontology.transition(new, old).parents)
    known = parents != NO_LABEL
    siblings = torch.bincount(parents[known], minlength=len(ontology[old]))[parents[known]]
    for source, layer in zip(classifiers(old_head), classifiers(head), strict=True):
        assert layer.bias is not None
        assert source.bias is not None
        layer.weight[known] = source.weight[parents[known]]
        layer.bias[known] = source.bias[parents[known]] - siblings.log().to(layer.bias)
