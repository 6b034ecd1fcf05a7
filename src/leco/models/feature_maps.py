"""The two things that every dense network here is made of: a normalised convolution, and a change of resolution."""

import torch.nn.functional as F
from torch import Tensor, nn


def conv_norm_relu(channels_in: int, channels_out: int, kernel: int, stride: int = 1) -> nn.Sequential:
    """A padded convolution, BatchNorm and ReLU; without a bias, which BatchNorm would subtract again."""
    return nn.Sequential(
        nn.Conv2d(channels_in, channels_out, kernel, stride, padding=kernel // 2, bias=False),
        nn.BatchNorm2d(channels_out),
        nn.ReLU(inplace=True),
    )


def resize(maps: Tensor, height: int, width: int) -> Tensor:
    """Resample (n, c, h, w) bilinearly to (n, c, height, width); maps of that size already are returned as they are.

    Pixels are squares (`align_corners=False`), as in the views. HRNet's Cityscapes settings align corners instead: a
    stride of 4 is then 4.017 in a crop of 720 pixels and 4.077 in one of 160, so that maps lie elsewhere in windows
    of another size than the training crop. Here the stride is the same in every window.
    """
    if maps.shape[-2:] == (height, width):
        return maps
    return F.interpolate(maps, size=(height, width), mode="bilinear", align_corners=False)
