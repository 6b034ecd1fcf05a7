"""Files that a stage writes while it is trained: metrics and checkpoints."""

import math
import os
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import torch
from lightning_fabric import Fabric
from torch import Tensor

from leco.errors import LecoError
from leco.experiments.machine import Machine, Stopped
from leco.records import METRICS_LINES, Line
from leco.training.checkpoint import write_checkpoint
from leco.training.loggers import logging_to
from leco.training.loop import Report, Training


@contextmanager
def recording(training: Training, folder: Path | None, machine: Machine) -> Iterator[Callable[[Report], None]]:
    """Yield a function that notes metrics, and saves now and then; it stops the run after a step, when asked to."""
    fabric, save_every, saved = training.job.fabric, seconds_between_checkpoints(), time.monotonic()
    writes = folder if fabric.is_global_zero else None
    with ExitStack() as stack:
        note = None if writes is None else stack.enter_context(_noting(writes, training.step, machine))

        def record(report: Report) -> None:
            nonlocal saved
            if report.means and note is not None:
                note(Line(**{name: getattr(report, name) for name in Line.model_fields}))
            stop, due = machine.stop(), writes is not None and time.monotonic() - saved > save_every
            if fabric.world_size > 1:  # all do so after the same step, one at which the device is read anyway
                if training.unread:
                    return
                stop, due = _any_of(fabric, stop, due)
            if stop or due:
                checkpoint = training.checkpoint()  # each process may have a part of it
                if writes is not None:
                    write_checkpoint(writes, checkpoint)
                    machine.saved(writes)
                saved = time.monotonic()
            if stop:
                raise Stopped("stopped, and saved a checkpoint; the same call continues from it")

        yield record


def _any_of(fabric: Fabric, *mine: bool) -> list[bool]:
    """Whether any process says yes, to each of some questions."""
    found = fabric.all_reduce(torch.tensor(mine, dtype=torch.float32), reduce_op="sum")
    assert isinstance(found, Tensor)
    return [count > 0 for count in found.tolist()]


@contextmanager
def _noting(folder: Path, step: int, machine: Machine) -> Iterator[Callable[[Line], object]]:
    """Yield a function that appends lines to `metrics.jsonl`, which reports read, and passes them to the loggers."""
    path = folder / METRICS_LINES
    with path.open("a") as metrics, logging_to(machine.loggers, folder, step, machine.say) as log:

        def note(line: Line) -> None:
            try:
                metrics.write(line.model_dump_json() + "\n")
                metrics.flush()
            except OSError as error:
                raise LecoError(f"{path}: cannot be written: {error.strerror}") from None
            log(line.model_dump())

        yield note


def seconds_between_checkpoints() -> float:
    """Return the value of LECO_SAVE_EVERY, by default 30."""
    text = os.environ.get("LECO_SAVE_EVERY", "30")
    try:
        seconds = float(text)
    except ValueError:
        seconds = math.nan
    if not seconds >= 0:
        raise LecoError(f"LECO_SAVE_EVERY={text}: must be a number of seconds, such as 30")
    return seconds
