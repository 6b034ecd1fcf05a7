"""A light trunk for segmentation on small machines: the feature pyramid of a network."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from leco.errors import LecoError
from leco.models.backbones import timm_model
from leco.models.feature_maps import conv_norm_relu, resize

FINEST_STRIDE = 4
CHANNELS = 64


class Pyramid(nn.Module):
    """Feature maps of a network, projected to the same channels and added up from coarse to fine.

    In the manner of feature pyramid networks (Lin et al. 2017), but with one 3x3 convolution at the end instead of
    one per resolution, since only the finest sum is used.
    """

    def __init__(self, network: nn.Module, channels: Sequence[int]) -> None:
        """`network` gives a list of maps, from fine to coarse; the last ones, with these `channels`, are used."""
        super().__init__()
        self.network = network
        self.laterals = nn.ModuleList(nn.Conv2d(number, CHANNELS, 1) for number in channels)
        self.smooth = conv_norm_relu(CHANNELS, CHANNELS, 3)
        self.num_features = CHANNELS

    def forward(self, images: Tensor) -> Tensor:
        """(n, 3, h, w) -> (n, num_features, h / 4, w / 4), rounded up, or at the finest stride that there is."""
        maps = self.network(images)[-len(self.laterals) :]
        *finer, total = [lateral(map_) for lateral, map_ in zip(self.laterals, maps, strict=True)]
        for lateral in reversed(finer):
            height, width = lateral.shape[-2:]
            total = lateral + resize(total, height, width)
        smoothed: Tensor = self.smooth(total)
        return smoothed


def timm_pyramid(name: str, pretrained: bool, others: Sequence[str] = ()) -> Pyramid:
    """The pyramid of a timm model, from stride 4 up; `others` are names that would have been right, too.

    Whether a model will do is found by trying it on a small image of an odd size: nearly half of timm's take none
    but the size they were made for, or only multiples of some patch, or have no feature maps.
    """
    height, width = 97, 131
    try:
        network = timm_model(name, pretrained, others, features_only=True).eval()
        with torch.no_grad():
            maps = network(torch.zeros(1, 3, height, width))
        proper = [map_.shape[1] for map_ in maps] == network.feature_info.channels()  # type: ignore[operator, union-attr]
    except LecoError:
        raise
    except Exception:  # a failed assertion, a shape that cannot be, or a network without feature maps
        proper = False
    if not proper:
        raise LecoError(f"{name} gives no feature maps of images of any size; choose a convolutional one, as resnet18")
    used = [map_ for map_ in maps if map_.shape[2] * FINEST_STRIDE < height + FINEST_STRIDE]
    return Pyramid(network.train(), [map_.shape[1] for map_ in used])
