"""Stages as tasks of a Ray cluster: a running one (RAY_ADDRESS), or a new one on this machine."""

import logging
import os
import socket
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from leco.errors import LecoError, first_line
from leco.experiments.grid import Graph, Progress, cores, train_one
from leco.experiments.remote import is_url, local_path
from leco.registry import IMPORTED

_RETRIES = 3  # of a task whose worker died: it continues from the stage's last checkpoint


def run_on_ray(
    graph: Graph, root: Path, runs: str | Path, jobs: int | None = None, device: str = "auto", *, workers: int = 0
) -> Iterator[Progress]:
    """Train the missing stages, one task each, on a GPU each if the cluster has any; yield once before and after each.

    The data must be in the same folder on every machine, and the store on shared storage: a folder, or an address.
    """
    ray = _start(jobs or cores())
    try:
        cluster: Any = ray
        cards = num_gpus(device, cluster.cluster_resources())
        remote: Any = ray.remote(max_retries=_RETRIES, num_cpus=1, num_gpus=cards)
        task = remote(train_one)
        progress = Progress(graph, dict.fromkeys(graph.missing(runs)))
        yield progress
        tasks: dict[object, str] = {}
        root, runs = root.resolve(), runs if is_url(runs) else local_path(runs).resolve()
        while progress.waiting or tasks:
            for name in progress.start(len(progress.waiting)):
                planned = (graph.needed_by[name], name, root, runs)
                tasks[task.remote(*planned, device=device, workers=workers, modules=tuple(IMPORTED))] = name
            finished, _ = ray.wait(list(tasks), num_returns=1)
            name = tasks.pop(finished[0])
            try:
                ray.get(finished[0])
                progress.finish(name)
            except ray.exceptions.RayError as error:
                progress.finish(name, str(error).strip().splitlines()[-1])
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


def num_gpus(device: str, resources: Mapping[str, float]) -> int:
    """Return the number of GPUs of each task: one if the cluster has any, unless the device is `cpu`.

    >>> num_gpus("auto", {"CPU": 16.0, "GPU": 4.0}), num_gpus("auto", {"CPU": 16.0}), num_gpus("cpu", {"GPU": 4.0})
    (1, 0, 0)
    """
    if device.startswith("cuda:"):
        raise LecoError(f"--device {device}: ray chooses the GPU of each training; use cuda or auto")
    return int(device == "cuda" or (device == "auto" and resources.get("GPU", 0) >= 1))
