"""HRNet-V2 (Wang et al. 2019) as a trunk for segmentation: timm's network and weights, for images of any size."""

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from leco.models.backbones import timm_model
from leco.models.feature_maps import resize


class HighResolution(nn.Module):
    """The four resolutions of an HRNet, at strides 4, 8, 16 and 32, resized to the finest and concatenated.

    `hrnet_w48` gives 48 + 96 + 192 + 384 = 720 channels. `feature_location=""` asks timm for the last stage itself,
    without the layers that only classification has.
    """

    def __init__(self, name: str, pretrained: bool = False) -> None:
        super().__init__()
        self.maps = timm_model(name, pretrained, features_only=True, feature_location="", out_indices=(1, 2, 3, 4))
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
    """One of timm's modules that let the resolutions exchange what they know, but for maps of any size.

    timm doubles coarse maps, which fits only images whose sides are multiples of 32, and the paper's crops of 720
    pixels are not. HRNet's segmentation code resizes bilinearly to the size at hand, and so does this. The parts keep
    timm's names, so weights of one fit the other.
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
