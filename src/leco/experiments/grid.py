"""Many experiments over one store: a graph of the stages they share, and the processes that train them."""

import gc
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial
from pathlib import Path

import torch

from leco.dataset import Periods
from leco.devices import resolve_device
from leco.errors import LecoError, nearest
from leco.experiments.experiment import Experiment
from leco.experiments.machine import Machine
from leco.experiments.memory import step_memory
from leco.experiments.pools import cores, ended, gpus, pools, processes
from leco.experiments.remote import Remote, is_url, local_path
from leco.experiments.run import embed_stage, run_stage
from leco.experiments.sharing import most_on_a_gpu, on_a_gpu
from leco.experiments.shrinking import shrunken
from leco.experiments.stages import Plan, Stage, needed, plan
from leco.experiments.store import Store
from leco.experiments.train import periods_of, stoppable
from leco.registry import IMPORTED, import_modules
from leco.settings import Settings

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

    def ready(self) -> list[str]:
        """Return the waiting stages whose dependencies are complete."""
        unfinished = self.waiting.keys() | self.running.keys()
        return [name for name in self.waiting if not unfinished.intersection(self.graph.needs(name))]

    def start(self, name: str) -> None:
        """Record that a stage is running."""
        del self.waiting[name]
        self.running[name] = time.monotonic()

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
    """Train the missing stages, `jobs` at a time; yield once before and after each stage.

    By default, as many share a GPU as its memory holds, up to four; without GPUs, there is one a core. Each has
    `workers` that read files ahead. A stage that fails stops only the stages that depend on it. Features, and copies of
    large images, are made before, on all cores, so that no two processes make the same.
    """
    progress = Progress(graph, dict.fromkeys(graph.missing(runs)))
    yield progress
    cards = gpus(device)
    shared = dict.fromkeys(progress.waiting, 1)  # how many stages like each of them share a GPU
    seats = jobs or len(cards) or (cores() if resolve_device(device).type == "cpu" else 1)
    if not is_url(runs):
        prepare(graph, progress.waiting, root, Store(local_path(runs)), Machine(device, workers, shown=True))
        _free_memory()
    device = "cuda" if cards else device  # each process sees one only
    if cards and jobs is None:
        most = most_on_a_gpu(cores(), len(cards), workers)
        shared = on_a_gpu(graph, progress.waiting, most, partial(_measured, graph, root, runs, card=cards[0]))
        seats *= max(shared.values(), default=1)
    taken = {name: max(shared.values()) // count for name, count in shared.items()}
    one = partial(train_one, device=device, workers=workers, modules=tuple(IMPORTED))
    attempts: dict[str, int] = {}
    suspects: set[str] = set()  # one of them killed its process; each continues alone on its device, to find out which
    with pools(cards or [""], seats) as all_pools:
        while progress.waiting or progress.running:
            for name in progress.ready():
                pool = max(all_pools, key=lambda pool: pool.free)
                wanted = pool.seats if name in suspects else taken[name]
                if pool.free < wanted:
                    break  # those that are smaller wait, too, or it would never come to its turn
                progress.start(name)
                attempts[name] = attempts.get(name, 0) + 1
                pool.start(name, wanted, one, graph.needed_by[name], name, root, runs)
            for pool, task in ended(all_pools):
                if task not in pool.tasks:
                    continue  # of a pool that broke
                problem = task.exception()
                if isinstance(problem, BrokenProcessPool):
                    suspects |= _requeue(progress, pool.restart(), attempts, runs)
                elif isinstance(problem, KeyboardInterrupt):
                    raise problem
                else:
                    name, _ = pool.tasks.pop(task)
                    suspects.discard(name)
                    progress.finish(name, None if problem is None else str(problem))
                yield progress


def _measured(graph: Graph, root: Path, runs: str | Path, name: str, card: str) -> tuple[int, int] | None:
    """Estimate the memory of a stage's steps in a process of its own, which gives back that of the GPU."""
    with processes(1, cores(), card) as one:
        try:
            return one.submit(memory_of_step, graph.needed_by[name], name, root, runs, tuple(IMPORTED)).result()
        except Exception:  # out of memory, or killed; whatever else it is, the stage will say so
            return None


def _free_memory() -> None:
    """Give unused memory of the GPU back, for other processes that share it."""
    if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        gc.collect()
        torch.cuda.empty_cache()


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
    stage = _stage_of(planned, name, periods)
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
    _free_memory()


def memory_of_step(
    experiment: Experiment, name: str, root: Path, runs: str | Path, modules: Sequence[str] = ()
) -> tuple[int, int]:
    """Return the bytes that a step of a stage takes on this process's GPU, and those that are free."""
    import_modules(modules)
    periods = shared_periods(experiment, root, memory_of(runs))
    stage = _stage_of(plan(experiment, periods), name, periods)
    found = step_memory(stage, periods, "cuda")
    return found.of(found.size // stage.training.batches.parts), found.available or 0


def _stage_of(planned: Plan, name: str, periods: Periods) -> Stage:
    stage = next((stage for stage in planned.stages if stage.fingerprint == name), None)
    if stage is None:
        raise LecoError(f"{periods.name}: the data changed since the grid was planned; start the grid again")
    return stage


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
