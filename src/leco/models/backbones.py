"""Backbones by name: `wrn-28-2`, `linear` and `mlp` for feature vectors, or anything timm has."""

import re

from torch import Tensor, nn

from leco.errors import LecoError, nearest
from leco.models.wide_resnet import WideResNet

_WRN = re.compile(r"wrn-([0-9]{1,4})-([0-9]{1,3})")
_HIDDEN = 512


class Features(nn.Module):
    """Feature vectors as they are (`linear`: the head alone is trained), or through one hidden layer (`mlp`)."""

    def __init__(self, num_inputs: int, hidden: int | None = None) -> None:
        super().__init__()
        self.num_features = hidden or num_inputs
        self.layers = nn.Sequential(nn.Linear(num_inputs, hidden), nn.ReLU()) if hidden else nn.Identity()

    def forward(self, features: Tensor) -> Tensor:
        """(n, num_inputs) -> (n, num_features)."""
        hidden: Tensor = self.layers(features)
        return hidden


def build_backbone(name: str, num_inputs: int, pretrained: bool = False) -> nn.Module:
    """Make a backbone; `num_inputs` is the number of image channels, or of feature dimensions.

    `pretrained` weights are timm's, fetched (or found in its cache) only when asked for.
    """
    if name in ("linear", "mlp") or _WRN.fullmatch(name):
        if pretrained:
            raise LecoError(f"there are no pretrained weights of {name}; choose a timm model, such as resnet50")
        if found := _WRN.fullmatch(name):
            return WideResNet(int(found[1]), int(found[2]), num_inputs)
        return Features(num_inputs, _HIDDEN if name == "mlp" else None)
    return _timm(name, num_inputs, pretrained)


def _timm(name: str, num_inputs: int, pretrained: bool) -> nn.Module:
    import timm

    if not timm.is_model(name):
        known = ["wrn-28-2", "linear", "mlp", *timm.list_models()]
        raise LecoError(f"{name!r} is no backbone{nearest(name, known)}")
    try:
        model: nn.Module = timm.create_model(name, pretrained=pretrained, num_classes=0, in_chans=num_inputs)
    except Exception as error:  # whatever the hub, the network or the file system raises
        if not pretrained:
            raise
        problem = str(error).split("\n")[0]
        remedy = "check the network, or train without pretrained weights"
        raise LecoError(f"the pretrained weights of {name} could not be had ({problem}); {remedy}") from None
    return model
