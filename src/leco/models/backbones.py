"""Backbones by name: `wrn-28-2`, any timm model, or `linear`, `roots` and `mlp` for feature vectors."""

import math
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from leco.errors import LecoError, first_line, nearest
from leco.models.wide_resnet import WideResNet

_WRN = re.compile(r"wrn-([0-9]{1,3})-([0-9]{1,3})")
HEAD_ALONE = ("linear", "roots")  # nothing else is trained
_VECTORS = (*HEAD_ALONE, "mlp")
_OTHERS = ("wrn-28-2", *_VECTORS)  # names that are not timm's
_HIDDEN = 512


class Features(nn.Module):
    """Flattened inputs: unchanged (`linear`), signed square roots (`roots`), or through a hidden layer (`mlp`)."""

    def __init__(self, name: str, num_inputs: int) -> None:
        super().__init__()
        self.num_features = _HIDDEN if name == "mlp" else num_inputs
        self.layers: nn.Module = nn.Identity()
        if name == "mlp":
            self.layers = nn.Sequential(nn.Linear(num_inputs, _HIDDEN), nn.ReLU())
        elif name == "roots":
            self.layers = Roots()

    def forward(self, features: Tensor) -> Tensor:
        """(n, ...) -> (n, num_features)."""
        hidden: Tensor = self.layers(features.flatten(1))
        return hidden


class Roots(nn.Module):
    """Signed square root of every number, scaled so that each vector keeps its length.

    Network features are skewed: a few large values dominate the others.
    """

    def forward(self, x: Tensor) -> Tensor:
        """(n, d) -> (n, d)."""
        lengths: Tensor = torch.linalg.vector_norm(x, dim=1, keepdim=True)
        return F.normalize(x.sign() * x.abs().sqrt(), dim=1) * lengths


def build_backbone(name: str, shape: Sequence[int], pretrained: bool = False) -> nn.Module:
    """Build a backbone for inputs of a shape: (channels, height, width), or (dimensions,) for feature vectors.

    `pretrained` weights are timm's, downloaded (or taken from its cache) only on request.
    """
    if pretrained and (name in _VECTORS or _WRN.fullmatch(name)):
        raise LecoError(f"{name} has no pretrained weights; choose a timm model, such as resnet50")
    check_backbone(name)
    if name in _VECTORS:
        return Features(name, math.prod(shape))
    if found := _WRN.fullmatch(name):
        _check_images(name, shape)
        return WideResNet(int(found[1]), int(found[2]), shape[0])
    _check_images(name, shape)
    return timm_model(name, pretrained, _OTHERS, num_classes=0, in_chans=shape[0])


def check_backbone(name: str) -> None:
    """Refuse a name that is not a backbone, whatever the inputs."""
    if name not in _VECTORS and not _WRN.fullmatch(name):
        check_known(name, _OTHERS)


def _check_images(name: str, shape: Sequence[int]) -> None:
    if len(shape) != 3:
        raise LecoError(f"{name} takes images, but these are feature vectors; choose linear, roots or mlp")


def input_statistics(name: str) -> tuple[Tensor, Tensor]:
    """Mean and standard deviation of the pixels, in [0, 1], that the pretrained weights of a timm model expect."""
    import timm

    config = timm.get_pretrained_cfg(name)
    if config is None:
        raise LecoError(f"{name} has no pretrained weights; choose a timm model, such as resnet50")
    return torch.tensor(config.mean), torch.tensor(config.std)


def has_weights(name: str) -> bool:
    """Whether timm has pretrained weights of a model, on this machine or for download."""
    import timm

    return bool(timm.is_model(name) and timm.is_model_pretrained(name))


def cached_weights(name: str) -> Path | None:
    """Path of a timm model's pretrained weights if they are on this machine; never accesses the network."""
    import timm
    from huggingface_hub import try_to_load_from_cache

    config = timm.get_pretrained_cfg(name, allow_unregistered=True) if timm.is_model(name) else None
    if config is None or not config.hf_hub_id:
        return None
    found = try_to_load_from_cache(config.hf_hub_id, "model.safetensors")
    return Path(found) if isinstance(found, str) else None


def check_known(name: str, others: Sequence[str] = ()) -> None:
    """Refuse a name that timm does not know; `others` are further valid names to suggest."""
    import timm

    if not timm.is_model(name):
        raise LecoError(f"{name!r} is not a backbone{nearest(name, [*others, *timm.list_models()])}")


def timm_model(name: str, pretrained: bool, others: Sequence[str] = (), **options: Any) -> nn.Module:
    """Build a timm model; `others` are further valid names, which the error message suggests."""
    import timm

    check_known(name, others)
    if pretrained and (cached := cached_weights(name)):
        options["pretrained_cfg_overlay"] = {"file": str(cached)}  # otherwise timm asks the hub for newer ones
    try:
        model: nn.Module = timm.create_model(name, pretrained=pretrained, **options)
    except Exception as error:  # whatever the hub, the network or the file system raises
        if not pretrained:
            raise LecoError(f"{name} cannot be built: {first_line(error)}") from None
        problem = first_line(error)
        remedy = "check the network connection, or train without pretrained weights"
        raise LecoError(f"the pretrained weights of {name} cannot be loaded ({problem}); {remedy}") from None
    return model
