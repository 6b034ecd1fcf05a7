"""How long an experiment will take on this machine: some of its steps are made, on a few of its samples, and timed."""

import math
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from statistics import median

import torch
from lightning_fabric import Fabric
from torch import nn

from leco.data.periods import Part
from leco.data.samples import Samples
from leco.dataset import Periods
from leco.devices import make_fabric
from leco.evaluation.evaluate import Judge
from leco.experiments.run import build_network, make_job
from leco.experiments.stages import Plan, Stage
from leco.models.network import AnyNetwork
from leco.training.loop import Training

_READ = 32  # samples
_SMALLEST = 4  # samples of the first batch that is tried
_LONGEST_STEP = 1.0  # seconds; a batch that would take longer is measured in part
_LONGEST = 1.5  # seconds of steps, for each method
_ENDLESS = 10**9


@dataclass(frozen=True)
class Reading:
    """How long it takes to decode the images."""

    all: float  # seconds, for every image once
    one: float  # seconds
    kept: bool  # in memory; else they are read anew in every step


@dataclass(frozen=True)
class Estimate:
    """Seconds, with nothing else running; what other networks, or a machine that becomes hot, will take may differ."""

    reading: float
    stages: dict[Stage, float]

    @property
    def seconds(self) -> float:
        """All of it."""
        return self.reading + sum(self.stages.values())


@dataclass(frozen=True)
class Pace:
    """What a stage spends its time on."""

    step: float  # seconds
    scored: float  # seconds for each sample that is evaluated


def measure_reading(samples: Samples, kept: bool) -> Reading:
    """Read some samples one by one: the median is robust to other load."""
    columns = [column for column in (samples.inputs, samples.sizes, *samples.labels.values()) if column is not None]
    times = []
    for index in torch.linspace(0, len(samples) - 1, _READ).long().split(1):  # type: ignore[no-untyped-call]
        started = time.perf_counter()
        for column in columns:
            column.read(index)
        times.append(time.perf_counter() - started)
    return Reading(median(times) * len(samples), median(times), kept)


def estimate(plan: Plan, periods: Periods, reading: Reading, device: str) -> Estimate:
    """Measure one stage of every method, and suppose that the others of that method are as fast."""
    last = {str(stage.method): stage for stage in plan.stages}  # which have the most classes
    return add_up(plan, periods, reading, {name: measure(stage, periods, device) for name, stage in last.items()})


def add_up(plan: Plan, periods: Periods, reading: Reading, paces: Mapping[str, Pace]) -> Estimate:
    """The time of every stage, given the pace of its method; data are read twice before: checked, then decoded."""
    found = {}
    for stage in plan.stages:
        settings, pace = stage.training, paces[str(stage.method)]
        read = 0.0 if reading.kept else settings.batches.size * reading.one
        held_out = len(periods.annotated(stage.period, stage.annotation).validation.indices)
        scored = held_out * (1 + math.ceil(settings.batches.steps / settings.batches.evaluate_every)) + len(
            periods.tested(stage.period)
        )
        found[stage] = settings.batches.steps * (pace.step + read) + scored * pace.scored
    return Estimate(2 * reading.all, found)


def measure(stage: Stage, periods: Periods, device: str) -> Pace:
    """Make some steps of a stage with networks that have learnt nothing, which takes as long; keep nothing of it."""
    fabric = make_fabric(device, stage.training.network.precision)
    network = build_network(stage, periods)
    teacher = None if stage.teacher is None else build_network(stage.teacher, periods)
    wanted = stage.training.batches.size
    size = min(_SMALLEST, wanted)
    expected = _seconds_of_step(stage, periods, fabric, network, teacher, size, 0.0) * wanted / size
    size = wanted if expected < _LONGEST_STEP else max(size, int(wanted * _LONGEST_STEP / expected) // 2 * 2)
    step = _seconds_of_step(stage, periods, fabric, network, teacher, size, _LONGEST) * wanted / size
    return Pace(step, _seconds_of_scoring(stage, periods, fabric, network))


def _seconds_of_step(
    stage: Stage,
    periods: Periods,
    fabric: Fabric,
    network: AnyNetwork,
    teacher: nn.Module | None,
    size: int,
    most: float,
) -> float:
    """The median of some steps, after one to get warm."""
    batches = {"size": size, "steps": _ENDLESS, "evaluate_every": _ENDLESS}
    part = replace(stage, training=stage.training.change(batches=batches, transfer={"head_steps": 0}))
    training = Training(make_job(part, periods, 0, fabric, teacher), network, None)
    times, before = [], 0.0
    for _ in training.run():
        times.append(training.step_seconds - before)
        before = training.step_seconds
        if len(times) > 1 and before > most:
            break
    return median(times[1:])


def _seconds_of_scoring(stage: Stage, periods: Periods, fabric: Fabric, network: AnyNetwork) -> float:
    annotated = periods.annotated(stage.period, stage.annotation)
    some = (annotated.validation if len(annotated.validation.indices) else annotated.newest).indices
    some = some[: 4 if periods.modality.has_masks else 64]
    started = time.perf_counter()
    Judge(periods, stage.period, Part(stage.version, some), fabric, stage.training.segmentation.window).validation(
        network
    )
    return (time.perf_counter() - started) / len(some)
