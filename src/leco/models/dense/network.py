"""Segmentation networks: HRNet-V2 with OCR heads (appendix C of the paper), or any timm model with light heads."""

from collections.abc import Callable, Sequence

from torch import Tensor, nn

from leco.methods.terms import auxiliary
from leco.models.dense.ocr import OcrHead
from leco.models.dense.tiny import Tiny
from leco.models.dense.trunks import HighResolution, Pyramid, resize, timm_pyramid
from leco.models.network import AnyNetwork
from leco.models.weights import Weights
from leco.ontology.version import Version

Head = Callable[[int, int], nn.Module]  # (input channels, classes) -> a module for logits, or final and auxiliary ones
_TINY = "tiny"


def build_segmenter(name: str, versions: Sequence[Version], weights: Weights | None = None) -> "SegmentationNetwork":
    """Build a network by name.

    `hrnet_w48` is the paper's; all of timm's `hrnet…` get OCR heads. Other timm models (`resnet18`) become a light
    pyramid with a linear pixel classifier, and so does `tiny`, for training from scratch on a CPU.
    With `weights` for ImageNet it is the paper's TrainScratch; without any, TrainRandom.
    """
    if weights is not None:
        weights.check_backbone(name)
    if name == _TINY:
        network = Tiny()
        return SegmentationNetwork(Pyramid(network, network.channels), versions, linear_head)
    if name.startswith("hrnet"):
        return SegmentationNetwork(HighResolution(name, weights), versions, OcrHead)
    return SegmentationNetwork(timm_pyramid(name, weights, others=[_TINY]), versions, linear_head)


class SegmentationNetwork(AnyNetwork):
    """Feature maps, and for each version a head that classifies their pixels; the `Network` of segmentation.

    The last version is the one the network is for. Every head's logits are upsampled once, auxiliary ones only in
    training: for 8 crops of 720 pixels and 116 classes they take 1.9 GB.
    """

    def __init__(self, backbone: nn.Module, versions: Sequence[Version], head: Head) -> None:
        super().__init__()
        self.backbone = backbone
        self.versions = tuple(version.name for version in versions)
        features = int(backbone.num_features)  # type: ignore[arg-type]
        self.heads = nn.ModuleList(head(features, len(version)) for version in versions)

    def forward(self, images: Tensor) -> dict[str, Tensor]:
        """Images (n, 3, h, w) to logits (n, c, h, w) for each version that has a head.

        In training, this includes the auxiliary logits of OCR heads, under `auxiliary(version)`.
        """
        height, width = images.shape[-2:]
        features = self.backbone(images)
        found: dict[str, Tensor] = {}
        for version, head in zip(self.versions, self.heads, strict=True):
            logits = head(features)
            if isinstance(head, OcrHead):
                logits, guess = logits
                if self.training:
                    found[auxiliary(version)] = resize(guess, height, width)
            found[version] = resize(logits, height, width)
        return found


def linear_head(channels_in: int, num_classes: int) -> nn.Conv2d:
    """A linear classifier of each pixel, initialised like those of `Network`."""
    head = nn.Conv2d(channels_in, num_classes, 1)
    nn.init.xavier_normal_(head.weight)
    assert head.bias is not None
    nn.init.zeros_(head.bias)
    return head
