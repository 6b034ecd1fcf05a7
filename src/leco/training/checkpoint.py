"""Checkpoints that survive a process killed while writing: the last complete one is always kept.

Tensors are safetensors, the rest is JSON; nothing is pickled.
"""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load as load_tensors
from safetensors.torch import save as save_tensors
from torch import Tensor

from leco.io import checkpoint_step, safetensors_metadata, write_bytes

_NAMES = ("checkpoint-a", "checkpoint-b")  # written in turn, so that one of them is always complete


@dataclass(frozen=True, eq=False)
class Checkpoint:
    """The state of a run after some steps."""

    step: int
    tensors: dict[str, Tensor]
    notes: dict[str, Any]  # JSON-compatible


def write_checkpoint(folder: Path, checkpoint: Checkpoint) -> None:
    """Write over the older of the two checkpoints, atomically."""
    steps = {name: checkpoint_step(folder / f"{name}.safetensors") for name in _NAMES}
    name = min(_NAMES, key=lambda name: steps[name])
    meta = {"leco": json.dumps({"step": checkpoint.step, "notes": checkpoint.notes})}
    tensors = {key: tensor.detach().cpu().contiguous() for key, tensor in checkpoint.tensors.items()}
    write_bytes(folder / f"{name}.safetensors", save_tensors(tensors, metadata=meta))


def read_checkpoint(folder: Path) -> tuple[Checkpoint | None, list[str]]:
    """Return the newest readable checkpoint, and a message for each unreadable one."""
    found: list[Checkpoint] = []
    problems: list[str] = []
    for name in _NAMES:
        path = folder / f"{name}.safetensors"
        if not path.is_file():
            continue
        try:
            raw = path.read_bytes()
            meta = json.loads(safetensors_metadata(path)["leco"])
            found.append(Checkpoint(int(meta["step"]), load_tensors(raw), meta["notes"]))
        except (SafetensorError, OSError, KeyError, TypeError, ValueError) as error:
            problems.append(f"{path}: cannot be read ({error})")
    return max(found, key=lambda c: c.step, default=None), problems
