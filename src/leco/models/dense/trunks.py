"""Trunks of dense networks, and the convolution and resizing they are made of."""

from collections.abc import Sequence
from functools import lru_cache

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from leco.errors import LecoError
from leco.models.backbones import timm_model
from leco.models.weights import Weights


def conv_norm_relu(channels_in: int, channels_out: int, kernel: int, stride: int = 1) -> nn.Sequential:
    """A padded convolution, BatchNorm and ReLU; no bias, which BatchNorm would subtract again."""
    return nn.Sequential(
        nn.Conv2d(channels_in, channels_out, kernel, stride, padding=kernel // 2, bias=False),
        nn.BatchNorm2d(channels_out),
        nn.ReLU(inplace=True),
    )


def resize(maps: Tensor, height: int, width: int) -> Tensor:
    """Resample (n, c, h, w) bilinearly to (n, c, height, width); maps that have this size already are not copied.

    Pixels are squares (`align_corners=False`), as in the views. HRNet's Cityscapes settings align corners instead: a
    stride of 4 is then 4.017 in a crop of 720 pixels and 4.077 in one of 160, so that maps are shifted in windows
    whose size differs from the training crop. Here the stride is the same in every window.
    """
    if maps.shape[-2:] == (height, width):
        return maps
    return F.interpolate(maps, size=(height, width), mode="bilinear", align_corners=False)


class HighResolution(nn.Module):
    """The four resolutions of an HRNet, at strides 4, 8, 16 and 32, resized to the finest and concatenated.

    `hrnet_w48` gives 48 + 96 + 192 + 384 = 720 channels. `feature_location=""` asks timm for the last stage itself,
    without the layers that only classification has.
    """

    def __init__(self, name: str, weights: Weights | None = None) -> None:
        super().__init__()
        self.maps = timm_model(name, weights, features_only=True, feature_location="", out_indices=(1, 2, 3, 4))
        self.num_features = sum(self.maps.feature_info.channels())  # type: ignore[operator, union-attr]
        for stage in (self.maps.stage2, self.maps.stage3, self.maps.stage4):
            assert isinstance(stage, nn.Sequential)
            for index, module in enumerate(stage):
                stage[index] = Exchange(module)

    def forward(self, images: Tensor) -> Tensor:
        """(n, 3, h, w) -> (n, num_features, h / 4, w / 4), rounded up."""
        maps = self.maps(images)
        height, width = maps[0].shape[-2:]
        return torch.cat([resize(map_, height, width) for map_ in maps], dim=1)


class Exchange(nn.Module):
    """One of timm's modules that exchange information between resolutions, for maps of any size.

    timm doubles coarse maps, which only works for images whose sides are multiples of 32, unlike the paper's crops of
    720 pixels. HRNet's segmentation code resizes bilinearly to the required size, and so does this. The parts keep
    timm's names, so that weights are interchangeable.
    """

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        assert isinstance(module.branches, nn.ModuleList)
        assert isinstance(module.fuse_layers, nn.ModuleList)
        self.branches = module.branches
        self.fuse_layers = module.fuse_layers
        for target, layers in enumerate(self.fuse_layers):
            assert isinstance(layers, nn.ModuleList)
            for source in range(target + 1, len(layers)):
                layers[source] = layers[source][:-1]  # type: ignore[index]  # all but the doubling

    def forward(self, maps: Sequence[Tensor]) -> list[Tensor]:
        """Maps from fine to coarse, each (n, c_i, h_i, w_i), to maps of the same shapes."""
        maps = [branch(map_) for branch, map_ in zip(self.branches, maps, strict=True)]
        fused = []
        for target, layers in zip(maps, self.fuse_layers, strict=True):
            assert isinstance(layers, nn.ModuleList)
            height, width = target.shape[-2:]
            parts = [resize(layer(map_), height, width) for layer, map_ in zip(layers, maps, strict=True)]
            fused.append(F.relu(sum(parts[1:], parts[0])))
        return fused


FINEST_STRIDE = 4
CHANNELS = 64


class Pyramid(nn.Module):
    """Feature maps of a network, projected to the same channels and added up from coarse to fine.

    A feature pyramid network (Lin et al. 2017), but with one 3x3 convolution at the end instead of one per resolution,
    since only the finest sum is used.
    """

    def __init__(self, network: nn.Module, channels: Sequence[int]) -> None:
        """Use the last maps, with these `channels`, of those that `network` returns from fine to coarse."""
        super().__init__()
        self.network = network
        self.laterals = nn.ModuleList(nn.Conv2d(number, CHANNELS, 1) for number in channels)
        self.smooth = conv_norm_relu(CHANNELS, CHANNELS, 3)
        self.num_features = CHANNELS

    def forward(self, images: Tensor) -> Tensor:
        """(n, 3, h, w) -> (n, num_features, h / 4, w / 4), rounded up, or at the finest stride available."""
        maps = self.network(images)[-len(self.laterals) :]
        *finer, total = [lateral(map_) for lateral, map_ in zip(self.laterals, maps, strict=True)]
        for lateral in reversed(finer):
            height, width = lateral.shape[-2:]
            total = lateral + resize(total, height, width)
        smoothed: Tensor = self.smooth(total)
        return smoothed


@lru_cache(maxsize=16)
def has_pyramid(name: str) -> bool:
    """Whether a timm model has feature maps for a pyramid, which is tried without memory for its weights."""
    try:
        with torch.device("meta"):
            timm_pyramid(name)
    except LecoError:
        return False
    return True


def timm_pyramid(name: str, weights: Weights | None = None, others: Sequence[str] = ()) -> Pyramid:
    """Pyramid of a timm model, from stride 4 up; `others` are further valid names, which the error message suggests.

    Models are tried on a small image of an odd size: nearly half of timm's accept only the size they were made for,
    only multiples of some patch, or have no feature maps.
    """
    height, width = 97, 131
    try:
        network = timm_model(name, weights, others, features_only=True).eval()
        with torch.no_grad():
            maps = network(torch.zeros(1, 3, height, width))
        proper = [map_.shape[1] for map_ in maps] == network.feature_info.channels()  # type: ignore[operator, union-attr]
    except LecoError:
        raise
    except Exception:  # a failed assertion, an impossible shape, or a network without feature maps
        proper = False
    if not proper:
        raise LecoError(
            f"{name} has no feature maps for images of any size; choose a convolutional network, such as resnet18"
        )
    used = [map_ for map_ in maps if map_.shape[2] * FINEST_STRIDE < height + FINEST_STRIDE]
    return Pyramid(network.train(), [map_.shape[1] for map_ in used])
