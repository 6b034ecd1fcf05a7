"""Estimate the cost of the missing stages of a grid: time, disk and memory, from a few measured steps."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory

import torch

from leco.dataset import Periods
from leco.devices import make_fabric
from leco.experiments.grid import Graph, shared_periods
from leco.experiments.machine import Machine
from leco.experiments.memory import step_memory
from leco.experiments.run import build_network
from leco.experiments.sharing import demand, forward_passes
from leco.experiments.shrinking import are_large, repeated, shrunken
from leco.experiments.stages import Plan, Stage
from leco.experiments.store import Store
from leco.experiments.timing import Pace, Reading, add_up, measure, seconds_to_read

_FEW = 4  # large images, of pool and test each
_STATES = (
    8  # copies of the weights in the checkpoints of a running stage: network, average, best, momentum; old and new
)


@dataclass(frozen=True)
class Cost:
    """The cost of the missing stages on one benchmark."""

    benchmark: str
    stages: int
    missing: int
    steps: int  # of the missing stages
    seconds: float  # one stage after the other, on an otherwise idle device
    stored: int  # bytes of the weights of the missing stages
    running: int  # bytes of the checkpoints of one stage that is running
    copies: int  # bytes of the copies of large images
    memory: int  # bytes that a step takes on a GPU, by estimate, or that the measured steps took on a CPU


def costs(graph: Graph, missing: Iterable[str], root: Path, device: str, workers: int = 0) -> list[Cost]:
    """Estimate the missing stages, benchmark by benchmark; `workers` read files while the device computes."""
    names, wanted = set(missing), dict[str, list[str]]()
    for name, experiment in graph.needed_by.items():
        wanted.setdefault(experiment.benchmark or "", []).append(name)
    found = []
    for benchmark, mine in wanted.items():
        periods = shared_periods(graph.needed_by[mine[0]], root, graph.memory)
        stages = [graph.stages[name] for name in mine]
        to_do = [stage for name, stage in zip(mine, stages, strict=True) if name in names]
        if not to_do:
            found.append(Cost(benchmark, len(stages), 0, 0, 0.0, 0, 0, 0, 0))
            continue
        with TemporaryDirectory() as folder:  # for copies of a few large images, which stand in for all of them
            if are_large(periods.pool):
                few = replace(periods, pool=repeated(periods.pool, _FEW), test=repeated(periods.test, _FEW))
                periods = shrunken(few, Store(Path(folder)), Machine(device))
            cost = _cost(benchmark, stages, to_do, periods, device=device, workers=workers)
            sizes = [path.stat().st_size for path in Path(folder).rglob("*.zip")]
        copied = sum(sizes) * (len(periods.pool) + len(periods.test)) // (2 * _FEW)
        found.append(replace(cost, copies=copied))
    return found


def _cost(
    benchmark: str, stages: Sequence[Stage], to_do: Sequence[Stage], periods: Periods, *, device: str, workers: int
) -> Cost:
    last = {kind_of(stage): stage for stage in to_do}  # of one kind, the last has the most classes
    paces = {kind: _pace(stage, periods, device, workers) for kind, stage in last.items()}
    memory = bytes_of_step(max(to_do, key=demand), periods, device)
    seconds, reading = 0.0, Reading(0.0, 0.0, kept=True)  # part of the paces
    for stage in to_do:
        alone = add_up(Plan(((stage,),)), periods, reading, _Same(paces[kind_of(stage)]))
        seconds += alone.stages[stage]
    shapes = {(stage.period, stage.method.needs_old_heads): stage for stage in to_do}
    _ = periods.shape  # reads a sample, which would be empty below
    with torch.device("meta"):
        sizes = [size_of(stage, periods) for stage in shapes.values()]
    steps = sum(stage.training.batches.steps for stage in to_do)
    average = sum(sizes) // len(sizes)
    return Cost(
        benchmark, len(stages), len(to_do), steps, seconds, average * len(to_do), _STATES * max(sizes), 0, memory
    )


def _pace(stage: Stage, periods: Periods, device: str, workers: int) -> Pace:
    """Measure some steps; with workers, a step takes as long as what takes longer, reading or computing."""
    pace = measure(stage, periods, device)
    if not workers:
        return pace
    read = seconds_to_read(stage, periods)
    return replace(pace, step=max(pace.step - read, read / workers))


class _Same(dict[str, Pace]):
    """The same pace for all methods."""

    def __init__(self, pace: Pace) -> None:
        super().__init__()
        self.pace = pace

    def __missing__(self, _: str) -> Pace:
        return self.pace


def kind_of(stage: Stage) -> tuple[object, ...]:
    """Return what determines the time of a step: the passes of a method, and whether the backbone is trained."""
    return forward_passes(stage), stage.strategy == "freeze"


def size_of(stage: Stage, periods: Periods) -> int:
    """Bytes of a stage's weights."""
    state = build_network(stage, periods).state_dict().values()
    return sum(tensor.numel() * tensor.element_size() for tensor in state)


def bytes_of_step(stage: Stage, periods: Periods, device: str) -> int:
    """Bytes that a step of the whole batch takes on a GPU, by estimate, or that the measured ones took on a CPU."""
    if make_fabric(device, stage.training.network.precision).device.type == "cuda":
        return step_memory(stage, periods, device).of(stage.training.batches.size // stage.training.batches.parts)
    import resource
    import sys

    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else 1024 * peak
