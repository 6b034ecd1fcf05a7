"""Stages as tasks of a Ray cluster: a running one (RAY_ADDRESS), or a new one on this machine."""

import logging
import os
import socket
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from leco.errors import LecoError, first_line
from leco.experiments.grid import Graph, Progress, memory_of_step, train_one
from leco.experiments.pools import cores
from leco.experiments.remote import is_url, local_path
from leco.experiments.sharing import most_on_a_gpu, on_a_gpu
from leco.registry import IMPORTED

_OF_HEADS = 0.25  # of a GPU at most, for stages that train heads on stored features
_RETRIES = 3  # of a task whose worker died: it continues from the stage's last checkpoint


def run_on_ray(
    graph: Graph, root: Path, runs: str | Path, jobs: int | None = None, device: str = "auto", *, workers: int = 0
) -> Iterator[Progress]:
    """Train the missing stages, one task each; yield once before and after each.

    If the cluster has GPUs, stages share them as in `run_locally`, or more `jobs` than GPUs do. The data must be in the
    same folder on every machine, and the store on shared storage: a folder, or an address.
    """
    ray = _start(jobs or cores())
    try:
        cluster: Any = ray
        resources = cluster.cluster_resources()
        share = gpu_share(device, resources, jobs)
        # A process that has ended gives back the memory of its GPU.
        remote: Any = ray.remote(max_retries=_RETRIES, num_cpus=1, max_calls=1 if share else 0)
        task, root = remote(train_one), root.resolve()
        progress = Progress(graph, dict.fromkeys(graph.missing(runs)))
        yield progress
        tasks: dict[object, str] = {}
        runs = runs if is_url(runs) else local_path(runs).resolve()
        given = {name: (graph.needed_by[name], name, root, runs) for name in progress.waiting}

        def measure(name: str) -> tuple[int, int] | None:
            found = remote(memory_of_step).options(num_gpus=1).remote(*given[name], tuple(IMPORTED))
            try:
                bytes_of_step: tuple[int, int] = ray.get(found)
                return bytes_of_step
            except ray.exceptions.RayError:  # out of memory; whatever else it is, the stage will say so
                return None

        shares = {name: min(share, _OF_HEADS) if graph.stages[name].on_features else share for name in progress.waiting}
        if share and jobs is None:
            most = most_on_a_gpu(int(resources.get("CPU", 0)), int(resources["GPU"]), workers)
            shares = {name: 1 / count for name, count in on_a_gpu(graph, progress.waiting, most, measure).items()}
        while progress.waiting or tasks:
            for name in progress.ready()[: (jobs or len(graph.stages)) - len(tasks)]:
                progress.start(name)
                mine = task.options(num_gpus=shares[name])
                tasks[mine.remote(*given[name], device=device, workers=workers, modules=tuple(IMPORTED))] = name
            finished, _ = ray.wait(list(tasks), num_returns=1)
            name = tasks.pop(finished[0])
            try:
                ray.get(finished[0])
                progress.finish(name)
            except ray.exceptions.RayError as error:
                cause = getattr(error, "cause", None)  # of a task that raised
                progress.finish(name, str(cause or error).strip().splitlines()[-1])
            yield progress
    finally:
        ray.shutdown()


def _start(processes: int) -> Any:
    """Connect to the cluster at RAY_ADDRESS, or start one on this machine, which talks to nobody outside.

    Ray reports what it is used for, and asks the addresses at which clouds describe their machines where it is, even if
    its reports are turned off. The process that does so, beside the dashboard, is not started where its port is taken.
    It finds the address of this machine by a route to a public server, unless clusters are turned off.
    """
    address = os.environ.get("RAY_ADDRESS")
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    if not address:
        os.environ.setdefault("RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER", "0")
    try:
        import ray
    except ImportError:
        raise LecoError("--engine ray needs ray; install it with: pip install 'leco[ray]'") from None

    start = partial(ray.init, include_dashboard=False, log_to_driver=False)
    try:
        if address:
            start(address=address, logging_level=logging.ERROR)
        else:
            with socket.create_server(("127.0.0.1", 0)) as taken:
                port = taken.getsockname()[1]
                start(num_cpus=processes, dashboard_port=port, logging_level=logging.CRITICAL)
    except (OSError, RuntimeError, ValueError) as error:  # ConnectionError is an OSError
        where = f"the cluster at RAY_ADDRESS={address} cannot be reached" if address else "ray cannot be started"
        raise LecoError(f"{where}: {first_line(error)}") from None
    return ray


def gpu_share(device: str, resources: Mapping[str, float], jobs: int | None = None) -> float:
    """Return the share of a GPU that each of so many jobs has: a whole one, unless there are more jobs than GPUs.

    >>> gpus = {"CPU": 16.0, "GPU": 4.0}
    >>> gpu_share("auto", gpus), gpu_share("auto", gpus, jobs=8), gpu_share("cpu", gpus), gpu_share("auto", {"CPU": 16})
    (1.0, 0.5, 0.0, 0.0)
    """
    count = int(resources.get("GPU", 0))
    if device.startswith("cuda:"):
        raise LecoError(f"--device {device}: ray chooses the GPU of each training; use cuda or auto")
    if device == "cuda" and not count:
        raise LecoError("--device cuda: the cluster has no GPU; use auto")
    if device not in ("auto", "cuda") or not count:
        return 0.0
    return 1 / -(-(jobs or 1) // count)
