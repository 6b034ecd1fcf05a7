"""Estimate of the duration of an experiment on this machine, from a few timed steps on a few samples."""

import math
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

import torch
from lightning_fabric import Fabric
from torch import nn

from leco.data.ahead import THREADS
from leco.data.periods import Part
from leco.data.rng import Draws
from leco.data.samples import Samples
from leco.dataset import Periods
from leco.devices import make_fabric, place
from leco.evaluation.evaluate import Judge
from leco.experiments.auto import refitted
from leco.experiments.machine import Machine
from leco.experiments.memory import StepMemory, step_memory
from leco.experiments.run import build_network, make_job, starting_weights
from leco.experiments.shrinking import are_large, repeated, shrunken_samples
from leco.experiments.stages import Plan, Stage
from leco.models.lora import add_adapters
from leco.models.network import AnyNetwork
from leco.training.loop import Training

_READ = 32  # samples
_STEPS_READ = 3
_SMALLEST = 4  # samples in the first batch
_LONGEST_STEP = 1.0  # seconds; of a batch that would take longer, only a part is timed
_LONGEST = 1.5  # seconds of steps per method
_ENDLESS = 10**9
SECONDS_OF_HEADS = 60.0  # to fit a head to thousands of features by cross-validation, and again to all labels


@dataclass(frozen=True)
class Reading:
    """Time to decode the images."""

    all: float  # seconds for every image once
    one: float  # seconds per image
    kept: bool  # whether images are in memory; otherwise they are read again in every step


@dataclass(frozen=True)
class Estimate:
    """Duration in seconds on an otherwise idle machine; thermal throttling is not considered."""

    reading: float
    stages: dict[Stage, float]
    again: float = 0.0  # to train the chosen trial of `auto` on all labels, if it is the last one
    memory: StepMemory | None = None  # of a step of the last network that is trained

    @property
    def seconds(self) -> float:
        """Total duration."""
        return self.reading + sum(self.stages.values()) + self.again


@dataclass(frozen=True)
class Pace:
    """Speed of a stage."""

    step: float  # seconds per step
    scored: float  # seconds per evaluated sample


def measure_reading(samples: Samples, kept: bool) -> Reading:
    """Read some samples one by one, and use the median, which is robust to other load."""
    columns = [column for column in (samples.inputs, samples.sizes, *samples.labels.values()) if column is not None]
    times = []
    for index in torch.linspace(0, len(samples) - 1, _READ).long().split(1):  # type: ignore[no-untyped-call]
        started = time.perf_counter()
        for column in columns:
            column.read(index)
        times.append(time.perf_counter() - started)
    again = median(times)
    if are_large(samples):  # what is read in every step are copies
        with TemporaryDirectory() as folder:
            few = shrunken_samples(repeated(samples, 2), Path(folder), Machine("cpu"))
            again = measure_reading(few, kept).one
    return Reading(median(times) * len(samples), again, kept)


def estimate(plan: Plan, periods: Periods, reading: Reading, device: str) -> Estimate:
    """Measure one stage of every method, and assume that the others of the same method are as fast."""
    heads = [stage for stage in plan.stages if stage.on_features]
    # The last stage has the most classes.
    last = {str(stage.method): stage for stage in plan.stages if stage not in heads}
    paces = {name: measure(stage, periods, device) for name, stage in last.items()}
    found = add_up(plan, periods, reading, paces, seconds_to_embed(heads[0], periods, device) if heads else 0.0)
    networks = [stage for stage in plan.stages if not stage.on_features]
    return replace(found, memory=step_memory(networks[-1], periods, device)) if networks else found


def add_up(
    plan: Plan, periods: Periods, reading: Reading, paces: Mapping[str, Pace], embedding: float = 0.0
) -> Estimate:
    """Sum the durations of all stages, given the speed of each method; data are read twice: checked, then decoded.

    Features are computed by the first stage that needs them.
    """
    found: dict[Stage, float] = {}
    for stage in plan.stages:
        if stage.on_features:
            found[stage] = SECONDS_OF_HEADS + (0.0 if any(other.on_features for other in found) else embedding)
            continue
        settings, pace = stage.training, paces[str(stage.method)]
        read = 0.0 if reading.kept else settings.batches.size * reading.one / THREADS
        found[stage] = settings.batches.steps * (pace.step + read) + seconds_to_score(stage, periods, pace)
    last = plan.stages[-1]
    again = found[last] if plan.trials and refitted(last, periods)[0] is not last else 0.0
    return Estimate(2 * reading.all, found, again)


