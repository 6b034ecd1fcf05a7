"""Feature vectors with one label each."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from leco.data.benchmarks.cub import LINEAR
from leco.data.inputs import InputBatch, vector_batches
from leco.data.manifest.manifest import Manifest
from leco.data.manifest_samples import lazy_samples
from leco.data.samples import Samples
from leco.data.vectors import SUFFIXES
from leco.data.views.features import unit_length
from leco.data.views.sets import ViewSet, feature_views
from leco.modalities.image import build_network
from leco.modalities.modality import MODALITIES, Modality, Normalise
from leco.models.backbones import check_backbone
from leco.models.network import AnyNetwork
from leco.ontology.ontology import Ontology
from leco.ontology.version import Version
from leco.settings import NetworkSettings


class Vectors(Modality):
    """Classification of feature vectors, which a network made before."""

    name = "features"
    inputs_are = "feature vectors"
    suffixes = SUFFIXES
    purpose = "classifies feature vectors"
    example = "vectors.npy"

    def read(self, manifest: Manifest, ontology: Ontology, side: int) -> Samples:
        """All vectors that a manifest names, in memory."""
        return lazy_samples(manifest, ontology, side)

    def views(self, samples: Samples, train: Tensor) -> ViewSet:
        """Noise, measured by the spread of the training vectors."""
        return feature_views(samples.inputs.read(train).std(dim=0, correction=0))

    def normaliser(self, samples: Samples, train: Tensor, network: NetworkSettings) -> Normalise:
        """Scale to length ten, so that a linear head need not grow large to be sure (docs/lab-book/log.md)."""
        return unit_length

    def restored_normaliser(self, mean: Sequence[float], std: Sequence[float]) -> Normalise:
        """Scale to length ten."""
        return unit_length

    def defaults(self, image_size: int, backbone: str | None = None) -> dict[str, Any]:
        """A linear head."""
        return LINEAR

    def network(
        self, backbone: str, shape: Sequence[int], versions: Sequence[Version], pretrained: bool = False
    ) -> AnyNetwork:
        """A linear head, or one hidden layer, on the vectors."""
        return build_network(backbone, shape, versions, pretrained)

    def check_backbone(self, name: str) -> None:
        """Refuse a name that does not exist."""
        check_backbone(name)

    def probs(self, network: nn.Module, ready: Tensor, version: str, *, window: int, sizes: Tensor | None) -> Tensor:
        """Probabilities (n, c)."""
        probs: Tensor = network(ready)[version].float().softmax(dim=1).cpu()
        return probs

    def inputs(
        self, arguments: Sequence[str], shape: Sequence[int], side: int | None, *, size: int, root: Path | None
    ) -> Iterator[InputBatch]:
        """Arrays, tables of numbers, or manifests that name them."""
        return vector_batches(arguments, shape[0], root)


MODALITIES.register(Vectors.name)(Vectors())
