"""Checkpoints that survive a process killed while writing: the last complete one is always kept.

Tensors are safetensors, the rest is a typed record; nothing is pickled.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from safetensors import SafetensorError
from safetensors.torch import load_file
from safetensors.torch import save as save_tensors
from torch import Tensor

from leco.errors import LecoError
from leco.io import write_bytes
from leco.models.network import digest_tensors
from leco.records import FORMAT, Header, Notes, checkpoint_step, read_header

_NAMES = ("checkpoint-a", "checkpoint-b")  # written in turn, so that one of them is always complete


@dataclass(frozen=True, eq=False)
class Checkpoint:
    """The state of a run after some steps."""

    step: int
    tensors: dict[str, Tensor]
    notes: Notes


def write_checkpoint(folder: Path, checkpoint: Checkpoint) -> None:
    """Write over the older of the two checkpoints, atomically."""
    steps = {name: checkpoint_step(folder / f"{name}.safetensors") for name in _NAMES}
    name = min(_NAMES, key=lambda name: steps[name])
    tensors = {key: tensor.detach().cpu().contiguous() for key, tensor in checkpoint.tensors.items()}
    header = Header(format=FORMAT, step=checkpoint.step, digest=_digest(tensors), notes=checkpoint.notes)
    write_bytes(folder / f"{name}.safetensors", save_tensors(tensors, metadata={"leco": header.model_dump_json()}))


def read_checkpoint(
    folder: Path, misfit: Callable[[Checkpoint], str | None] = lambda _: None
) -> tuple[Checkpoint | None, list[str]]:
    """Return the newest checkpoint that can be read and has no `misfit`, and a message for each of the others."""
    found: list[Checkpoint] = []
    problems: list[str] = []
    for name in _NAMES:
        path = folder / f"{name}.safetensors"
        if not path.is_file():
            continue
        try:
            header = read_header(path)
            checkpoint = Checkpoint(header.step, load_file(path), header.notes)
            if _digest(checkpoint.tensors) != header.digest:
                raise ValueError("it changed since it was written")
            if problem := misfit(checkpoint):
                raise ValueError(f"it does not fit: {problem}")
            found.append(checkpoint)
        except LecoError as error:
            problems.append(str(error))
        except (SafetensorError, OSError, ValueError, MemoryError, RecursionError) as error:
            problems.append(f"{path}: cannot be used ({error})")
    return max(found, key=lambda c: c.step, default=None), problems


def _digest(tensors: Mapping[str, Tensor]) -> str:
    return digest_tensors(dict(sorted(tensors.items())))  # files have an order of their own


def misfit(
    tensors: Mapping[str, Tensor],
    networks: Mapping[str, Mapping[str, Tensor]],
    parameters: Mapping[str, tuple[int, ...]],
) -> str | None:
    """Say which tensor of a checkpoint fits neither a network nor, by the shapes of its parameters, an optimiser."""
    needed = {f"{part}/{name}": tensor for part, state in networks.items() for name, tensor in state.items()}
    for name in [*needed, *tensors]:
        found, wanted = tensors.get(name), needed.get(name)
        if found is None:
            return f"{name} is missing"
        part, _, kept = name.partition("/")
        sizes = parameters.get(kept.rpartition("/")[0]) if part == "optimiser" else None
        if wanted is None and sizes is None:
            return f"{name} is unknown"
        as_wanted = wanted is not None and (found.dtype, found.shape) == (wanted.dtype, wanted.shape)
        if not as_wanted and (sizes is None or not {*found.shape} <= {1, *sizes}):
            return f"{name} is {found.dtype} of shape {tuple(found.shape)}"
    return None
