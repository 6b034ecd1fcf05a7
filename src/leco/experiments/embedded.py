"""Periods whose inputs are features of a frozen backbone, for stages that train on them."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import get_args

import torch
from torch import Tensor

from leco.data import UNTESTED
from leco.data.periods import Annotation
from leco.data.samples import Samples
from leco.dataset import Periods
from leco.experiments.embedding import Embedded, Embedder, embed
from leco.experiments.machine import Machine
from leco.experiments.store import Store
from leco.modalities import MODALITIES
from leco.models.backbones import build_backbone
from leco.models.names import top_of, trunk_of
from leco.models.network import AnyNetwork, Network
from leco.models.split import Trunk, check_split, rest
from leco.models.weights import Weights
from leco.ontology.version import Version
from leco.progress import Tick, rate_bar
from leco.settings import NetworkSettings

_IMAGE = (3, 32, 32)  # a shape: layers above the frozen ones depend neither on the channels nor on the side
_MEASURED = 2_000  # features, for their mean length
_KEPT = 2  # embedded periods, in memory
_EMBEDDED: dict[tuple[Periods, Path, str, str, float, bool], Periods] = {}


def on_stored_features(
    periods: Periods,
    network_settings: NetworkSettings,
    weights: Weights,
    store: Store,
    machine: Machine,
    *,
    unlabelled: bool = False,
) -> Periods:
    """Return the periods as features of a pretrained backbone, scaled, computed now or found in the store.

    If only its first layers are frozen, features are what these return, as it is. `unlabelled` samples, which belong to
    no period, are many. The last periods are kept in memory, for further stages.
    """
    backbone, frozen = trunk_of(network_settings.backbone), network_settings.frozen_layers
    key = (periods, store.features, backbone, weights.digest, frozen, unlabelled)
    if key not in _EMBEDDED:
        network = build_backbone(backbone, periods.shape, weights).eval()
        if frozen:
            check_split(network, frozen, periods.shape, backbone)
            network = Trunk(network, frozen).eval()
        with rate_bar("embedding", "images", shown=machine.shown) as tick:
            embedder = Embedder.of(network, backbone, periods)
            seen = held(embedded(periods, embedder, store, machine, unlabelled=unlabelled, tick=tick))
        _EMBEDDED[key] = replace(seen, normalise=Scaled(1.0) if frozen else Scaled.of(seen))
        for oldest in list(_EMBEDDED)[:-_KEPT]:
            del _EMBEDDED[oldest]
    return _EMBEDDED[key]


def network_on_features(
    settings: NetworkSettings, periods: Periods, versions: Sequence[Version], weights: Weights | None = None
) -> AnyNetwork:
    """Build the network that is trained on features: heads, what is below them, or the layers that are not frozen."""
    if not settings.frozen_layers:
        return periods.modality.network(top_of(settings.backbone) or "linear", periods.shape, versions)
    return Network(rest(build_backbone(settings.backbone, _IMAGE, weights), settings.frozen_layers), versions)


def embedded(
    periods: Periods,
    embedder: Embedder,
    store: Store,
    machine: Machine,
    *,
    unlabelled: bool = False,
    tick: Tick = lambda done, total: None,
) -> Periods:
    """Return the same periods with features as inputs, of all samples that are trained, validated or tested on."""
    used = [
        part.indices
        for period in range(len(periods.versions))
        for annotation in get_args(Annotation)
        if unlabelled or annotation != "with-unlabelled"
        for annotated in [periods.annotated(period, annotation)]
        for part in (annotated.newest, *annotated.history, annotated.validation)
    ]
    tested = torch.cat([periods.tested(period) for period in range(len(periods.versions))])
    shared = periods.test is periods.pool
    on_features = partial(embed, embedder=embedder, store=store, machine=machine, tick=tick)
    column = on_features(periods.pool, torch.cat([*used, tested] if shared else used))
    pool = test = replace(periods.pool, inputs=column)
    if not shared and len(tested):
        test = replace(periods.test, inputs=on_features(periods.test, tested))
    modality, first = MODALITIES["features"], periods.annotated(0, "label-new").newest.indices

    def derived(fingerprint: str) -> str:
        suffix = UNTESTED if fingerprint.endswith(UNTESTED) else ""
        return fingerprint and _digest(f"{fingerprint} {embedder.fingerprint}") + suffix

    return replace(
        periods,
        modality=modality,
        pool=pool,
        test=test,
        views=modality.views(pool, first),
        normalise=modality.normaliser(pool, first, NetworkSettings()),
        fingerprint=derived(periods.fingerprint),
        learned=derived(periods.learned),
        data=derived(periods.data),
        source=f"{periods.source}, embedded with {embedder.key}",
    )


def held(periods: Periods) -> Periods:
    """Return embedded periods with their features in memory, unless they are many."""

    def in_memory(samples: Samples) -> Samples:
        column = samples.inputs
        return replace(samples, inputs=column.held()) if isinstance(column, Embedded) else samples

    pool = in_memory(periods.pool)
    return replace(periods, pool=pool, test=pool if periods.test is periods.pool else in_memory(periods.test))


@dataclass(frozen=True, eq=False)
class Scaled:
    """Multiply features by a constant, so that they have a mean length of ten: linear heads absorb it."""

    factor: float

    @classmethod
    def of(cls, periods: Periods) -> "Scaled":
        """Measure the features that the last period is trained and validated on."""
        last = periods.annotated(len(periods.versions) - 1, "label-new")
        used = torch.cat([part.indices for part in (last.newest, *last.history, last.validation)]).unique()  # type: ignore[no-untyped-call]
        lengths = torch.linalg.vector_norm(periods.pool.inputs.read(used[:_MEASURED]), dim=1)
        return cls(10 / max(float(lengths.mean()), 1e-6))

    def __call__(self, features: Tensor) -> Tensor:
        """Scale features (n, d)."""
        return features * self.factor


def _digest(text: str) -> str:
    return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()
