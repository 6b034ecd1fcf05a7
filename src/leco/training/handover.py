"""What a period's model takes over from the one before (section 4 of the paper, and two ways beyond it)."""

from typing import Literal

import torch
from torch import nn

from leco.errors import LecoError
from leco.models.network import Network
from leco.ontology.ontology import Ontology
from leco.ontology.version import NO_LABEL

Strategy = Literal["finetune", "freeze", "scratch", "lp-ft"]


def hand_over(previous: Network, network: Network, ontology: Ontology, strategy: Strategy, head_start: bool) -> None:
    """Prepare a new network in place.

    `finetune` and `lp-ft` start from the features of the previous period (FinetunePrev), `freeze` keeps them fixed
    (FreezePrev), `scratch` starts anew (TrainScratch). With a `head_start`, each class begins as the class it came
    from: an old head's row, by id where the class lives on, else by its parent.
    """
    if strategy == "scratch":
        return
    network.backbone.load_state_dict(previous.backbone.state_dict())
    old_heads = dict(zip(previous.versions, previous.heads, strict=True))
    for version, head in zip(network.versions, network.heads, strict=True):
        if version in old_heads:  # joint training: an old version's head goes on
            head.load_state_dict(old_heads[version].state_dict())
        elif head_start:
            start_from_parents(old_heads[previous.versions[-1]], head, ontology, previous.versions[-1], version)


def heads_only(strategy: Strategy, step: int, head_steps: int) -> bool:
    """Whether a step leaves the backbone alone; `lp-ft` does so for the first `head_steps`."""
    return strategy == "freeze" or (strategy == "lp-ft" and step < head_steps)


@torch.no_grad()
def start_from_parents(old_head: nn.Module, head: nn.Module, ontology: Ontology, old: str, new: str) -> None:
    """Copy rows of a head to the classes that came from them; brand-new classes keep their random start.

    A class split off shares its parent's logit, less the logarithm of how many share it, so that the old
    probabilities stay what they were.
    """
    if not isinstance(old_head, nn.Linear) or not isinstance(head, nn.Linear):
        raise LecoError("only linear heads can start from their parents")
    parents = torch.from_numpy(ontology.transition(new, old).parents).to(head.weight.device)
    known = parents != NO_LABEL
    siblings = torch.bincount(parents[known], minlength=len(ontology[old]))[parents[known]]
    head.weight[known] = old_head.weight[parents[known]]
    head.bias[known] = old_head.bias[parents[known]] - siblings.log()
