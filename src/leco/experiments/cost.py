"""What the missing stages of a grid will cost: time, disk and memory, from a few measured steps."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from leco.data.samples import InMemory
from leco.dataset import Periods
from leco.devices import make_fabric
from leco.experiments.grid import Graph, shared_periods
from leco.experiments.run import build_network
from leco.experiments.stages import Plan, Stage
from leco.experiments.timing import Pace, add_up, measure, measure_reading
from leco.methods.terms import terms

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
    memory: int  # bytes that a few steps took


def costs(graph: Graph, missing: Iterable[str], root: Path, device: str) -> list[Cost]:
    """Estimate the missing stages, benchmark by benchmark."""
    names, wanted = set(missing), dict[str, list[str]]()
    for name, experiment in graph.needed_by.items():
        wanted.setdefault(experiment.benchmark or "", []).append(name)
    found = []
    for benchmark, mine in wanted.items():
        periods = shared_periods(graph.needed_by[mine[0]], root, graph.memory)
        stages = [graph.stages[name] for name in mine]
        to_do = [stage for name, stage in zip(mine, stages, strict=True) if name in names]
        found.append(_cost(benchmark, stages, to_do, periods, device))
    return found


def _cost(benchmark: str, stages: Sequence[Stage], to_do: Sequence[Stage], periods: Periods, device: str) -> Cost:
    if not to_do:
        return Cost(benchmark, len(stages), 0, 0, 0.0, 0, 0, 0)
    reading = measure_reading(periods.pool, isinstance(periods.pool.inputs, InMemory))
    last = {forward_passes(stage): stage for stage in to_do}  # of one kind, the last has the most classes
    paces: dict[frozenset[object], Pace] = {kind: measure(stage, periods, device) for kind, stage in last.items()}
    memory = peak_memory(device, to_do[0])
    seconds = 0.0
    for stage in to_do:
        alone = add_up(Plan(((stage,),)), periods, reading, _Same(paces[forward_passes(stage)]))
        seconds += alone.stages[stage]
    shapes = {(stage.period, stage.method.needs_old_heads): stage for stage in to_do}
    with torch.device("meta"):
        sizes = [size_of(stage, periods) for stage in shapes.values()]
    steps = sum(stage.training.batches.steps for stage in to_do)
    average = sum(sizes) // len(sizes)
    return Cost(benchmark, len(stages), len(to_do), steps, seconds, average * len(to_do), _STATES * max(sizes), memory)


class _Same(dict[str, Pace]):
    """The same pace for all methods."""

    def __init__(self, pace: Pace) -> None:
        super().__init__()
        self.pace = pace

    def __missing__(self, _: str) -> Pace:
        return self.pace


def forward_passes(stage: Stage) -> frozenset[object]:
    """What decides on the time of a step: the forward passes of a method, and whether the backbone is trained."""
    settings = stage.training
    summands = terms(stage.method, settings.pseudo_labels, settings.history, settings.loss)
    return frozenset((*(request for term in summands for request in term.needs), stage.strategy == "freeze"))


def size_of(stage: Stage, periods: Periods) -> int:
    """Bytes of a stage's weights."""
    state = build_network(stage, periods).state_dict().values()
    return sum(tensor.numel() * tensor.element_size() for tensor in state)


def peak_memory(device: str, stage: Stage) -> int:
    """Bytes that this process has needed at most: on the GPU if it uses one, else in memory."""
    used = make_fabric(device, stage.training.network.precision).device
    if used.type == "cuda":
        return torch.cuda.max_memory_allocated(used)
    import resource
    import sys

    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else 1024 * peak
