"""Frozen features: of the model that the newest period starts from, of a pretrained backbone, or the inputs themselves.

The model must not have seen the newest labels: its features would know the very samples the curve is measured on. So
it is the one of the period before.
"""

import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from leco.data.periods import seeded
from leco.data.rng import Draws
from leco.data.samples import Samples
from leco.data.views.features import unit_length
from leco.dataset import Material
from leco.errors import LecoError
from leco.experiments.experiment import Experiment
from leco.experiments.networks import load_network
from leco.experiments.run import Machine, Watch, run_stage
from leco.experiments.stages import Plan, choose, plan
from leco.experiments.store import Store
from leco.models.backbones import build_backbone
from leco.models.dense.trunks import resize
from leco.ontology.version import NO_LABEL

PIXELS = "pixels"  # in place of a backbone
DIMENSIONS = 256
_MOST_FOR_DIRECTIONS = 2_000  # rows that directions are found from
_PIXELS_OF_AN_IMAGE = 64
_AROUND = 7


@dataclass(frozen=True, eq=False)
class Extractor:
    """Inputs to features: (n, d), or maps (n, d, h, w) in segmentation."""

    name: str
    fingerprint: str
    extract: Callable[[Tensor], Tensor]


def find_extractor(
    wanted: Experiment, material: Material, store: Store, backbone: str | None, machine: Machine, watch: Watch
) -> Extractor:
    """What features are taken from: a named backbone, a stage of the store, or a stage that is trained now."""
    if material.task == "features" and backbone is None:
        return Extractor("the feature vectors themselves", "features", lambda inputs: inputs)
    if backbone == PIXELS:
        maps = material.task == "segmentation"
        return Extractor("pixels", PIXELS, _around if maps else lambda inputs: inputs.flatten(1))
    if backbone is not None:
        if material.task != "classification":
            raise LecoError(f"--backbone {backbone} is for classification of images; leave it out, or say {PIXELS}")
        network = build_backbone(backbone, material.shape, pretrained=True)
        return Extractor(f"{backbone} with timm's weights", f"timm {backbone}", _of(network))
    stages = plan(wanted, material)
    if len(stages.periods) < 2:
        raise LecoError(
            "there is one period only, and its model has seen the labels; name pretrained features with --backbone "
            f"NAME, or take --backbone {PIXELS}"
        )
    if not all(store.result(stage.fingerprint) for stage in stages.periods[-2]):
        train(Plan(stages.periods[:-1]), material, store, machine, watch)
    stage = choose(stages.periods[-2], store)
    network = load_network(stage, material, store).backbone
    weights = store.weights(stage.fingerprint)
    digest = hashlib.sha256(weights.read_bytes()).hexdigest()[:16]
    return Extractor(f"{stage.training.model} of stage {weights.parent.name} ({stage})", digest, _of(network))


def train(stages: Plan, material: Material, store: Store, machine: Machine, watch: Watch) -> None:
    """Train what is missing of these stages."""
    for stage in stages.stages:
        run_stage(stage, material, store, machine, watch, stages.may_diverge(stage))


def _of(network: nn.Module) -> Callable[[Tensor], Tensor]:
    network.eval()

    def extract(inputs: Tensor) -> Tensor:
        found: Tensor = network(inputs)
        return found

    return extract


def _around(images: Tensor) -> Tensor:
    """Colour of each pixel, of what is around it, and where it is."""
    near = F.avg_pool2d(images, _AROUND, stride=1, padding=_AROUND // 2, count_include_pad=False)
    rows, columns = (torch.linspace(-1, 1, size) for size in images.shape[-2:])
    place = torch.stack(torch.meshgrid(rows, columns, indexing="ij")).expand(len(images), -1, -1, -1)
    return torch.cat([images, near, place], dim=1)


@torch.no_grad()
def read_rows(
    material: Material, samples: Samples, version: str, indices: Tensor, extractor: Extractor
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Features, position among `indices`, place in the map (0) and label of every row: here, of every sample."""
    blocks = [_ready(material, samples, ids, extractor).flatten(1) for ids in indices.split(256)]  # type: ignore[no-untyped-call]
    labels = samples.labels[version].read(indices).long()
    return unit_length(torch.cat(blocks).float()), torch.arange(len(indices)), torch.zeros_like(indices), labels


@torch.no_grad()
def read_maps(
    material: Material, samples: Samples, version: str, indices: Tensor, extractor: Extractor, seed: int
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The same of segmentation: a few labelled pixels of each image, drawn by the seed and the image alone.

    An image that has none gives pixels without a label: it can still be picked, and shown to an annotator.
    """
    features, position, places, labels = [], [], [], []
    for place, index in enumerate(indices.tolist()):
        one = torch.tensor([index])
        maps = _ready(material, samples, one, extractor)
        truth = samples.labels[version].read(one)[0].long()
        maps = resize(maps, *truth.shape)[0]
        flat = truth.flatten()
        known = (flat != NO_LABEL).nonzero().flatten()
        known = known if len(known) else torch.arange(len(flat))
        order = torch.randperm(len(known), generator=seeded(1_000_003 * seed + index))
        chosen = known[order[:_PIXELS_OF_AN_IMAGE]]
        features.append(maps.flatten(1)[:, chosen].T)
        position.append(torch.full((len(chosen),), place))
        places.append(chosen)
        labels.append(flat[chosen])
    return unit_length(torch.cat(features).float()), torch.cat(position), torch.cat(places), torch.cat(labels)


def _ready(material: Material, samples: Samples, ids: Tensor, extractor: Extractor) -> Tensor:
    inputs = material.views.evaluate(samples.inputs.read(ids), Draws(0, 0, ids))
    return extractor.extract(material.normalise(inputs))


@dataclass(frozen=True, eq=False)
class Directions:
    """The principal directions of features, so that a head has few weights; scaled to a mean squared length of 100."""

    mean: Tensor
    basis: Tensor  # (d, k)

    @classmethod
    def of(cls, features: Tensor) -> "Directions":
        """Find them from some rows, evenly taken."""
        some = features[:: max(1, -(-len(features) // _MOST_FOR_DIRECTIONS))]
        mean = some.mean(dim=0)
        _, _, across = torch.linalg.svd(some - mean, full_matrices=False)
        basis = across[:DIMENSIONS].T
        length = ((some - mean) @ basis).square().sum(dim=1).mean().sqrt().clamp(min=1e-6)
        return cls(mean, basis * 10 / length)

    def project(self, features: Tensor) -> Tensor:
        """(n, d) -> (n, k)."""
        return (features - self.mean) @ self.basis


class Learned(Store):
    """A store that also finds what `leco run` trained, without a look at what it was tested on."""

    def folder(self, fingerprint: str) -> Path:
        """Where a complete stage is, or another that learned the very same."""
        mine = super().folder(fingerprint)
        return mine if mine.is_dir() else self._others.get(fingerprint, mine)

    @cached_property
    def _others(self) -> dict[str, Path]:
        found: dict[str, Path] = {}
        for result in sorted(self.stages.glob("*/result.json")):
            try:
                config = json.loads(result.with_name("config.json").read_bytes())
            except (OSError, ValueError):  # damaged: it is trained anew
                continue
            if isinstance(config, dict) and isinstance(config.get("learned"), str):
                found.setdefault(config["learned"], result.parent)
        return found
