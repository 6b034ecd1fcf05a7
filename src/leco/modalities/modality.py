"""A modality: everything that depends on what a sample is.

A sample may be an image with one label, a feature vector, or an image with a label for every pixel; code that is not in
this room asks the modality, and never which one it is.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

from torch import Tensor, nn

from leco.data.batches import Crop
from leco.data.inputs import InputBatch
from leco.data.manifest.manifest import Manifest
from leco.data.samples import Samples
from leco.data.views.sets import ViewSet
from leco.errors import LecoError
from leco.methods.method import Method
from leco.models.network import AnyNetwork
from leco.ontology.ontology import Ontology
from leco.ontology.version import Version
from leco.registry import Registry
from leco.settings import NetworkSettings, SegmentationSettings, Settings

Normalise = Callable[[Tensor], Tensor]  # uint8 images, or features, to what the network takes


class Modality(ABC):
    """How samples are read, viewed and normalised, which network fits, how predictions are made and scored."""

    name: ClassVar[str]  # as files spell it
    inputs_are: ClassVar[str] = "images"  # in messages
    suffixes: ClassVar[tuple[str, ...]] = ()  # of files that hold a sample
    metric: ClassVar[str] = "macc"  # models are chosen by it
    unit: ClassVar[str] = "samples"  # that are counted when scoring
    has_masks: ClassVar[bool] = False  # whether predictions are masks, and not one class a sample
    fixed_shape: ClassVar[bool] = True  # whether a network takes inputs of one shape only
    purpose: ClassVar[str] = ""  # "classifies images": for model cards
    example: ClassVar[str] = "images/"  # of inputs, in model cards

    # Data

    @abstractmethod
    def read(self, manifest: Manifest, ontology: Ontology, side: int) -> Samples:
        """The samples of a manifest, images scaled to `side`; files are read when asked for."""

    @abstractmethod
    def views(self, samples: Samples, train: Tensor) -> ViewSet:
        """Weak, strong and evaluation views of a user's own samples; `train` are those to measure their spread by."""

    @abstractmethod
    def normaliser(self, samples: Samples, train: Tensor, network: NetworkSettings) -> Normalise:
        """Normalise inputs as the weights expect it, or by the statistics of the training samples."""

    @abstractmethod
    def restored_normaliser(self, mean: Sequence[float], std: Sequence[float]) -> Normalise:
        """The normaliser of a bundle, from its statistics."""

    @abstractmethod
    def defaults(self, image_size: int, backbone: str | None = None) -> dict[str, Any]:
        """Settings for a user's own data, nested as in `experiment.yaml`; `backbone` is the one that was asked for."""

    # Networks and training

    @abstractmethod
    def network(
        self, backbone: str, shape: Sequence[int], versions: Sequence[Version], pretrained: bool = False
    ) -> AnyNetwork:
        """Build a network for inputs of a shape, with a head for each of some versions."""

    @abstractmethod
    def check_backbone(self, name: str) -> None:
        """Refuse a backbone that does not exist, whatever the inputs."""

    def check(self, settings: Settings, shape: Sequence[int], classes: int) -> None:
        """Refuse settings that do not fit the inputs."""

    def crop(self, settings: SegmentationSettings) -> Crop | None:
        """A random crop of samples along with their labels, if training takes one."""
        return None

    def training_views(self, views: ViewSet, method: Method) -> ViewSet:
        """The views that a method trains on."""
        return views

    # Predictions

    def evaluation_batch(self, samples: Samples) -> int:
        """Number of samples that are evaluated together."""
        return 512

    def prepare(self, inputs: Tensor, shape: Sequence[int]) -> Tensor:
        """Samples as `read` gives them, cut to what a bundle's network takes."""
        return inputs

    @abstractmethod
    def probs(self, network: nn.Module, ready: Tensor, version: str, *, window: int, sizes: Tensor | None) -> Tensor:
        """Probabilities (n, c, ...) of a version's classes for normalised inputs; `sizes` are those before padding."""

    @abstractmethod
    def inputs(
        self, arguments: Sequence[str], shape: Sequence[int], side: int | None, *, size: int, root: Path | None
    ) -> Iterator[InputBatch]:
        """Read files, folders, patterns and manifests that a user names, `size` samples at a time."""

    # Bundles

    def bundled(self, raw_shape: Sequence[int], settings: SegmentationSettings) -> dict[str, int | None]:
        """The fields `side` and `window` of a bundle's description."""
        return {"side": None, "window": None}

    def check_bundle(self, fields: Mapping[str, Any]) -> None:
        """Raise ValueError where the shape, side and window of a bundle's description do not fit together."""
        if len(fields["shape"]) != 1:
            raise ValueError(f"a model for {self.name} takes no inputs of the shape {fields['shape']}")
        if fields["side"] is not None or fields["window"] is not None or fields["mean"] or fields["std"]:
            raise ValueError(f"a model for {self.name} has no `side`, `window`, `mean` or `std`")


MODALITIES: Registry[Modality] = Registry("modality")


def refuse(settings: Settings, name: str) -> None:
    """Refuse settings that only make sense where a sample has one label."""
    if settings.pseudo_labels.balance:
        raise LecoError(f"training.pseudo_labels.balance: is for classification, not {name}; set it to false")
    if settings.finish.head != "trained":
        raise LecoError(f"training.finish.head: {settings.finish.head} heads are for classification, not {name}")
