"""Heads, and what a network takes over from the one of the previous period (section 4 of the paper)."""

import copy

import torch
from torch import Tensor, nn

from leco.errors import LecoError
from leco.models.dense.ocr import OcrHead
from leco.models.network import AnyNetwork
from leco.ontology.ontology import Ontology
from leco.settings import Strategy


def hand_over(
    previous: AnyNetwork, network: AnyNetwork, ontology: Ontology, strategy: Strategy, head_start: bool
) -> None:
    """Prepare a new network in place.

    `finetune` and `lp-ft` start from the features of the previous period (FinetunePrev), `freeze` keeps them fixed
    (FreezePrev), `scratch` starts anew (TrainScratch). What a head has below its classifiers (OCR) is features, too.
    With a `head_start`, each class begins as the class it came from, or as several of them: rows of the old head.
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


def classifiers(head: nn.Module) -> list[nn.Linear | nn.Conv2d]:
    """The layers of a head that have a row per class."""
    match head:
        case OcrHead():
            return [head.classifier, head.auxiliary_classifier]
        case nn.Linear() | nn.Conv2d():
            return [head]
    raise LecoError(f"classes cannot start from their parents in a {type(head).__name__}: it is no linear head")


def with_own_heads(network: AnyNetwork) -> tuple[AnyNetwork, list[nn.Linear | nn.Conv2d]]:
    """The network with copies of its heads, all else shared, and the newest of their classifiers, to be changed."""
    other = copy.copy(network)
    other._modules = {**network._modules, "heads": copy.deepcopy(network.heads)}
    return other, classifiers(other.heads[-1])


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
    A merged class should be as likely as its parents together. No row can be that for every input, and the mean of
    their rows is not for any that is surely one of them: half of what sets it apart is lost. So what sets the parents
    apart from the average class is added up, by their shares, of n parents n times; and log n, for inputs of which
    nothing is known. n is k for k equal shares, and near 1 if one has nearly all (the exponential of their entropy).
    """
    transition = ontology.transition(new, old)
    edges = transition.sparse.tocoo()
    child, parent = (torch.from_numpy(places).long() for places in (edges.row, edges.col))
    sums = torch.from_numpy(transition.sparse.sum(axis=1))
    share = torch.from_numpy(edges.data) / sums[child]
    known = sums > 0
    number = torch.zeros_like(sums).index_add(0, child, -share * share.log()).exp()
    siblings = torch.bincount(parent, minlength=len(ontology[old]))[parent]

    def summed(taken: Tensor, mean: Tensor) -> Tensor:
        shape = (-1, *[1] * mean.dim())
        rest = (1 - number).to(taken).view(shape) * mean
        return rest.index_add(0, child, taken * (number[child] * share).to(taken).view(shape))[known]

    for source, layer in zip(classifiers(old_head), classifiers(head), strict=True):
        assert layer.bias is not None
        assert source.bias is not None
        layer.weight[known] = summed(source.weight[parent], source.weight.mean(dim=0))
        bias = summed(source.bias[parent] - siblings.log().to(layer.bias), source.bias.mean())
        layer.bias[known] = bias + number[known].log().to(bias)
