"""Heads, and the transfer of weights from the network of the previous period (section 4 of the paper)."""

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
    """Initialise a new network, in place, from the previous one.

    `finetune` and `lp-ft` start from the features of the previous period (FinetunePrev), `freeze` keeps them fixed
    (FreezePrev), `scratch` and `random` keep the new weights (TrainScratch, TrainRandom). Layers of a head below its
    classifiers (OCR) count as features. With a `head_start`, the row of each class starts from those of its parents in
    the old head.
    """
    if strategy in ("scratch", "random"):
        return
    network.backbone.load_state_dict(previous.backbone.state_dict())
    old_heads = dict(zip(previous.versions, previous.heads, strict=True))
    last = previous.versions[-1]
    for version, head in zip(network.versions, network.heads, strict=True):
        if version in old_heads:  # joint training: an old version keeps its head
            head.load_state_dict(old_heads[version].state_dict())
            continue
        take_features(old_heads[last], head)
        if head_start:
            start_from_parents(old_heads[last], head, ontology, last, version)


def classifiers(head: nn.Module) -> list[nn.Linear | nn.Conv2d]:
    """Layers of a head that have a row per class."""
    match head:
        case OcrHead():
            return [head.classifier, head.auxiliary_classifier]
        case nn.Linear() | nn.Conv2d():
            return [head]
    raise LecoError(f"classes cannot start from their parents in a {type(head).__name__}: it is not a linear head")


def with_own_heads(network: AnyNetwork) -> tuple[AnyNetwork, list[nn.Linear | nn.Conv2d]]:
    """Return the network with copies of its heads, all else shared, and the classifiers of its newest head."""
    other = copy.copy(network)
    other._modules = {**network._modules, "heads": copy.deepcopy(network.heads)}
    return other, classifiers(other.heads[-1])


def take_features(old_head: nn.Module, head: nn.Module) -> None:
    """Copy the layers below a head's classifiers, which do not depend on the classes; a linear head has none."""
    for name, part in head.named_children():
        if part not in classifiers(head):
            part.load_state_dict(old_head.get_submodule(name).state_dict())


@torch.no_grad()
def start_from_parents(old_head: nn.Module, head: nn.Module, ontology: Ontology, old: str, new: str) -> None:
    """Initialise classes with the rows of their parents; brand-new classes keep their random initialisation.

    A class split off gets its parent's logit minus the logarithm of the number of siblings, so that the old
    probabilities are preserved (approximately in an OCR head, where pixels attend to each sibling separately).
    A merged class should be as likely as its parents together. No row achieves that for every input, and the mean of
    the parents' rows halves what distinguishes each of them from other classes. So the deviations of the parents from
    the average class are averaged by their shares and multiplied by the effective number of parents n, the exponential
    of the entropy of the shares; log n is added to the bias for inputs that no parent is distinctive for.
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
