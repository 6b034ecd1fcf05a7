"""Event files for TensorBoard, beside the metrics of a stage, if LECO_TENSORBOARD=1 asks for them."""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from leco.errors import LecoError


@contextmanager
def events(folder: Path, step: int) -> Iterator[Callable[[dict[str, Any]], None]]:
    """What to call with each line of metrics; steps after `step`, which a killed run made, are forgotten."""
    if os.environ.get("LECO_TENSORBOARD", "0") in ("", "0"):
        yield lambda _: None
        return
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        raise LecoError(
            "LECO_TENSORBOARD: needs tensorboard; install it with: pip install 'leco[tensorboard]'"
        ) from None

    with SummaryWriter(folder / "tensorboard", purge_step=step + 1) as writer:

        def add(line: dict[str, Any]) -> None:
            values = {"score": line["score"], "learning rate": line["learning_rate"], **line["means"]}
            for name, value in values.items():
                if value is not None:
                    writer.add_scalar(name, value, line["step"])

        yield add
