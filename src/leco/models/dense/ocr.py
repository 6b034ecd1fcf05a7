"""Object-contextual representations (Yuan, Chen and Wang 2020): appendix C's head for HRNet-V2-W48.

Shapes: n images, c channels, k classes, h x w pixels of the feature maps.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from leco.models.dense.trunks import conv_norm_relu

# HRNet's settings for Cityscapes, which the paper follows.
CHANNELS = 512
KEY_CHANNELS = 256
DROPOUT = 0.05


class OcrHead(nn.Module):
    """Classify each pixel by its own features and those of the objects it seems to belong to.

    A first prediction, the auxiliary logits, assigns pixels to classes; the mean of their features represents a class
    in this image; every pixel attends to these k representations. Training adds the same loss on the auxiliary
    logits, with a weight of 0.4 in HRNet's settings.
    """

    def __init__(self, channels_in: int, num_classes: int) -> None:
        super().__init__()
        self.auxiliary = conv_norm_relu(channels_in, channels_in, 1)
        self.auxiliary_classifier = nn.Conv2d(channels_in, num_classes, 1)
        self.pixels = conv_norm_relu(channels_in, CHANNELS, 3)
        self.attention = ObjectAttention(CHANNELS, KEY_CHANNELS)
        self.merge = nn.Sequential(conv_norm_relu(2 * CHANNELS, CHANNELS, 1), nn.Dropout2d(DROPOUT))
        self.classifier = nn.Conv2d(CHANNELS, num_classes, 1)

    def forward(self, features: Tensor) -> tuple[Tensor, Tensor]:
        """(n, channels_in, h, w) -> logits and auxiliary logits, both (n, k, h, w)."""
        auxiliary_logits: Tensor = self.auxiliary_classifier(self.auxiliary(features))
        pixels = self.pixels(features)
        context = self.attention(pixels, represent_classes(pixels, auxiliary_logits))
        logits: Tensor = self.classifier(self.merge(torch.cat([context, pixels], dim=1)))
        return logits, auxiliary_logits


def represent_classes(pixels: Tensor, logits: Tensor) -> Tensor:
    """Features (n, c, k) of each class: the mean over its soft region, given features (n, c, h, w) and logits.

    A region is a softmax over the pixels, not the classes, so it sums to one even for a class that is absent.
    """
    regions = logits.flatten(2).softmax(dim=2)  # (n, k, hw)
    return torch.einsum("nkp,ncp->nck", regions, pixels.flatten(2))


class ObjectAttention(nn.Module):
    """For each pixel, a mixture of the class representations, weighted by their similarity to the pixel."""

    def __init__(self, channels: int, key_channels: int) -> None:
        super().__init__()
        self.query = _two_layers(channels, key_channels)
        self.key = _two_layers(channels, key_channels)
        self.value = conv_norm_relu(channels, key_channels, 1)
        self.out = conv_norm_relu(key_channels, channels, 1)

    def forward(self, pixels: Tensor, classes: Tensor) -> Tensor:
        """Pixels (n, c, h, w) and classes (n, c, k) -> context (n, c, h, w)."""
        classes = classes.unsqueeze(3)  # (n, c, k, 1), for convolutions
        query, key, value = self.query(pixels), self.key(classes), self.value(classes)
        # One attention head; the fused kernels expect it as a dimension and never store the (hw, k) weights.
        query_hw, key_k, value_k = (maps.flatten(2).transpose(1, 2).unsqueeze(1) for maps in (query, key, value))
        mixture = F.scaled_dot_product_attention(query_hw, key_k, value_k)  # (n, 1, hw, key_channels)
        context: Tensor = self.out(mixture.squeeze(1).transpose(1, 2).reshape_as(query))
        return context


def _two_layers(channels_in: int, channels_out: int) -> nn.Sequential:
    return nn.Sequential(conv_norm_relu(channels_in, channels_out, 1), conv_norm_relu(channels_out, channels_out, 1))
