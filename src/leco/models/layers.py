"""Layers of a backbone in order, from the input on, for learning rates and freezing by depth."""

from collections.abc import Iterator
from typing import Any

from torch import nn

from leco.models.lora import adapters

Norm = nn.modules.batchnorm._BatchNorm


def layer_numbers(backbone: nn.Module) -> dict[str, int]:
    """Number of the layer that each parameter belongs to, from 0; timm's own division, or else the top-level modules.

    >>> layer_numbers(nn.Sequential(nn.Linear(2, 2), nn.ReLU(), nn.Linear(2, 2, bias=False)))
    {'0.weight': 0, '0.bias': 0, '2.weight': 1}
    """
    trunk = getattr(backbone, "trunk", None)
    if isinstance(trunk, nn.Module):  # what is on top of it is the last layer
        numbers = {f"trunk.{name}": number for name, number in layer_numbers(trunk).items()}
        last = 1 + max(numbers.values(), default=-1)
        return {name: numbers.get(name, last) for name, _ in backbone.named_parameters()}
    if hasattr(backbone, "group_matcher"):
        from timm.models import group_parameters

        matcher: Any = backbone.group_matcher
        return dict(group_parameters(backbone, matcher(coarse=False), reverse=True))
    names = [name for name, _ in backbone.named_parameters()]
    tops = list(dict.fromkeys(name.partition(".")[0] for name in names))
    return {name: tops.index(name.partition(".")[0]) for name in names}


def trained_parameters(backbone: nn.Module, frozen: float) -> list[nn.Parameter]:
    """Return the parameters above the first layers, of which a share is frozen; of adapters only, if it has any."""
    numbers = layer_numbers(backbone) if frozen else {}
    first = int(frozen * (max(numbers.values(), default=0) + 1))
    only = adapters(backbone)
    return [
        parameter
        for name, parameter in backbone.named_parameters()
        if numbers.get(name, 0) >= first and (not only or name in only)
    ]


def norms(backbone: nn.Module, frozen: float, *, all_of_them: bool) -> Iterator[nn.Module]:
    """Yield the BatchNorm layers whose statistics are kept: those of frozen layers, or all."""
    kept = set(map(id, backbone.parameters())) - set(map(id, trained_parameters(backbone, frozen)))
    for module in backbone.modules():
        if isinstance(module, Norm) and (all_of_them or (module.affine and id(module.weight) in kept)):
            yield module


def width(backbone: nn.Module) -> int:
    """Number of features that a backbone returns; MobileNetV3 and others of timm have layers after the pooling."""
    found: Any = getattr(backbone, "head_hidden_size", None) or backbone.num_features
    return int(found)