def seconds_to_score(stage: Stage, periods: Periods, pace: Pace) -> float:
    """Estimate the time of all evaluations of a stage."""
    batches = stage.training.batches
    held_out = len(periods.annotated(stage.period, stage.annotation).validation.indices)
    times = 1 + math.ceil(batches.steps / batches.evaluate_every)
    return (held_out * times + len(periods.tested(stage.period))) * pace.scored


def measure(stage: Stage, periods: Periods, device: str) -> Pace:
    """Time some steps of a stage with untrained networks, and discard the result."""
    fabric = make_fabric(device, stage.training.network.precision)
    network = build_network(stage, periods)
    add_adapters(network.backbone, stage.training.network.lora, periods.shape)
    teacher = None if stage.teacher is None else build_network(stage.teacher, periods)
    wanted = stage.training.batches.size
    size = min(_SMALLEST, wanted)
    expected = _seconds_of_step(stage, periods, fabric, (network, teacher), size=size) * wanted / size
    size = wanted if expected < _LONGEST_STEP else max(size, int(wanted * _LONGEST_STEP / expected) // 2 * 2)
    step = _seconds_of_step(stage, periods, fabric, (network, teacher), size=size, most=_LONGEST) * wanted / size
    return Pace(step, _seconds_of_scoring(stage, periods, fabric, network))


def _seconds_of_step(
    stage: Stage,
    periods: Periods,
    fabric: Fabric,
    networks: tuple[AnyNetwork, nn.Module | None],
    *,
    size: int,
    most: float = 0.0,
) -> float:
    """Median of some steps, after one warm-up step; `networks` are student and teacher."""
    network, teacher = networks
    batches = {"size": size, "steps": _ENDLESS, "evaluate_every": _ENDLESS}
    plain: dict[str, Any] = {
        "transfer": {"head_steps": 0},
        "network": {"compile": False},
    }  # compiling would take longer than measuring
    part = replace(stage, training=stage.training.change(batches=batches, **plain))
    training = Training(make_job(part, periods, 0, fabric, teacher), network, None)
    training.read_every = 1  # a step is done, not only queued, once its losses are read
    times, before = [], 0.0
    for _ in training.run():
        times.append(training.step_seconds - before)
        before = training.step_seconds
        if len(times) > 1 and before > most:
            break
    return median(times[1:])


def seconds_to_read(stage: Stage, periods: Periods) -> float:
    """Time to read the samples of a step, on one core."""
    steps = make_job(stage, periods, 0, make_fabric("cpu", "32-true"), None).steps
    times = []
    for number in range(min(_STEPS_READ, len(steps))):
        started = time.perf_counter()
        _ = steps[number]
        times.append(time.perf_counter() - started)
    return median(times)


def _seconds_of_scoring(stage: Stage, periods: Periods, fabric: Fabric, network: AnyNetwork) -> float:
    annotated = periods.annotated(stage.period, stage.annotation)
    some = (annotated.validation if len(annotated.validation.indices) else annotated.newest).indices
    some = some[: 4 if periods.modality.has_masks else 64]
    started = time.perf_counter()
    Judge(periods, stage.period, Part(stage.version, some), fabric, stage.training.segmentation.window).validation(
        network
    )
    return (time.perf_counter() - started) / len(some)


@torch.no_grad()
def seconds_to_embed(stage: Stage, periods: Periods, device: str) -> float:
    """Estimate the time to embed all samples from that for a few."""
    fabric = make_fabric(device, stage.training.network.precision)
    network = place(build_network(stage, periods, starting_weights(stage)), fabric.device).eval()
    ids = torch.arange(min(_READ, len(periods.pool)))
    taken = []
    for _ in range(2):  # the first is a warm-up
        started = time.perf_counter()
        seen = periods.views.evaluate(
            periods.pool.inputs.read(ids).to(fabric.device), Draws(0, 0, ids.to(fabric.device))
        )
        network(periods.normalise(seen))[stage.version].sum().item()
        taken.append(time.perf_counter() - started)
    return taken[-1] * len(periods.pool) / len(ids)
