"""Backbones by name: `wrn-28-2` (or `-released`), any timm model, or `linear`, `roots` and `mlp` for vectors.

The latter can also be put on top of a backbone of images: `resnet50+mlp`.
"""

import logging
import math
import re
import statistics
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from leco.devices import place
from leco.errors import LecoError, first_line, nearest
from leco.models.folding import folded
from leco.models.layers import width
from leco.models.names import top_of, trunk_of
from leco.models.timm_models import check_memory, first_convolutions, input_config, is_timm, timm_options
from leco.models.weights import Weights
from leco.models.wide_resnet import WideResNet

_WRN = re.compile(r"wrn-([0-9]{1,3})-([0-9]{1,3})(-released)?")
HEAD_ALONE = ("linear", "roots")  # nothing else is trained
_VECTORS = (*HEAD_ALONE, "mlp")
_TOPS = ("mlp", "roots")
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


class Stacked(nn.Module):
    """A backbone of images, and what is trained on its features."""

    def __init__(self, trunk: nn.Module, top: str) -> None:
        super().__init__()
        self.trunk, self.top = trunk, Features(top, width(trunk))
        self.num_features = self.top.num_features

    def forward(self, inputs: Tensor) -> Tensor:
        """(n, c, h, w) -> (n, num_features)."""
        hidden: Tensor = self.top(self.trunk(inputs))
        return hidden


class Roots(nn.Module):
    """Signed square root of every number, scaled so that each vector keeps its length.

    Network features are skewed: a few large values dominate the others.
    """

    def forward(self, x: Tensor) -> Tensor:
        """(n, d) -> (n, d)."""
        lengths: Tensor = torch.linalg.vector_norm(x, dim=1, keepdim=True)
        return F.normalize(x.sign() * x.abs().sqrt(), dim=1) * lengths


def build_backbone(name: str, shape: Sequence[int], weights: Weights | None = None) -> nn.Module:
    """Build a backbone for inputs of a shape: (channels, height, width), or (dimensions,) for feature vectors.

    Its weights are those that `find_weights` found, or random. Weights for colour images also fit grey ones: the first
    convolution is summed over colours.
    """
    check_backbone(name)
    if top := top_of(name):
        return Stacked(build_backbone(trunk_of(name), shape, weights), top)
    if weights is not None:
        weights.check_backbone(name)
    if name in _VECTORS:
        return Features(name, math.prod(shape))
    _check_images(name, shape)
    if found := _WRN.fullmatch(name):
        build = partial(WideResNet, int(found[1]), int(found[2]), shape[0], released=bool(found[3]))
        if torch.get_default_device().type != "meta":
            with torch.device("meta"):
                parameters = sum(parameter.numel() for parameter in build().parameters())
            check_memory(name, parameters=parameters)
        return build()
    return timm_model(name, weights, _OTHERS, num_classes=0, in_chans=shape[0])


def check_backbone(name: str) -> None:
    """Refuse a name that is not a backbone, whatever the inputs."""
    if top := top_of(name):
        if top not in _TOPS or trunk_of(name) in _VECTORS:
            raise LecoError(f"{name!r} is not a backbone; put {' or '.join(_TOPS)} on a backbone of images")
        name = trunk_of(name)
    if name not in _VECTORS and not _WRN.fullmatch(name):
        check_known(name, _OTHERS)


def _check_images(name: str, shape: Sequence[int]) -> None:
    if len(shape) != 3:
        raise LecoError(f"{name} takes images, but these are feature vectors; choose linear, roots or mlp")


def check_known(name: str, others: Sequence[str] = ()) -> None:
    """Refuse a name that timm does not know; `others` are further valid names to suggest."""
    import timm

    if not is_timm(name):
        raise LecoError(f"{name!r} is not a backbone{nearest(name, [*others, *timm.list_models()])}")


def timm_model(name: str, weights: Weights | None = None, others: Sequence[str] = (), **options: Any) -> nn.Module:
    """Build a timm model; `others` are further valid names, which the error message suggests."""
    import timm

    check_known(name, others)
    if torch.get_default_device().type != "meta":
        check_memory(name)
    known, given = timm_options(name)
    options = {**given, **options}
    if weights is not None:
        tensors = weights.tensors()
        _check_channels(weights, tensors, options.get("in_chans", 3))
        # Of all sources, timm prefers tensors in memory. It adapts them to grey images and to models of feature maps.
        options |= {"pretrained": True, "pretrained_cfg_overlay": {"state_dict": tensors}}
    try:
        with _without_warnings():
            model: nn.Module = timm.create_model(known, **options)
    except Exception as error:  # whatever timm's code for this model raises
        raise LecoError(f"{name} cannot be built: {first_line(error)}") from None
    for config in ("pretrained_cfg", "default_cfg"):
        getattr(model, config, {}).pop("state_dict", None)  # a second copy of the weights
    return model


def embedding_speed(weights: Weights, device: torch.device, *, seconds: float = 1.0, batch: int = 8) -> float:
    """Measure how many images a second a backbone embeds on a device, at the input size of its weights."""
    side = input_config(weights.backbone).side
    network = place(build_backbone(weights.backbone, (3, side, side), weights), device).eval()
    images = torch.rand(batch, 3, side, side, device=device)
    network = folded(network, images[:1])
    times: list[float] = []
    with torch.inference_mode():
        while len(times) < 3 or sum(times) < seconds:
            before = time.perf_counter()
            network(images)[0, 0].item()  # waits for the device
            times.append(time.perf_counter() - before)
            if len(times) > 1 and sum(times) > 3 * seconds:
                break
    return batch / statistics.median(times[1:])  # the first is a warm-up


def _check_channels(weights: Weights, tensors: Mapping[str, Tensor], channels: int) -> None:
    """Refuse inputs that are neither RGB nor grey, and weights that cannot be adapted to grey images."""
    first = [tensors.get(f"{name}.weight") for name in first_convolutions(weights.backbone)]
    adaptable = bool(first) and all(conv is not None and conv.ndim == 4 and conv.shape[1] % 3 == 0 for conv in first)
    if channels != 3 and not (channels == 1 and adaptable):
        raise LecoError(
            f"{weights.backbone}: these weights take RGB images, which cannot be adapted to inputs of {channels} "
            f"channel{'s' * (channels > 1)}; convert the images to RGB, or set training.network.weights to random"
        )


@contextmanager
def _without_warnings() -> Iterator[None]:
    """Keep timm from listing the weights of layers that a model of feature maps lacks; names were checked before."""
    logger = logging.getLogger("timm.models._builder")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(level)
