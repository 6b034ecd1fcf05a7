"""What a stage writes while it is trained: metrics and checkpoints."""

import json
import math
import os
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import torch
from lightning_fabric import Fabric
from torch import Tensor

from leco.errors import LecoError
from leco.experiments.machine import Machine, Stopped
from leco.io import write_bytes
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
                line = {"step": report.step, "score": report.score, "learning_rate": report.learning_rate}
                note(line | {"means": report.means})
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
def _noting(folder: Path, step: int, machine: Machine) -> Iterator[Callable[[dict[str, Any]], object]]:
    """Yield a function that appends lines to `metrics.jsonl`, which reports read, and passes them to the loggers."""
    path = folder / "metrics.jsonl"
    with path.open("a") as metrics, logging_to(machine.loggers, folder, step, machine.say) as log:

        def note(line: dict[str, Any]) -> None:
            try:
                metrics.write(json.dumps(line) + "\n")
                metrics.flush()
            except OSError as error:
                raise LecoError(f"{path}: cannot be written: {error.strerror}") from None
            log(line)

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


def forget_after(metrics: Path, step: int) -> None:
    """Drop the lines that a killed run wrote after its last checkpoint: those steps are repeated."""
    if metrics.is_file():
        kept = [line for line in metrics.read_bytes().splitlines(keepends=True) if 0 <= _step(line) <= step]
        write_bytes(metrics, b"".join(kept))


def _step(line: bytes) -> int:
    """Return the step of a line of metrics, -1 for an incomplete line."""
    try:
        return int(json.loads(line)["step"]) if line.endswith(b"\n") else -1
    except (ValueError, KeyError, TypeError):
        return -1
