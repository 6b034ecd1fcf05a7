"""How many stages share a GPU: as many as its memory holds, by an estimate of their steps, but at most four."""

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from leco.experiments.stages import Stage
from leco.methods.terms import terms

if TYPE_CHECKING:
    from leco.experiments.grid import Graph

_COUNTS = (4, 2, 1)  # stages on a GPU
_OTHER = 2 * 2**30  # bytes beside a step: CUDA itself, evaluation
_FAIR = 0.8  # of the memory that is free

Measure = Callable[[str], tuple[int, int] | None]  # bytes that a step of a stage takes, and bytes that are free


def most_on_a_gpu(cores: int, gpus: int, workers: int = 0) -> int:
    """Return how many stages the cores can feed on each GPU: each takes one to train, and one or `workers` to read.

    >>> most_on_a_gpu(64, 8), most_on_a_gpu(16, 4), most_on_a_gpu(16, 4, workers=3), most_on_a_gpu(2, 1)
    (4, 2, 1, 1)
    """
    return next((count for count in _COUNTS if count * gpus * (1 + max(1, workers)) <= cores), 1)


def on_a_gpu(graph: "Graph", names: Iterable[str], most: int, measure: Measure) -> dict[str, int]:
    """Return how many stages like each of these share a GPU.

    Heads on stored features are small. Of networks that have the backbone and the batch in common, the stage that takes
    the most memory is measured; if it cannot be, each has a GPU of its own, as have those of `freeze`, whose cached
    views may take 2 GB.
    """
    found, alike = dict.fromkeys(names, most), dict[object, list[str]]()
    for name in found if most > 1 else ():
        stage = graph.stages[name]
        if not stage.on_features and stage.strategy == "freeze":
            found[name] = 1
        elif not stage.on_features:
            alike.setdefault(_kind(graph, name), []).append(name)
    for group in alike.values():
        measured = measure(max(group, key=lambda name: demand(graph.stages[name])))
        found |= dict.fromkeys(group, fitting(*measured, most) if measured else 1)
    return found


def fitting(step: int, free: int, most: int) -> int:
    """Return how many stages fit into the memory that is free, given the bytes that a step takes.

    >>> [fitting(step * 2**30, free=24 * 2**30, most=4) for step in (1, 4, 12)]
    [4, 2, 1]
    """
    counts = (count for count in _COUNTS if count <= most and count * (step + _OTHER) <= _FAIR * free)
    return next(counts, 1)


def _kind(graph: "Graph", name: str) -> object:
    """What stages have in common whose steps take about the same memory."""
    training = graph.stages[name].training
    size = (training.batches.size, training.batches.parts, training.views.size, training.segmentation.crop)
    return graph.needed_by[name].benchmark, training.network.reset("weights"), size


def demand(stage: Stage) -> tuple[bool, int, bool, int]:
    """Order stages by the memory of a step, which goes to the backbone's gradient, passes, a teacher and classes."""
    return stage.strategy != "freeze", len(forward_passes(stage)), stage.teacher is not None, stage.period


def forward_passes(stage: Stage) -> frozenset[object]:
    """Return the distinct forward passes of a step."""
    settings = stage.training
    summands = terms(stage.method, settings.pseudo_labels, settings.history, settings.loss)
    return frozenset(request for term in summands for request in term.needs)
