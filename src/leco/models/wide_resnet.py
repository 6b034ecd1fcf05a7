"""Wide residual networks as FixMatch defines them (Zagoruyko and Komodakis 2016; Sohn et al. 2020)."""

import torch.nn.functional as F
from torch import Tensor, nn

from leco.errors import LecoError

# FixMatch's choices, which differ from the usual ones.
SLOPE = 0.1
MOMENTUM = 0.001


class Block(nn.Module):
    """Two 3x3 convolutions, each after BatchNorm and leaky ReLU, and a shortcut around them.

    With `raw`, the first convolution takes the block's input as it is, and BatchNorm before it has no effect.
    """

    def __init__(
        self, channels_in: int, channels_out: int, stride: int, activate_shortcut: bool, raw: bool = False
    ) -> None:
        super().__init__()
        self.norm1 = nn.BatchNorm2d(channels_in, momentum=MOMENTUM)
        self.conv1 = nn.Conv2d(channels_in, channels_out, 3, stride, padding=1, bias=False)
        self.norm2 = nn.BatchNorm2d(channels_out, momentum=MOMENTUM)
        self.conv2 = nn.Conv2d(channels_out, channels_out, 3, padding=1, bias=False)
        same = channels_in == channels_out and stride == 1
        self.shortcut = nn.Identity() if same else nn.Conv2d(channels_in, channels_out, 1, stride, bias=False)
        # In the first block of the network, the shortcut also gets the activated input.
        self.activate_shortcut = activate_shortcut and not same
        self.raw = raw and not same

    def forward(self, x: Tensor) -> Tensor:
        """(n, channels_in, h, w) -> (n, channels_out, h / stride, w / stride)."""
        if self.raw:  # distributed training wants a gradient of every parameter, if only zero
            activated = x + 0 * (self.norm1.weight.sum() + self.norm1.bias.sum()) if self.training else x
        else:
            activated = F.leaky_relu(self.norm1(x), SLOPE, inplace=True)
        hidden = F.leaky_relu(self.norm2(self.conv1(activated)), SLOPE, inplace=True)
        shortcut: Tensor = self.shortcut(activated if self.activate_shortcut else x)
        residual: Tensor = self.conv2(hidden)
        return residual.add_(shortcut)


class WideResNet(nn.Module):
    """WRN-depth-width up to its pooled features, (n, 64 * width).

    `released` is the network of the released code, which forgets the activation at the start of groups 2 and 3.
    """

    def __init__(self, depth: int, width: int, in_channels: int = 3, *, released: bool = False) -> None:
        if depth < 10 or (depth - 4) % 6 or width < 1:
            raise LecoError(f"wrn-{depth}-{width}: the depth must be 10, 16, 22, 28, …, and the width at least 1")
        super().__init__()
        channels = [16, 16 * width, 32 * width, 64 * width]
        self.stem = nn.Conv2d(in_channels, channels[0], 3, padding=1, bias=False)
        blocks = []
        for group in range(3):
            for number in range((depth - 4) // 6):
                first = number == 0
                channels_in = channels[group] if first else channels[group + 1]
                stride = 2 if first and group > 0 else 1
                raw = released and first and group > 0
                blocks.append(Block(channels_in, channels[group + 1], stride, first and group == 0, raw))
        self.blocks = nn.Sequential(*blocks)
        self.norm = nn.BatchNorm2d(channels[3], momentum=MOMENTUM)
        self.num_features = channels[3]
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="leaky_relu")

    def forward(self, images: Tensor) -> Tensor:
        """(n, c, h, w) -> (n, 64 * width)."""
        maps = F.leaky_relu(self.norm(self.blocks(self.stem(images))), SLOPE, inplace=True)
        return maps.mean(dim=(2, 3))
