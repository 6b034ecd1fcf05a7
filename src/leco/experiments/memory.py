"""Memory that a training step takes, from the tensors of small steps, and the batch that fits into it."""

import os
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from leco.dataset import Periods
from leco.devices import make_fabric, resolve_device
from leco.errors import LecoError
from leco.experiments.run import build_network, make_job
from leco.experiments.stages import Plan, Stage
from leco.models.lora import add_adapters
from leco.models.timm_models import available_memory
from leco.text import size as in_bytes
from leco.training.loop import Training, make_views

_SIZES = (4, 8)  # of the small batches
_FEW = 16  # samples in a batch of which one small batch is a good part
_USUAL = 1_024  # samples in a batch, or a part of it
_SAFE = 0.25  # of the free memory: what a batch takes at least, if it is not measured
_COPIES = 4  # of the weights: network, average, best one and gradients
_HEADROOM = 1.4  # gradients of activations; steps took 0.8 to 1.2 times the rest (docs/lab-book/log.md)


@dataclass(frozen=True)
class StepMemory:
    """Bytes that a step takes on its device."""

    weights: int  # of network, average and best one, teacher, gradients, and what the optimiser keeps
    sample: int  # kept of a sample until the backward pass
    size: int  # samples in a batch
    available: int | None  # bytes, before anything is there; None if unknown

    def of(self, size: int) -> int:
        """Bytes of a step whose parts have so many samples."""
        return int(_HEADROOM * (self.weights + size * self.sample))

    @property
    def largest(self) -> int | None:
        """The largest batch that fits as a whole, an even number; 0 if none does, None if that is unknown."""
        if self.available is None:
            return None
        fitting = (self.available / _HEADROOM - self.weights) / max(self.sample, 1)
        return max(0, int(fitting) // 2 * 2)

    @property
    def problem(self) -> str | None:
        """What is wrong with the size of the batch, and a remedy; None if it fits."""
        if self.available is None or self.parts == 1:
            return None
        taken, free = in_bytes(self.of(self.size)), in_bytes(self.available)
        needs = f"a batch of {self.size:,} takes about {taken}, but {free} are free"
        if self.parts is None:
            return f"{needs}, which is not enough for two samples; use a smaller backbone or smaller inputs"
        ways = f"set training.batches.parts to {self.parts}, or training.network.recompute to true"
        return f"{needs}; {ways}; the largest batch that fits as a whole is {self.largest:,}"

    @property
    def parts(self) -> int | None:
        """Number of parts that the batch has to be divided into; None if not even one sample of each kind fits."""
        if self.largest is None or self.largest >= self.size:
            return 1
        return -(-self.size // self.largest) if self.largest else None


def step_memory(stage: Stage, periods: Periods, device: str) -> StepMemory:
    """Count the tensors that small steps keep for the backward pass; the rest follows from the model's size."""
    settings = stage.training
    fabric = make_fabric(device, settings.network.precision)
    if fabric.device.type == "cuda":
        available: int | None = torch.cuda.mem_get_info(fabric.device)[0]
    else:
        available = available_memory()
    kept, weights = [], 0
    sizes = _SIZES if settings.batches.size >= _FEW else (min(settings.batches.size, _SIZES[0]),)
    for size in sizes:
        network = build_network(stage, periods)
        add_adapters(network.backbone, settings.network.lora, periods.shape)
        teacher = None if stage.teacher is None else build_network(stage.teacher, periods)
        training = Training(make_job(_small(stage, size), periods, 0, fabric, teacher), network, None)
        kept.append(_kept_by_a_step(training))
        state = [
            value for held in training.state.state.values() for value in held.values() if isinstance(value, Tensor)
        ]
        trained = [parameter for parameter in network.parameters() if parameter.requires_grad]
        copies = [network, training.average.model, training.average.model, *([teacher] if teacher else [])]
        weights = _bytes([*state, *trained, *(tensor for copy in copies for tensor in copy.state_dict().values())])
    sample = max(0, kept[-1] - kept[0]) // (sizes[-1] - sizes[0]) if len(sizes) > 1 else kept[0] // sizes[0]
    return StepMemory(weights, sample, settings.batches.size, available)


def least_memory(stage: Stage, periods: Periods) -> StepMemory | None:
    """Return what a step on the CPU takes at least: the weights, and what one pass of the network keeps of a sample.

    Nothing is computed and no memory taken, so that it is known within a moment; None if it cannot be told. Networks
    that recompute activations, or are trained in part, keep less.
    """
    settings = stage.training.network
    job = make_job(_small(stage, 2), periods, 0, make_fabric("cpu", settings.precision), None)
    view = make_views(job, job.steps[0], 0)["new", "strong"]
    try:
        with torch.device("meta"):
            network = build_network(stage, periods).train()
            held = {id(tensor): tensor for tensor in network.state_dict(keep_vars=True).values()}
            kept: dict[int, Tensor] = {}

            def note(tensor: Tensor) -> Tensor:
                kept[tensor.untyped_storage()._cdata] = tensor
                return tensor

            with torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor):
                network(torch.empty(2, *view.shape[1:], dtype=view.dtype))
    except Exception:  # whatever code of a model raises that needs real values
        return None
    weights = {tensor.untyped_storage()._cdata for tensor in held.values()}
    sample = sum(tensor.untyped_storage().nbytes() for place, tensor in kept.items() if place not in weights)
    sample //= 2 if settings.precision == "32-true" else 4
    return StepMemory(_COPIES * _bytes(held.values()), sample, stage.training.batches.size, available_memory())


def check_batches(plan: Plan, periods: Periods, device: str) -> None:
    """Refuse a batch that does not fit into the memory, and name the largest one that does.

    A step that runs out of a GPU's memory is repeated with less, so only large batches are looked at there. On the CPU,
    the system may end the process instead. The memory is measured where the least that is needed comes near.
    Processes of `torchrun` look at nothing: they would have to agree on whether to measure.
    """
    networks = [stage for stage in plan.stages if not stage.on_features]
    if not networks or int(os.environ.get("WORLD_SIZE", "1")) > 1:
        return
    stage = max(networks, key=lambda stage: stage.training.batches.size)
    size = stage.training.batches.size // stage.training.batches.parts
    is_near = size > _USUAL
    if resolve_device(device).type == "cpu" and (least := least_memory(stage, periods)) is not None:
        network = stage.training.network
        if not (network.recompute or network.lora or network.frozen_layers):
            _refuse(replace(least, size=size))
        is_near = is_near or (least.available is not None and least.of(size) > _SAFE * least.available)
    if is_near:
        _refuse(replace(step_memory(stage, periods, device), size=size))


def _refuse(memory: StepMemory) -> None:
    if memory.problem is not None:
        raise LecoError(f"training.batches.size: {memory.problem}")


def _small(stage: Stage, size: int) -> Stage:
    """Return the same stage with endless steps of a few samples."""
    batches = {"size": size, "steps": 10**9, "evaluate_every": 10**9, "parts": 1}
    plain: dict[str, Any] = {"transfer": {"head_steps": 0}, "network": {"compile": False}}
    return replace(stage, training=stage.training.change(batches=batches, **plain))


def _kept_by_a_step(training: Training) -> int:
    """Bytes of all tensors that are kept for the backward pass, other than weights."""
    networks: list[nn.Module] = [training.network, *([training.job.teacher] if training.job.teacher else [])]
    # Held, as the teacher's may be copied to another format, and activations must not get the places of the old ones.
    weights = {_place(tensor): tensor for network in networks for tensor in network.state_dict().values()}
    kept: dict[int, int] = {}

    def note(tensor: Tensor) -> Tensor:
        if _place(tensor) not in weights:
            kept[_place(tensor)] = tensor.untyped_storage().nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor):
        next(training.run())
    return sum(kept.values())


def _place(tensor: Tensor) -> int:
    return tensor.untyped_storage().data_ptr()


def _bytes(tensors: Iterable[Tensor]) -> int:
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors)
