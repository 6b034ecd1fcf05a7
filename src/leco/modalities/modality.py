"""A modality: everything that depends on the kind of sample.

A sample may be an image with one label, a feature vector, or an image with a label for every pixel. Code outside this
package calls the modality and never tests which one it is.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, TypeVar

from torch import Tensor, nn

from leco.data.batches import Crop, evaluated_together
from leco.data.inputs import ALONE, InputBatch, Share
from leco.data.manifest.manifest import Manifest
from leco.data.samples import Samples
from leco.data.views.sets import ViewSet
from leco.errors import LecoError
from leco.methods.method import Method
from leco.models.network import AnyNetwork
from leco.models.weights import Weights
from leco.ontology.ontology import Ontology
from leco.ontology.version import Version
from leco.registry import Registry
from leco.settings import NetworkSettings, SegmentationSettings, Settings, ViewSettings

Normalise = Callable[[Tensor], Tensor]  # uint8 images, or features, to what the network takes


class Modality(ABC):
    """Reading, views and normalisation of samples, networks for them, predictions and their metric."""

    name: ClassVar[str]  # as files spell it
    data_kind: ClassVar[str] = ""  # of its manifests: images, features, masks, or any
    inputs_are: ClassVar[str] = "images"  # in messages
    suffixes: ClassVar[tuple[str, ...]] = ()  # of files that contain one sample
    metric: ClassVar[str] = "macc"  # for model selection
    unit: ClassVar[str] = "samples"  # counted by the metrics
    has_masks: ClassVar[bool] = False  # whether predictions are masks rather than one class per sample
    fixed_shape: ClassVar[bool] = True  # whether a network takes inputs of one shape only
    reuses_pixels: ClassVar[bool] = False  # whether `read` decodes images as the checks of a manifest do
    fits_heads: ClassVar[bool] = False  # whether linear heads can be fitted to the features of samples
    embeds: ClassVar[bool] = False  # whether a pretrained backbone makes those features; otherwise they are the inputs
    purpose: ClassVar[str] = ""  # "classifies images": for model cards
    example: ClassVar[str] = "images/"  # of inputs, in model cards

    # Data

    def takes(self, data_kind: str) -> bool:
        """Whether manifests of a kind may hold samples of this modality."""
        return self.data_kind in ("", data_kind)

    @abstractmethod
    def read(self, manifest: Manifest, ontology: Ontology, side: int) -> Samples:
        """Samples of a manifest, images scaled to `side`; files are read on demand."""

    @abstractmethod
    def views(self, samples: Samples, train: Tensor) -> ViewSet:
        """Weak, strong and evaluation views of your own data; statistics are measured on the samples `train`."""

    @abstractmethod
    def normaliser(self, samples: Samples, train: Tensor, network: NetworkSettings) -> Normalise:
        """Normalisation that the weights expect, or by the statistics of the training samples."""

    def statistics(self, normalise: Normalise) -> tuple[Sequence[float], Sequence[float]]:
        """Return the mean and standard deviation that bundles keep to restore a normaliser; none by default."""
        return (), ()

    @abstractmethod
    def restored_normaliser(self, mean: Sequence[float], std: Sequence[float]) -> Normalise:
        """Return the normaliser of a bundle, from its statistics."""

    def default_side(self) -> int:
        """Side that your own images are scaled to unless one is given."""
        return 64

    @abstractmethod
    def defaults(
        self, image_size: int, backbone: str | None = None, samples: int = 0, weights: str | None = None
    ) -> dict[str, Any]:
        """Default settings for your own data with so many `samples`, nested as in `experiment.yaml`.

        They suit the `backbone` and the `weights` that were named, if any.
        """

    # Networks and training

    @abstractmethod
    def network(
        self, backbone: str, shape: Sequence[int], versions: Sequence[Version], weights: Weights | None = None
    ) -> AnyNetwork:
        """Build a network for inputs of a shape, with a head for each version; its backbone starts from `weights`."""

    @abstractmethod
    def check_backbone(self, name: str) -> None:
        """Refuse a backbone that does not exist, whatever the inputs."""

    def trains_backbone(self, name: str) -> bool:
        """Whether a backbone has weights to train."""
        return True

    def check(self, settings: Settings, shape: Sequence[int], classes: int) -> None:  # noqa: B027 (optional)
        """Refuse settings that do not fit the inputs."""

    def check_crops(self, network: AnyNetwork, shape: Sequence[int], size: int) -> None:  # noqa: B027 (optional)
        """Refuse random crops of a size that the network cannot take."""

    def crop(self, settings: SegmentationSettings) -> Crop | None:
        """Random crop of samples along with their labels, if training uses one."""
        return None

    def training_views(self, views: ViewSet, method: Method, settings: ViewSettings) -> ViewSet:
        """Views that a method trains on."""
        return views

    # Predictions

    def evaluation_batch(self, samples: Samples, shape: Sequence[int]) -> int:
        """Number of samples that are evaluated together; `shape` is that of the network's inputs."""
        return evaluated_together(shape)

    def prepare(self, inputs: Tensor, shape: Sequence[int]) -> Tensor:
        """Crop samples as returned by `read` to the input of a bundle's network."""
        return inputs

    def probs(self, network: nn.Module, ready: Tensor, version: str, *, window: int, sizes: Tensor | None) -> Tensor:
        """Probabilities (n, c, ...) of a version's classes for normalised inputs; `sizes` are those before padding."""
        probs: Tensor = network(ready)[version].float().softmax(dim=1)
        return probs

    @abstractmethod
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
        """Read the files, folders, patterns and manifests in `arguments`, `size` samples at a time.

        Of several processes, each yields the batches of its own `share`: every third of three processes, for example.
        """

    # Bundles

    def bundled(self, raw_shape: Sequence[int], settings: SegmentationSettings) -> dict[str, int | None]:
        """The fields `side` and `window` of a bundle's description."""
        return {"side": None, "window": None}

    def check_bundle(self, fields: Mapping[str, Any]) -> None:  # noqa: B027 (optional)
        """Raise ValueError where `shape`, `side`, `window`, `mean` and `std` of a bundle do not fit together."""


MODALITIES: Registry[Modality] = Registry("modality")
_Kind = TypeVar("_Kind", bound=type[Modality])


def register_modality(kind: _Kind) -> _Kind:
    """Register a modality under its name: a class decorator."""
    MODALITIES.register(kind.name)(kind())
    return kind


def refuse(settings: Settings, name: str) -> None:
    """Refuse settings that require one label per sample."""
    if settings.pseudo_labels.balance:
        raise LecoError(f"training.pseudo_labels.balance: is for classification, not {name}; set it to false")
    if settings.loss.adjust:
        raise LecoError(f"training.loss.adjust: is for classification, not {name}; set it to 0")
    if settings.finish.head != "trained":
        raise LecoError(
            f"training.finish.head: {settings.finish.head} heads are for classification, not {name}; set it to trained"
        )
