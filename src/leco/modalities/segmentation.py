"""Images with a label for every pixel (appendix C of the paper)."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from timm.data.constants import IMAGENET_DEFAULT_MEAN, IMAGENET_DEFAULT_STD
from torch import Tensor, nn

from leco.data.batches import Crop
from leco.data.benchmarks.camvid import TINY
from leco.data.images import SUFFIXES
from leco.data.inputs import ALONE, InputBatch, Share
from leco.data.manifest.manifest import Manifest
from leco.data.manifest_samples import lazy_samples
from leco.data.samples import Samples
from leco.data.views.images import Normalisation
from leco.data.views.segmentation import JointCrop, photometric
from leco.data.views.sets import ViewSet, segmentation_views
from leco.errors import LecoError
from leco.methods.method import Method
from leco.modalities.image import channel_statistics, check_image_bundle, expected_statistics, fine_tuned
from leco.modalities.modality import Modality, Normalise, refuse, register_modality
from leco.models.backbones import check_known
from leco.models.dense.network import build_segmenter
from leco.models.dense.sliding_window import sliding_window
from leco.models.dense.trunks import has_pyramid
from leco.models.network import AnyNetwork
from leco.models.weights import Weights
from leco.nested import merge
from leco.ontology.ontology import Ontology
from leco.ontology.version import Version
from leco.settings import NetworkSettings, SegmentationSettings, Settings, ViewSettings

_SMALLEST_WINDOW, _LARGE_WINDOW = 8, 1_024  # pixels; a larger window must not exceed its images
_MOST_WINDOWS = 40  # along an edge
_MOST_PROBABILITIES = 2**30  # of one image
# A pretrained trunk below new layers, which are not heads to the optimiser, and so need a higher rate than in images.
_FINE_TUNED: dict[str, Any] = merge(
    TINY,
    {
        "network": {"frozen_norm": True},
        "optimiser": {
            **{"name": "adamw", "learning_rate": (1e-3,), "finetune_learning_rate": None, "head_factor": 10.0},
            **{"weight_decay": 0.01, "schedule": "half-cosine", "warm_up": 0.1},
        },
        "average": {"decay": 0.0, "warm_up": False},
    },
)


@register_modality
class Segmentation(Modality):
    """Semantic segmentation."""

    name = "segmentation"
    data_kind = "masks"
    suffixes = SUFFIXES
    metric = "miou"
    unit = "pixels"
    has_masks = True
    fixed_shape = False
    purpose = "labels every pixel of images"
    reuses_pixels = True

    def read(self, manifest: Manifest, ontology: Ontology, side: int) -> Samples:
        """Images and masks of a manifest, padded to squares."""
        return lazy_samples(manifest, ontology, side)

    def views(self, samples: Samples, train: Tensor) -> ViewSet:
        """Identity views: crops are made when samples are read."""
        return segmentation_views()

    def normaliser(self, samples: Samples, train: Tensor, network: NetworkSettings) -> Normalise:
        """Statistics that the weights expect; ImageNet's, as in HRNet, for random ones."""
        if network.weights == "random":
            return Normalisation(torch.tensor(IMAGENET_DEFAULT_MEAN), torch.tensor(IMAGENET_DEFAULT_STD))
        self.check_backbone(network.backbone)
        return Normalisation(*expected_statistics(network))

    def statistics(self, normalise: Normalise) -> tuple[Sequence[float], Sequence[float]]:
        """Mean and standard deviation of each channel."""
        return channel_statistics(normalise)

    def restored_normaliser(self, mean: Sequence[float], std: Sequence[float]) -> Normalise:
        """Centre and scale each channel."""
        return Normalisation(torch.tensor(mean), torch.tensor(std))

    def defaults(
        self, image_size: int, backbone: str | None = None, samples: int = 0, weights: str | None = None
    ) -> dict[str, Any]:
        """Fine-tune the weights that are named or on this machine, or else train a small network from random ones.

        Nothing is downloaded. Crops have the size of the images.
        """
        tuned = fine_tuned(backbone, weights)
        if tuned and not backbone and not has_pyramid(tuned):
            tuned = None
        named = {"network": {"backbone": tuned, "weights": "pretrained"}}
        recipe = merge(_FINE_TUNED, named) if tuned else TINY
        side = {"crop": image_size, "base_size": image_size, "window": image_size}
        return merge(recipe, {"batches": {"steps": 1_000, "evaluate_every": 200}, "segmentation": side})

    def network(
        self, backbone: str, shape: Sequence[int], versions: Sequence[Version], weights: Weights | None = None
    ) -> AnyNetwork:
        """HRNet with OCR heads, or a light pyramid on another backbone."""
        return build_segmenter(backbone, versions, weights)

    def check_backbone(self, name: str) -> None:
        """Refuse a name that is neither `tiny` nor one of timm's models."""
        if name != "tiny":
            check_known(name, ["tiny"])

    def check(self, settings: Settings, shape: Sequence[int], classes: int) -> None:
        """Refuse windows that do not fit the images, and settings that require one label per sample."""
        refuse(settings, self.name)
        try:
            check_window(max(shape[1:]), settings.segmentation.window, classes)
        except ValueError as error:
            raise LecoError(f"training.segmentation.window: {error}") from None

    def crop(self, settings: SegmentationSettings) -> Crop | None:
        """Random crop of the scaled image and its mask."""
        return JointCrop(settings.base_size, settings.crop, settings.scale)

    def training_views(self, views: ViewSet, method: Method, settings: ViewSettings) -> ViewSet:
        """Add photometric changes to the strong view for FixMatch, whose strong and weak views must differ."""
        return replace(views, strong=photometric) if method.pseudo == "fixmatch" else views

    def evaluation_batch(self, samples: Samples, shape: Sequence[int]) -> int:
        """One if images were padded, since they are evaluated without their padding."""
        return 8 if samples.sizes is None else 1

    def probs(self, network: nn.Module, ready: Tensor, version: str, *, window: int, sizes: Tensor | None) -> Tensor:
        """Probabilities (n, c, h, w) from sliding windows that overlap by a third."""
        stride = 2 * window // 3
        if sizes is None or not len(ready):
            return sliding_window(network, ready, version, window, stride)
        (height, width), *_ = sizes.tolist()  # one at a time: the rest of the square is padding
        probs = sliding_window(network, ready[:, :, :height, :width], version, window, stride)
        return nn.functional.pad(probs, (0, ready.shape[3] - width, 0, ready.shape[2] - height))

    def inputs(
        self,
        arguments: Sequence[str],
        shape: Sequence[int],
        side: int | None,
        *,
        size: int,
        root: Path | None,
        share: Share = ALONE,
    ) -> Iterator[InputBatch]:
        """Raise: masks are predicted one at a time by `model.masks`."""
        raise LecoError("a model for segmentation predicts masks: pass a folder to write them to")

    def bundled(self, raw_shape: Sequence[int], settings: SegmentationSettings) -> dict[str, int | None]:
        """Length of an image's longer edge, and side of the sliding windows."""
        return {"side": max(raw_shape[1:]), "window": settings.window}

    def check_bundle(self, fields: Mapping[str, Any]) -> None:
        """Check that images have channels, a side, statistics of each channel, and a window that fits."""
        check_image_bundle(self.name, fields)
        shape, side, window = (fields[name] for name in ("shape", "side", "window"))
        if max(shape[1:]) != side:
            raise ValueError(f"the longer edge of {shape[1]} x {shape[2]} pixels must be `side`, {side}")
        if window is None:
            raise ValueError("segmentation needs a `window`")
        check_window(side, window, fields.get("classes", 1))


def check_window(side: int, window: int, classes: int = 1) -> None:
    """Raise ValueError for windows that would take minutes or gigabytes for images whose longer edge is `side`."""
    if not max(_SMALLEST_WINDOW, side / _MOST_WINDOWS) <= window <= max(_LARGE_WINDOW, 2 * side):
        raise ValueError(f"windows of {window} pixels are too small, or too large, for images of {side}")
    if max(side, window) ** 2 * classes > _MOST_PROBABILITIES:
        raise ValueError(f"{classes:,} classes are too many for windows of {window} pixels in images of {side}")
