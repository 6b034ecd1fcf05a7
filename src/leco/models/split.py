"""A backbone in two: frozen layers, whose outputs are computed once, and the layers above them, which are trained."""

import copy
import math
from collections.abc import Iterator, Sequence

import torch
from torch import Tensor, nn

from leco.errors import LecoError, first_line
from leco.models.layers import trained_parameters

_TOLERANCE = 1e-4  # of outputs, relative to the largest


class Trunk(nn.Module):
    """The frozen layers of a backbone; their feature maps are flattened, so that they can be stored as vectors."""

    def __init__(self, backbone: nn.Module, frozen: float) -> None:
        super().__init__()
        self.layers = without(backbone, _units(backbone)[_first_trained(backbone, frozen) :])

    def forward(self, inputs: Tensor) -> Tensor:
        """(n, c, h, w) -> (n, d)."""
        maps: Tensor = self.layers(inputs)
        return maps.flatten(1)


def rest(backbone: nn.Module, frozen: float) -> nn.Module:
    """Return the layers above the frozen ones, under their names, for vectors that `Trunk` computed of squares."""
    top = without(backbone, _units(backbone)[: _first_trained(backbone, frozen)])
    channels = next(module.in_channels for module in top.modules() if isinstance(module, nn.Conv2d))

    def as_maps(_: nn.Module, inputs: tuple[Tensor, ...]) -> Tensor:
        side = math.isqrt(inputs[0].shape[1] // channels)
        return inputs[0].view(-1, channels, side, side)

    top.register_forward_pre_hook(as_maps)
    return top


def without(backbone: nn.Module, names: Sequence[str]) -> nn.Module:
    """Return a copy of a backbone that passes its input through some of its layers unchanged."""
    found = copy.deepcopy(backbone)
    for name in names:
        found.set_submodule(name, nn.Identity())
    return found


@torch.no_grad()
def check_split(backbone: nn.Module, frozen: float, shape: Sequence[int], name: str) -> None:
    """Refuse a backbone whose two parts, one after the other, are not the whole."""
    backbone = backbone.eval()
    example = torch.linspace(-1, 1, math.prod(shape)).view(1, *shape).sin()
    try:
        whole = backbone(example)
        difference = (rest(backbone, frozen)(Trunk(backbone, frozen)(example)) - whole).abs().max()
        problem = "" if difference <= _TOLERANCE * whole.abs().max() else "its layers are not a chain"
    except Exception as error:  # whatever a network does whose layers do not fit each other
        problem = first_line(error)
    if problem:
        raise LecoError(
            f"training.network.embed: {name} cannot be divided after {frozen:g} of its layers ({problem}); choose a "
            "convolutional backbone such as resnet18, or set training.network.embed to false"
        )


def _units(backbone: nn.Module) -> list[str]:
    """Names of the layers in order, with the parts of sequences one by one."""

    def names(module: nn.Module, prefix: str) -> Iterator[str]:
        for name, child in module.named_children():
            if isinstance(child, nn.Sequential):
                yield from names(child, f"{prefix}{name}.")
            else:
                yield f"{prefix}{name}"

    return list(names(backbone, ""))


def _first_trained(backbone: nn.Module, frozen: float) -> int:
    """Number of the layers before the first with a parameter that is trained."""
    trained = set(map(id, trained_parameters(backbone, frozen)))
    for number, name in enumerate(_units(backbone)):
        if any(id(parameter) in trained for parameter in backbone.get_submodule(name).parameters()):
            return number
    raise LecoError(f"training.network.frozen_layers: {frozen:g} leaves no layer to train; use a smaller share")
