"""Frozen features of the samples: of the model of the period before, of a pretrained backbone, or the inputs.

The model must not have seen the newest labels, or the learning curve would be measured on samples that it has learnt
by heart. So it is the model that the newest period starts from.
"""

import hashlib
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from leco.data.periods import Part, seeded
from leco.data.rng import Draws
from leco.data.samples import Column
from leco.data.views.features import unit_length
from leco.dataset import Periods
from leco.errors import LecoError
from leco.experiments.embedding import Embedder
from leco.experiments.experiment import AUTO, Experiment
from leco.experiments.machine import Machine
from leco.experiments.run import run_stage, stored_network
from leco.experiments.stages import Plan, Stage, choose, plan
from leco.experiments.store import Store
from leco.models.backbones import build_backbone, check_backbone
from leco.models.dense.trunks import resize
from leco.models.names import trunk_of
from leco.models.weights import find_weights
from leco.ontology.evidence import UNLABELLED, Evidence
from leco.ontology.version import NO_LABEL
from leco.planning.known import HISTORY, NEWEST, VALIDATION, Known
from leco.records import CONFIG, RESULT, read_config
from leco.settings import NetworkSettings

PIXELS = "pixels"  # in place of a backbone
DIMENSIONS = 256
_ROWS_TO_PROJECT = 2_000  # at most, that a projection is found from
_PIXELS_PER_IMAGE = 64
_BATCH = 256
_WINDOW = 7  # pixels, of the mean colour around a pixel


@dataclass(frozen=True, eq=False)
class Extractor:
    """A network from inputs to features (n, d), or to maps (n, d, h, w) in segmentation.

    Features of an `embedder` are kept in the store.
    """

    name: str
    fingerprint: str
    network: nn.Module
    embedder: Embedder | None = None


class LearnedStore(Store):
    """A store that also finds what `leco run` trained, which is fingerprinted with its test split."""

    def folder(self, fingerprint: str) -> Path:
        """Return the folder of a complete stage, or of another stage that was trained on the same data."""
        mine = super().folder(fingerprint)
        return mine if mine.is_dir() else self._others.get(fingerprint, mine)

    @cached_property
    def _others(self) -> dict[str, Path]:
        found: dict[str, Path] = {}
        for result in sorted(self.stages.glob(f"*/{RESULT}")):
            with suppress(LecoError):  # if it is damaged, it is trained again
                found.setdefault(read_config(result.with_name(CONFIG)).learned, result.parent)
        return found


def find_extractor(
    wanted: Experiment, periods: Periods, runs: Path, machine: Machine, backbone: str | None
) -> Extractor:
    """Return the named backbone, or by default the one that `auto` fits heads on, or the model of the period before.

    That model is in the store, or trained now.
    """
    if backbone is None and periods.modality.name == "features":
        return Extractor("the feature vectors themselves", "features", nn.Identity())
    if backbone is None and (stage := _head_of(wanted, periods)) is not None:
        found = _pretrained(stage.training.network, periods)
    elif backbone is None:
        found = _trained(wanted, periods, LearnedStore(runs), machine)
    elif backbone == PIXELS:
        network: nn.Module = _Surroundings() if periods.modality.has_masks else nn.Identity()
        found = Extractor("pixels", PIXELS, network)
    elif periods.modality.name == "classification":
        check_backbone(backbone)
        found = _pretrained(
            NetworkSettings(backbone=trunk_of(backbone), weights="download"), periods, place="--backbone"
        )
    else:
        raise LecoError(
            f"--backbone: {backbone!r} is for classification of images; leave it out, or pass --backbone {PIXELS}"
        )
    found.network.eval()
    return found


def _head_of(wanted: Experiment, periods: Periods) -> Stage | None:
    """Return a stage of `auto` that fits a head to features of a pretrained backbone, if it has one."""
    if wanted.method != AUTO:
        return None
    return next((stage for stage in plan(wanted, periods).stages if stage.on_features), None)


def _pretrained(network: NetworkSettings, periods: Periods, place: str = "training.network.weights") -> Extractor:
    weights = find_weights(network.backbone, network.weights, place=place)
    assert weights is not None
    backbone = build_backbone(network.backbone, periods.shape, weights)
    embedder = Embedder.of(backbone, network.backbone, periods)
    return Extractor(f"{network.backbone} with the weights of {weights.source}", weights.digest, backbone, embedder)


def _trained(wanted: Experiment, periods: Periods, store: Store, machine: Machine) -> Extractor:
    stages = plan(wanted, periods)
    if len(stages.periods) < 2:
        raise LecoError(
            "there is only one period, and its model has seen the labels; pass a pretrained --backbone NAME, or "
            f"--backbone {PIXELS}"
        )
    earlier = Plan(stages.periods[:-1])
    if not all(store.result(stage.fingerprint) for stage in earlier.periods[-1]):
        for stage in earlier.stages:
            run_stage(stage, periods, store, machine, may_diverge=earlier.may_diverge(stage))
    stage = choose(earlier.periods[-1], store)
    weights = store.weights(stage.fingerprint)
    digest = hashlib.sha256(weights.read_bytes()).hexdigest()[:16]
    name = f"{stage.training.network.backbone} of stage {weights.parent.name} ({stage})"
    return Extractor(name, digest, stored_network(stage, periods, store).backbone)


