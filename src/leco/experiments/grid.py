"""Many experiments over one store: a graph of the stages they share, and the processes that train them."""

import multiprocessing
import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from leco.dataset import Periods
from leco.devices import resolve_device
from leco.errors import LecoError, nearest
from leco.experiments.experiment import Experiment
from leco.experiments.machine import Machine
from leco.experiments.remote import Remote, is_url, local_path
from leco.experiments.run import embed_stage, run_stage
from leco.experiments.shrinking import shrunken
from leco.experiments.stages import Plan, Stage, needed, plan
from leco.experiments.store import Store
from leco.experiments.train import periods_of, stoppable
from leco.registry import IMPORTED, import_modules
from leco.settings import Settings

if TYPE_CHECKING:
    from multiprocessing.queues import SimpleQueue

_HEADS_PER_GPU = 4  # stages that share a GPU if all of them only train heads, on stored features
_ATTEMPTS = 3  # of a stage whose process was killed


@dataclass(frozen=True)
class Graph:
    """The distinct stages of several experiments, in an order they can run in."""

    plans: tuple[Plan, ...]  # one for each experiment
    stages: dict[str, Stage]  # by fingerprint
    needed_by: dict[str, Experiment]  # one of the experiments that need it
    wanted: int  # stages that would be trained if none were shared
    memory: Path | None = None  # folder that remembers digests of files

    @classmethod
    def of(
        cls, experiments: Sequence[Experiment], root: Path, runs: str | Path | None = None, *, dry_run: bool = False
    ) -> "Graph":
        """Plan all experiments; benchmarks are in the folder `root`, and `runs` is the store.

        A `dry_run` makes no store, but uses one that is there.
        """
        memory = None if runs is None or (dry_run and not Path(runs).exists()) else memory_of(runs)
        plans = tuple(plan(experiment, shared_periods(experiment, root, memory)) for experiment in experiments)
        stages: dict[str, Stage] = {}
        needed_by: dict[str, Experiment] = {}
        for experiment, planned in zip(experiments, plans, strict=True):
            for stage in planned.stages:
                stages.setdefault(stage.fingerprint, stage)
                needed_by.setdefault(stage.fingerprint, experiment)
        return cls(plans, stages, needed_by, sum(len(planned.stages) for planned in plans), memory)

    def missing(self, runs: str | Path) -> list[str]:
        """Fingerprints of the stages that are not complete in a store, which may be remote."""
        if is_url(runs):
            complete = set(Remote(str(runs)).complete())
            return [name for name in self.stages if name not in complete]
        store = Store(local_path(runs))
        return [name for name in self.stages if store.result(name) is None]

    def needs(self, name: str) -> list[str]:
        """Stages that must be complete before this one."""
        return [stage.fingerprint for stage in needed(self.stages[name])]

    def followers(self, name: str) -> list[str]:
        """Stages that depend on this one, directly or indirectly."""
        found = {name: None}
        for other in self.stages:
            if found.keys() & set(self.needs(other)):
                found[other] = None
        return list(found)[1:]


@dataclass
class Progress:
    """State of a grid: stages that are waiting, running, done, failed, or skipped because another failed."""

    graph: Graph
    waiting: dict[str, None]
    running: dict[str, float] = field(default_factory=dict)  # start time of the monotonic clock
    done: list[str] = field(default_factory=list)
    failed: dict[str, str] = field(default_factory=dict)  # with the error message
    skipped: list[str] = field(default_factory=list)

    def start(self, most: int) -> Iterable[str]:
        """Take up to `most` stages whose dependencies are complete."""
        unfinished = self.waiting.keys() | self.running.keys()
        free = [name for name in self.waiting if not unfinished.intersection(self.graph.needs(name))]
        for name in free[:most]:
            del self.waiting[name]
            self.running[name] = time.monotonic()
            yield name

    def finish(self, name: str, problem: str | None = None) -> None:
        """Record how a stage ended; skip the stages that depend on a failed one."""
        self.running.pop(name, None)
        if problem is None:
            self.done.append(name)
            return
        self.failed[name] = problem
        for follower in self.graph.followers(name):
            if follower in self.waiting:
                del self.waiting[follower]
                self.skipped.append(follower)


