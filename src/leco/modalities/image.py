"""Images with one label each."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from leco.data.images import SUFFIXES
from leco.data.inputs import ALONE, InputBatch, Share, cut, image_batches
from leco.data.manifest.manifest import Manifest
from leco.data.manifest_samples import lazy_samples
from leco.data.samples import Samples
from leco.data.views.images import Normalisation
from leco.data.views.sets import ViewSet, crop_views, image_views
from leco.errors import LecoError, first_line
from leco.methods.method import Method
from leco.modalities.modality import Modality, Normalise, register_modality
from leco.models.backbones import build_backbone, check_backbone
from leco.models.names import top_of, trunk_of
from leco.models.network import AnyNetwork, Network
from leco.models.timm_models import input_config, is_timm, pretrained_config
from leco.models.weights import Weights, default_weights, local_weights
from leco.ontology.ontology import Ontology
from leco.ontology.version import Version
from leco.settings import NetworkSettings, SegmentationSettings, ViewSettings

_MEASURED = 2_000  # images for channel statistics
_BATCH = 64
_EPOCHS, _FEWEST_STEPS, _MOST_STEPS, _MOST_STEPS_ON_GPU = 15, 200, 400, 4_000  # of fine-tuning
FROZEN_LAYERS = 0.35
_RANDOM = "resnet18"  # the backbone without pretrained weights


@register_modality
class Images(Modality):
    """Classification of images."""

    name = "classification"
    data_kind = "images"
    suffixes = SUFFIXES
    purpose = "classifies images"
    fits_heads = embeds = True
    reuses_pixels = True

    def read(self, manifest: Manifest, ontology: Ontology, side: int) -> Samples:
        """Centre squares of the images of a manifest."""
        return lazy_samples(manifest, ontology, side)

    def views(self, samples: Samples, train: Tensor) -> ViewSet:
        """CIFAR's views, for images of any size."""
        return image_views(int(samples.inputs.read(train[:1]).shape[-1]))

    def normaliser(self, samples: Samples, train: Tensor, network: NetworkSettings) -> Normalise:
        """Normalise each channel as the pretrained weights expect, or by the statistics of the training images."""
        if network.weights == "random":
            return Normalisation(*_measure_channels(samples, train[:_MEASURED]))
        check_backbone(network.backbone)
        mean, std = expected_statistics(network)
        channels = samples.inputs.read(train[:1]).shape[1]
        if channels != len(mean):  # timm adapts the weights to grey images; their statistics are means over colours
            mean, std = (of_colours.mean().expand(channels) for of_colours in (mean, std))
        return Normalisation(mean, std)

    def statistics(self, normalise: Normalise) -> tuple[Sequence[float], Sequence[float]]:
        """Mean and standard deviation of each channel."""
        return channel_statistics(normalise)

    def restored_normaliser(self, mean: Sequence[float], std: Sequence[float]) -> Normalise:
        """Centre and scale each channel."""
        return Normalisation(torch.tensor(mean), torch.tensor(std))

    def default_side(self) -> int:
        """The side that the default weights were trained for, if there are any on this machine."""
        found = default_weights()
        return super().default_side() if found is None else input_config(found.backbone).side

    def defaults(
        self, image_size: int, backbone: str | None = None, samples: int = 0, weights: str | None = None
    ) -> dict[str, Any]:
        """Fine-tune the weights that are named or on this machine, or else train a resnet18 from random ones.

        Nothing is downloaded. Every choice was measured: docs/lab-book/log.md.
        """
        tuned = fine_tuned(backbone, weights)
        if tuned is None:
            return {
                "network": {"backbone": backbone or _RANDOM, "weights": "random", "norm_momentum": 0.05},
                "average": {"norm": True},
                "batches": {"steps": 1_000, "evaluate_every": 200},
            }
        steps = fine_tuning_steps(samples, gpu=torch.cuda.is_available())
        return {
            "network": {
                "backbone": tuned,
                "weights": "pretrained",
                "frozen_norm": True,
                "frozen_layers": FROZEN_LAYERS,
            },
            "optimiser": {
                **{"name": "adamw", "learning_rate": (3e-4,), "head_factor": 10.0, "weight_decay": 0.01},
                **{"schedule": "half-cosine", "warm_up": 0.1},
            },
            "average": {"decay": 0.0},
            "batches": {"steps": steps, "size": _BATCH, "evaluate_every": 10**6},  # only at the end
            "views": {"crop": 0.35, "size": _crop_size(tuned, image_size)},
            "loss": {"label_smoothing": 0.1, "adjust": 1.0},
        }

    def network(
        self, backbone: str, shape: Sequence[int], versions: Sequence[Version], weights: Weights | None = None
    ) -> AnyNetwork:
        """Build a backbone with a linear head for each version; refuse one that cannot take the inputs."""
        return build_network(backbone, shape, versions, weights)

    def check_backbone(self, name: str) -> None:
        """Refuse a name that is neither a wide ResNet nor one of timm's models."""
        check_backbone(name)

    def training_views(self, views: ViewSet, method: Method, settings: ViewSettings) -> ViewSet:
        """Random crops and flips if `settings` ask for them; only FixMatch, whose views must differ, distorts them."""
        if not settings.crop:
            return views
        cropped = crop_views(settings.crop, settings.size, distorted=method.pseudo == "fixmatch")
        return cropped.resized(settings.resize) if settings.resize else cropped

    def check_crops(self, network: AnyNetwork, shape: Sequence[int], size: int) -> None:
        """Refuse random crops of a size that the network cannot take."""
        problem = problem_with(network.backbone, (shape[0], size, size))
        if problem:
            remedy = "choose another size, or 0 for that of the images"
            raise LecoError(f"training.views.size: {size}, but the backbone cannot take it ({problem}); {remedy}")

    def prepare(self, inputs: Tensor, shape: Sequence[int]) -> Tensor:
        """Crop the centre of a square image; convert it to grey if the network takes one channel."""
        return cut(inputs, shape)

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
        """Image files."""
        assert side is not None
        return image_batches(arguments, shape, side, size=size, root=root, share=share)

    def bundled(self, raw_shape: Sequence[int], settings: SegmentationSettings) -> dict[str, int | None]:
        """Side of the square that an image is scaled to."""
        return {"side": max(raw_shape[1:]), "window": None}

    def check_bundle(self, fields: Mapping[str, Any]) -> None:
        """Check that images have channels, a side, and statistics of each channel."""
        check_image_bundle(self.name, fields)
        shape, side = fields["shape"], fields["side"]
        if fields["window"] is not None:
            raise ValueError("`window` is for segmentation")
        if max(shape[1:]) > side:
            raise ValueError(f"{shape[1]} x {shape[2]} pixels cannot be cut out of {side} x {side}")