class _Surroundings(nn.Module):
    """Colour of each pixel, mean colour around it, and its position."""

    def forward(self, images: Tensor) -> Tensor:
        near = F.avg_pool2d(images, _WINDOW, stride=1, padding=_WINDOW // 2, count_include_pad=False)
        rows, columns = (torch.linspace(-1, 1, size) for size in images.shape[-2:])
        place = torch.stack(torch.meshgrid(rows, columns, indexing="ij")).expand(len(images), -1, -1, -1)
        return torch.cat([images, near, place], dim=1)


class Rows(NamedTuple):
    """Features of every row, the sample that it belongs to, and its label as a row id of evidence."""

    features: Tensor
    sample: Tensor
    labels: Tensor


@dataclass(frozen=True, eq=False)
class Reader:
    """Reads samples as rows of features with their labels."""

    periods: Periods
    extractor: Extractor
    seed: int
    embedded: Column | None = None  # features of the pool, if they are in the store

    @cached_property
    def evidence(self) -> Evidence:
        """Evidence of the newest period."""
        return self.periods.until(len(self.periods.versions) - 1).evidence()

    @torch.no_grad()
    def read(self, part: Part) -> Rows:
        """Read some samples of the pool with their labels of a version."""
        samples = self.periods.pool
        if self.periods.modality.has_masks:
            found = [self._pixels(part.version, index) for index in part.indices.tolist()]
            features = torch.cat([features for features, _ in found])
            classes = torch.cat([classes for _, classes in found])
            sample = part.indices.repeat_interleave(torch.tensor([len(classes) for _, classes in found]))
        else:
            blocks = part.indices.split(_BATCH)  # type: ignore[no-untyped-call]
            features = torch.cat([self._features(ids).flatten(1) for ids in blocks])
            classes, sample = samples.labels[part.version].read(part.indices).long(), part.indices
        return Rows(unit_length(features.float()), sample, self.evidence.ids(classes, part.version))

    def _pixels(self, version: str, index: int) -> tuple[Tensor, Tensor]:
        """Return features and classes of a few labelled pixels, drawn by the seed and the image alone.

        Of an image without labels they are any pixels: it can still be picked, and shown to an annotator.
        """
        one = torch.tensor([index])
        maps = self._features(one)
        truth = self.periods.pool.labels[version].read(one)[0].long()
        maps = resize(maps, *truth.shape)[0]
        flat = truth.flatten()
        labelled = (flat != NO_LABEL).nonzero().flatten()
        labelled = labelled if len(labelled) else torch.arange(len(flat))
        order = torch.randperm(len(labelled), generator=seeded(1_000_003 * self.seed + index))
        chosen = labelled[order[:_PIXELS_PER_IMAGE]]
        return maps.flatten(1)[:, chosen].T, flat[chosen]

    def _features(self, ids: Tensor) -> Tensor:
        if self.embedded is not None:
            return self.embedded.read(ids)
        inputs = self.periods.views.evaluate(self.periods.pool.inputs.read(ids), Draws(0, 0, ids))
        features: Tensor = self.extractor.network(self.periods.normalise(inputs))
        return features


@dataclass(frozen=True, eq=False)
class Projection:
    """Projection onto principal components, so that a head has few weights; scaled to a mean squared length of 100."""

    mean: Tensor
    basis: Tensor  # (d, k)

    @classmethod
    def of(cls, features: Tensor) -> "Projection":
        """Fit it to evenly spaced rows."""
        some = features[:: max(1, -(-len(features) // _ROWS_TO_PROJECT))]
        mean = some.mean(dim=0)
        _, _, components = torch.linalg.svd(some - mean, full_matrices=False)
        basis = components[:DIMENSIONS].T
        length = ((some - mean) @ basis).square().sum(dim=1).mean().sqrt().clamp(min=1e-6)
        return cls(mean, basis * 10 / length)

    def __call__(self, features: Tensor) -> Tensor:
        """(n, d) -> (n, k)."""
        return (features - self.mean) @ self.basis


def known_parts(periods: Periods) -> list[tuple[int, Part]]:
    """All samples but those of the test split, with the labels of the newest period, by kind."""
    annotated = periods.annotated(len(periods.versions) - 1, "label-new")
    parts = [(NEWEST, annotated.newest), (VALIDATION, annotated.validation)]
    parts += [(HISTORY, part) for part in annotated.history]
    return [(kind, part) for kind, part in parts if len(part.indices)]


def gather_known(reader: Reader) -> tuple[Known, Projection]:
    """Read the features of all samples but those of the test split."""
    found = [(kind, reader.read(part)) for kind, part in known_parts(reader.periods)]
    kinds = torch.cat([torch.full((len(rows.sample),), kind) for kind, rows in found])
    features, sample, labels = (torch.cat(column) for column in zip(*(rows for _, rows in found), strict=True))
    kept = (kinds == HISTORY) | (labels != UNLABELLED)  # a newest mask without any label says nothing
    projection = Projection.of(features[kept])
    known = Known(reader.evidence, projection(features[kept]), sample[kept], labels[kept], kinds[kept])
    return known, projection