def run_locally(
    graph: Graph, root: Path, runs: str | Path, jobs: int | None = None, device: str = "auto", *, workers: int = 0
) -> Iterator[Progress]:
    """Train the missing stages in `jobs` processes; yield once before and after each stage.

    By default there is one process a GPU, four if all stages only train heads, or one a core without GPUs. Each has
    `workers` that read files ahead. A stage that fails stops only the stages that depend on it. Features, and copies of
    large images, are made before, on all cores, so that no two processes make the same.
    """
    progress = Progress(graph, dict.fromkeys(graph.missing(runs)))
    yield progress
    cards = gpus(device)
    on_features = all(graph.stages[name].on_features for name in progress.waiting)
    each = _HEADS_PER_GPU if on_features else 1
    jobs = jobs or len(cards) * each or (cores() if resolve_device(device).type == "cpu" else 1)
    device = "cuda" if cards else device  # each process sees one only
    if not is_url(runs):
        prepare(graph, progress.waiting, root, Store(local_path(runs)), Machine(device, workers, shown=True))
    one = partial(train_one, device=device, workers=workers, modules=tuple(IMPORTED))
    attempts: dict[str, int] = {}
    suspects: set[str] = set()  # one of them killed its process; they continue one at a time, to find out which
    while progress.waiting:
        with _workers(jobs, cards) as pool, _ending_workers():
            tasks: dict[Future[None], str] = {}
            while progress.waiting or tasks:
                for name in progress.start((1 if suspects else jobs) - len(tasks)):
                    attempts[name] = attempts.get(name, 0) + 1
                    tasks[pool.submit(one, graph.needed_by[name], name, root, runs)] = name
                finished, _ = wait(tasks, return_when=FIRST_COMPLETED)
                problems = {task: task.exception() for task in finished}
                if any(isinstance(problem, BrokenProcessPool) for problem in problems.values()):
                    suspects = _requeue(progress, tasks.values(), attempts, runs)
                    yield progress
                    break
                for task, problem in problems.items():
                    if isinstance(problem, KeyboardInterrupt):
                        raise problem
                    suspects.discard(tasks[task])
                    progress.finish(tasks.pop(task), None if problem is None else str(problem))
                    yield progress


def prepare(graph: Graph, names: Iterable[str], root: Path, store: Store, machine: Machine) -> None:
    """Compute the features, and shrink the large images, of all samples that some stages train and test on."""
    done: set[tuple[object, ...]] = set()
    for name in names:
        stage = graph.stages[name]
        if graph.needed_by[name].dataset(root).modality.has_masks:
            shrunken(shared_periods(graph.needed_by[name], root), store, machine)
        network, unlabelled = stage.training.network, stage.annotation == "with-unlabelled"
        key = (stage.material, network.backbone, network.frozen_layers, stage.weights, unlabelled)
        if stage.on_features and key not in done:
            done.add(key)
            embed_stage(stage, shared_periods(graph.needed_by[name], root, store.files), store, machine)


def _requeue(progress: Progress, names: Iterable[str], attempts: dict[str, int], runs: str | Path) -> set[str]:
    """Put the stages of a killed worker back at the front of the queue; they resume from their checkpoints."""
    missing = set(progress.graph.missing(runs))
    again: dict[str, None] = {}
    for name in names:
        progress.running.pop(name, None)
        if name not in missing:
            progress.finish(name)
        elif attempts[name] < _ATTEMPTS:
            again[name] = None
        else:
            progress.finish(name, f"its process was killed {_ATTEMPTS} times; the machine may be out of memory")
    progress.waiting = again | progress.waiting
    return set(again)


