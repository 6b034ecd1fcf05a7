"""Processes that train stages of a grid: a pool for each GPU, or one for the CPU."""

import multiprocessing
import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import ExitStack, contextmanager
from typing import Any

import torch

from leco.devices import resolve_device


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


class Pool:
    """Processes that share a GPU, or the CPU: one for each seat. A task takes one seat or several."""

    def __init__(self, card: str, seats: int, threads: int) -> None:
        self.card, self.seats, self.threads = card, seats, threads
        self.tasks: dict[Future[None], tuple[str, int]] = {}  # name and seats of each
        self._executor = processes(seats, threads, card)

    @property
    def free(self) -> int:
        """Number of seats that no task has taken."""
        return self.seats - sum(taken for _, taken in self.tasks.values())

    def start(self, name: str, taken: int, call: Callable[..., None], *arguments: Any) -> None:
        """Start a task in one of the processes; if one of them was just killed, the task has failed, as all others."""
        try:
            task = self._executor.submit(call, *arguments)
        except BrokenProcessPool as error:
            task = Future()
            task.set_exception(error)
        self.tasks[task] = (name, taken)

    def restart(self) -> list[str]:
        """Replace the processes after one of them was killed, and with it the pool; return the tasks that it had."""
        lost = [name for name, _ in self.tasks.values()]
        self.tasks.clear()
        self.close()
        self._executor = processes(self.seats, self.threads, self.card)
        return lost

    def close(self) -> None:
        """Wait until all processes have ended."""
        self._executor.shutdown()


@contextmanager
def pools(cards: Sequence[str], seats: int) -> Iterator[list[Pool]]:
    """Deal so many seats to cards as evenly as possible, each with a pool; the cores are shared by all seats."""
    threads = max(1, cores() // seats)
    with ExitStack() as stack:
        found = []
        for number, card in enumerate(cards[:seats]):
            found.append(Pool(card, len(range(number, seats, len(cards))), threads))
            stack.callback(found[-1].close)
        try:
            yield found
        except SystemExit:  # this process is asked to end: unlike of Ctrl-C, the others do not hear of it
            for child in multiprocessing.active_children():
                child.terminate()
            raise


def ended(found: Iterable[Pool]) -> list[tuple[Pool, Future[None]]]:
    """Wait until tasks have ended; return them with their pools."""
    owners = {task: pool for pool in found for task in pool.tasks}
    return [(owners[task], task) for task in wait(owners, return_when=FIRST_COMPLETED).done]


def processes(count: int, threads: int, card: str = "") -> ProcessPoolExecutor:
    """Return up to so many processes, each with its threads and, if a card is named, with that GPU alone."""
    context = multiprocessing.get_context("spawn")  # torch's threads do not survive a fork
    return ProcessPoolExecutor(count, context, initializer=_enter, initargs=(threads, os.getpid(), card))


def _enter(threads: int, parent: int, card: str) -> None:
    torch.set_num_threads(threads)
    if card:
        os.environ["CUDA_VISIBLE_DEVICES"] = card  # read when CUDA is first used

    def leave_with_parent() -> None:
        while os.getppid() == parent:
            time.sleep(1)
        os._exit(1)  # the parent was killed

    threading.Thread(target=leave_with_parent, daemon=True).start()
