"""The periods of an experiment trained one after the other, in memory: nothing is read, nothing is written."""

import math
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import lru_cache

import torch
from lightning_fabric import Fabric
from lightning_fabric.plugins.environments.lightning import LightningEnvironment
from torch import Tensor

from leco.data.samples import InMemory, Samples
from leco.data.views.sets import feature_views
from leco.dataset import Material
from leco.experiments.experiment import Procedure
from leco.experiments.grid import needed
from leco.experiments.networks import make_network
from leco.experiments.stages import Stage, plan
from leco.model.labels import Labels
from leco.models.network import AnyNetwork
from leco.training.finish import balance_teacher
from leco.training.loop import Training
from leco.training.run import finishing, make_job

_ONE_AT_A_TIME = threading.Lock()  # torch's generator belongs to the whole process


def material_of(features: Tensor, normalise: Callable[[Tensor], Tensor], labels: Labels) -> Material:
    """Features and their labels as what an experiment trains on; views of them are normalised."""
    known = {name: InMemory(torch.from_numpy(indices)) for name, indices in labels.known.items()}
    samples = Samples(InMemory(features), dict(known))
    versions = tuple(labels.versions)
    periods = [labels.annotated(version) for version in versions]
    return Material(
        name="arrays",
        task="features",
        ontology=labels.ontology,
        versions=versions,
        pool=samples,
        test=samples,
        views=feature_views(features.std(dim=0, correction=0)),
        normalise=normalise,
        annotated=lambda period, _: periods[period],
        tested=lambda _: torch.empty(0, dtype=torch.int64),
        fingerprint="",
        learned="",
    )


def at_most_ten(features: Tensor) -> Tensor:
    """Standardised features, scaled to a length of about ten if they are so many that they would be longer.

    So one learning rate does for few and for many (docs/lab-book/log.md).
    """
    return features * min(1.0, 10 / math.sqrt(features.shape[1]))


def train(procedure: Procedure, material: Material) -> AnyNetwork:
    """The network of the newest period; earlier ones, and teachers, are forgotten."""
    planned = plan(procedure, material)
    (last,) = planned.periods[-1]
    wanted = {last}
    for stage in reversed(planned.stages):  # earlier periods only where something is taken over from them
        if stage in wanted:
            wanted.update(needed(stage))
    trained: dict[Stage, AnyNetwork] = {}
    with own_randomness():
        for stage in planned.stages:
            if stage not in wanted:
                continue
            previous = trained[stage.previous[0]] if stage.previous else None
            teacher = trained[stage.teacher] if stage.teacher else None
            job = make_job(stage, material, 0, this_process(), teacher)
            if stage.training.balance:
                balance_teacher(job)
            training = Training(job, make_network(stage, material, previous), validate=None)
            for _ in training.run():
                pass
            training.network.load_state_dict(training.best)
            trained[stage] = finishing(stage, material, job)(training.network.eval())
    return trained[last]


@contextmanager
def own_randomness() -> Iterator[None]:
    """Leave torch's generators as they were found, and learn even where the caller has turned gradients off."""
    devices = range(torch.cuda.device_count()) if torch.cuda.is_initialized() else ()  # type: ignore[no-untyped-call]
    with _ONE_AT_A_TIME, torch.random.fork_rng(devices), torch.inference_mode(False):
        yield


@lru_cache(maxsize=1)
def this_process() -> Fabric:
    """The CPU of this process alone, also under `torchrun` or a scheduler: others may fit something else."""
    fabric = Fabric(accelerator="cpu", devices=1, plugins=LightningEnvironment())
    fabric.launch()
    return fabric