def _workers(jobs: int, cards: Sequence[str] = ()) -> ProcessPoolExecutor:
    threads = max(1, cores() // jobs)
    context = multiprocessing.get_context("spawn")  # torch's threads do not survive a fork
    seats = context.SimpleQueue()  # each process takes one
    for seat in range(jobs):
        seats.put(cards[seat % len(cards)] if cards else "")
    return ProcessPoolExecutor(jobs, context, initializer=_enter_worker, initargs=(threads, os.getpid(), seats))


@contextmanager
def _ending_workers() -> Iterator[None]:
    """Ask the workers to save and stop when this process is asked to end: unlike Ctrl-C, they do not hear of it."""
    try:
        yield
    except SystemExit:
        for worker in multiprocessing.active_children():
            worker.terminate()
        raise


def gpus(device: str = "auto") -> list[str]:
    """Names of the GPUs that a device means, as CUDA_VISIBLE_DEVICES has them; none for `cpu`."""
    if device == "cpu" or not torch.cuda.is_available():
        return []
    chosen, count = resolve_device(device), torch.cuda.device_count()
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    names = [name.strip() for name in visible.split(",")] if visible else list(map(str, range(count)))
    return names[:count] if chosen.index is None else [names[chosen.index]]


def cores() -> int:
    """Number of cores that this process may use, which may be fewer than the machine has."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _enter_worker(threads: int, parent: int, seats: "SimpleQueue[str]") -> None:
    torch.set_num_threads(threads)
    if card := seats.get():
        os.environ["CUDA_VISIBLE_DEVICES"] = card  # read when CUDA is first used

    def leave_with_parent() -> None:
        while os.getppid() == parent:
            time.sleep(1)
        os._exit(1)  # the parent was killed

    threading.Thread(target=leave_with_parent, daemon=True).start()


def train_one(
    experiment: Experiment,
    name: str,
    root: Path,
    runs: str | Path,
    *,
    device: str,
    workers: int = 0,
    modules: Sequence[str] = (),
) -> None:
    """Train one stage of an experiment in this process; its dependencies are complete in the store."""
    import_modules(modules)
    periods = shared_periods(experiment, root, memory_of(runs))
    planned = plan(experiment, periods)
    stage = next((s for s in planned.stages if s.fingerprint == name), None)
    if stage is None:
        raise LecoError(f"{periods.name}: the data changed since the grid was planned; start the grid again")
    with stoppable() as stop:
        machine, remote = Machine(device, workers, stop=stop), Remote(str(runs)) if is_url(runs) else None
        if remote is not None:
            remote.fetch(other.fingerprint for other in needed(stage))
            remote.fetch_checkpoint(name)
            machine = replace(machine, saved=remote.put_checkpoint)
        store = Store(local_path(runs)) if remote is None else remote.store
        run_stage(stage, periods, store, machine, may_diverge=planned.may_diverge(stage))
        if remote is not None:
            remote.put(name)


def memory_of(runs: str | Path) -> Path:
    """Return the folder of a store in which digests of files are remembered."""
    return Remote(str(runs)).store.files if is_url(runs) else Store(local_path(runs)).files


def shared_periods(experiment: Experiment, root: Path, memory: Path | None = None) -> Periods:
    """Return the periods of an experiment, read once for all experiments that share them."""
    given = {"benchmark", "data", "size", "transition", "seed", "start"} & experiment.model_fields_set
    network = experiment.training.network.reset("norm_momentum", "precision", "recompute", "shard")
    training = Settings(network=network).change(views={"resize": experiment.training.views.resize})
    return _periods(Experiment(**{name: getattr(experiment, name) for name in given}, training=training), root, memory)


@lru_cache(maxsize=8)
def _periods(experiment: Experiment, root: Path, memory: Path | None) -> Periods:
    return periods_of(experiment, root, memory=memory)


Engine = Callable[..., Iterator[Progress]]  # as `run_locally`


def engine_of(name: str) -> Engine:
    """Return an engine by name."""
    if name == "ray":
        from leco.experiments.ray import run_on_ray

        return run_on_ray
    if name != "local":
        raise LecoError(f"{name!r} is not an engine{nearest(name, ('local', 'ray'))}")
    return run_locally