def fine_tuning_steps(samples: int, gpu: bool) -> int:
    """Number of steps of fine-tuning on so many samples; on two CPU cores, it takes minutes at most.

    >>> fine_tuning_steps(100, gpu=False), fine_tuning_steps(1_250, gpu=False), fine_tuning_steps(100_000, gpu=False)
    (200, 292, 400)
    >>> fine_tuning_steps(100_000, gpu=True)
    4000
    """
    most = _MOST_STEPS_ON_GPU if gpu else _MOST_STEPS
    return min(most, max(_FEWEST_STEPS, _EPOCHS * samples // _BATCH))


def expected_statistics(network: NetworkSettings) -> tuple[Tensor, Tensor]:
    """Return the mean and standard deviation of each channel that pretrained weights expect."""
    expected = input_config(trunk_of(network.backbone), fetch=network.weights == "download")
    return torch.tensor(expected.mean), torch.tensor(expected.std)


def fine_tuned(backbone: str | None, weights: str | None) -> str | None:
    """Return the backbone that starts from pretrained weights; None if they are random."""
    if weights == "random":
        return None
    if (found := local_weights(backbone) if backbone else default_weights()) is not None:
        return backbone if backbone and top_of(backbone) else found.backbone
    named = backbone or _RANDOM
    return named if weights is not None and is_timm(trunk_of(named)) else None


def _crop_size(backbone: str, side: int) -> int:
    """Side of training crops, about 0.7 of the images' side; the full side for backbones that take one size only."""
    with suppress(LecoError):  # reported when the backbone is built
        if not pretrained_config(trunk_of(backbone)).fixed_input_size:
            return max(32, round(side / 1.4 / 32) * 32)
    return 0


def channel_statistics(normalise: Normalise) -> tuple[list[float], list[float]]:
    """Return the mean and standard deviation of each channel that images are normalised by."""
    assert isinstance(normalise, Normalisation)
    return normalise.mean.tolist(), normalise.std.tolist()


def check_image_bundle(name: str, fields: Mapping[str, Any]) -> None:
    """Refuse a description of images whose shape, side and statistics are inconsistent."""
    shape = fields["shape"]
    if len(shape) != 3:
        raise ValueError(f"inputs of shape {shape} do not fit a model for {name}")
    if fields["side"] is None or shape[0] not in (1, 3):
        raise ValueError("images need a `side`, and 1 or 3 channels")
    if len(fields["mean"]) != shape[0] or len(fields["std"]) != shape[0] or any(value <= 0 for value in fields["std"]):
        raise ValueError(f"`mean` and a positive `std` are needed for each of the {shape[0]} channels")


def build_network(
    backbone: str, shape: Sequence[int], versions: Sequence[Version], weights: Weights | None = None
) -> Network:
    """Build a backbone with a linear head for each version, and try it on one input."""
    features = build_backbone(backbone, shape, weights)
    if problem := problem_with(features, shape):
        size = " x ".join(map(str, shape))
        raise LecoError(f"{backbone} cannot take inputs of {size} ({problem}); choose another backbone")
    return Network(features, versions)


def problem_with(backbone: nn.Module, shape: Sequence[int]) -> str:
    """Try a backbone on one input of a shape, and return why it cannot take it; empty if it can."""
    try:
        with torch.no_grad():
            backbone.eval()(torch.zeros(1, *shape))
    except Exception as error:  # such as a failed assertion, or a feature map that became too small
        return first_line(error)
    finally:
        backbone.train()
    return ""


def _measure_channels(samples: Samples, indices: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and standard deviation of the pixels, in [0, 1]; a few images at a time, as they may be large."""
    sums, squares, count = torch.zeros(1).double(), torch.zeros(1).double(), 0
    for ids in indices.split(32):  # type: ignore[no-untyped-call]
        images = samples.inputs.read(ids).double() / 255
        sums, squares = sums + images.sum(dim=(0, 2, 3)), squares + images.square().sum(dim=(0, 2, 3))
        count += images.numel() // images.shape[1]
    mean = sums / count
    return mean.float(), (squares / count - mean.square()).clamp(min=1e-12).sqrt().float()
