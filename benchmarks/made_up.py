"""Synthetic data of CIFAR's shape, in two versions, for timing: needs no files, and the work is always the same."""

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from leco import Ontology
from leco.data.batches import Steps
from leco.data.periods import Annotated, Part
from leco.data.samples import InMemory, Samples
from leco.data.views.sets import view_set
from leco.devices import keep_memory, make_fabric
from leco.methods.method import Method
from leco.methods.terms import terms
from leco.models import Network, build_backbone
from leco.settings import Settings
from leco.training.loop import Job, Training

HALF = 64  # samples of each kind in a step
ENDLESS = 1_000_000


def ontology(classes: int = 100, periods: int = 2) -> Ontology:
    """A tree in which each period splits every class of the previous one into five; the last has `classes`."""
    rows = [tuple(f"c{number // 5**up}-{up}" for up in range(periods - 1, -1, -1)) for number in range(classes)]
    return Ontology.from_taxonomy("made-up", [f"v{number + 1}" for number in range(periods)], rows)


def samples(tree: Ontology, count: int, side: int = 32) -> Samples:
    """Random pixels, and random labels that are consistent across versions."""
    random = torch.Generator().manual_seed(0)
    inputs = torch.randint(0, 256, (count, 3, side, side), generator=random, dtype=torch.uint8)
    newest = tree.newest.name
    fine = torch.randint(len(tree.newest), (count,), generator=random)
    labels = {version.name: InMemory(tree.translate(fine, newest, version.name)) for version in tree.versions}
    return Samples(InMemory(inputs), labels)


def split(tree: Ontology, count: int) -> Annotated:
    """Split samples equally between periods."""
    parts = torch.arange(count).chunk(len(tree.versions))
    given = [Part(version.name, part) for version, part in zip(tree.versions, parts, strict=True)]
    return Annotated(given[-1], tuple(given[:-1]), Part(tree.newest.name, torch.empty(0, dtype=torch.int64)))


def normalise(images: Tensor) -> Tensor:
    """Scale pixels to [-1, 1]."""
    return images.float().div_(127.5).sub_(1)


def network(model: str, tree: Ontology, coarse: str = "ce") -> Network:
    """An untrained network; joint training has a head for each version."""
    torch.manual_seed(0)
    return Network(build_backbone(model, (3, 32, 32)), tree.versions if coarse == "joint" else [tree.newest])


def make_job(
    method: Method,
    pool: Samples,
    tree: Ontology,
    teacher: Network | None,
    steps: int = ENDLESS,
    *,
    device: str = "cpu",
    settings: Settings | None = None,
) -> Job:
    """The job that `leco run` would make: 64 new and 64 old samples per step, or 128 new ones."""
    keep_memory()
    summands = terms(method)
    annotated = split(tree, len(pool))
    uses_history = any(request.part == "history" for term in summands for request in term.needs)
    if not uses_history:
        annotated = replace(annotated, history=())
    settings = settings or Settings()
    fabric, size = make_fabric(device, settings.network.precision), HALF if uses_history else 2 * HALF
    share = {"rank": fabric.global_rank, "ranks": fabric.world_size}  # under `torchrun`
    batches = Steps(pool, annotated, tree.evidence(), size, 0, steps=steps, **share)
    timed = {"optimiser": {"learning_rate": (0.01,)}, "batches": {"evaluate_every": ENDLESS}}
    settings = settings.change(**timed)
    return Job(batches, summands, view_set("cifar"), normalise, "finetune", settings, 0, teacher, fabric)


def make_training(
    method: Method, model: str, pool: Samples, tree: Ontology, steps: int = ENDLESS, **options: Any
) -> Training:
    """A training of `steps` steps of the second period; options are those of `make_job`."""
    teacher = network(model, tree) if method.needs_teacher else None
    return Training(make_job(method, pool, tree, teacher, steps, **options), network(model, tree, method.coarse), None)
