"""Feature vectors with one label each."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

from torch import Tensor

from leco.data.benchmarks.cub import LINEAR
from leco.data.inputs import ALONE, InputBatch, Share, vector_batches
from leco.data.manifest.manifest import Manifest
from leco.data.manifest_samples import lazy_samples
from leco.data.samples import Samples
from leco.data.vectors import SUFFIXES
from leco.data.views.features import unit_length
from leco.data.views.sets import ViewSet, feature_views
from leco.modalities.image import build_network
from leco.modalities.modality import Modality, Normalise, register_modality
from leco.models.backbones import HEAD_ALONE, check_backbone
from leco.models.network import AnyNetwork
from leco.models.weights import Weights
from leco.ontology.ontology import Ontology
from leco.ontology.version import Version
from leco.settings import NetworkSettings


@register_modality
class Vectors(Modality):
    """Classification of precomputed feature vectors."""

    name = "features"
    data_kind = "features"
    inputs_are = "feature vectors"
    suffixes = SUFFIXES
    purpose = "classifies feature vectors"
    fits_heads = True
    example = "vectors.npy"

    def read(self, manifest: Manifest, ontology: Ontology, side: int) -> Samples:
        """All vectors that a manifest names, in memory."""
        return lazy_samples(manifest, ontology, side)

    def views(self, samples: Samples, train: Tensor) -> ViewSet:
        """Noise, scaled by the standard deviation of the training vectors."""
        return feature_views(samples.inputs.read(train).std(dim=0, correction=0))

    def normaliser(self, samples: Samples, train: Tensor, network: NetworkSettings) -> Normalise:
        """Scale to length ten, so that a linear head can be confident without large weights (docs/lab-book/log.md)."""
        return unit_length

    def restored_normaliser(self, mean: Sequence[float], std: Sequence[float]) -> Normalise:
        """Scale to length ten."""
        return unit_length

    def defaults(
        self, image_size: int, backbone: str | None = None, samples: int = 0, weights: str | None = None
    ) -> dict[str, Any]:
        """A linear head."""
        return LINEAR

    def network(
        self, backbone: str, shape: Sequence[int], versions: Sequence[Version], weights: Weights | None = None
    ) -> AnyNetwork:
        """Build a linear head, optionally with one hidden layer."""
        return build_network(backbone, shape, versions, weights)

    def trains_backbone(self, name: str) -> bool:
        """Only `mlp` has weights."""
        return name not in HEAD_ALONE

    def check_backbone(self, name: str) -> None:
        """Refuse a name that does not exist."""
        check_backbone(name)

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
        """Read arrays, tables of numbers, or manifests that refer to them."""
        return islice(vector_batches(arguments, shape[0], root), share[0], None, share[1])

    def check_bundle(self, fields: Mapping[str, Any]) -> None:
        """Vectors have one dimension, and need no statistics."""
        if len(fields["shape"]) != 1:
            raise ValueError(f"inputs of shape {fields['shape']} do not fit a model for {self.name}")
        if fields["side"] is not None or fields["window"] is not None or fields["mean"] or fields["std"]:
            raise ValueError(f"a model for {self.name} has no `side`, `window`, `mean` or `std`")
