"""The device, precision and processes of a run, through Lightning Fabric."""

import ctypes
import importlib.util
import inspect
import logging
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache
from typing import Any, Literal, TypeVar

import torch
from lightning_fabric import Fabric
from lightning_fabric.accelerators.accelerator import Accelerator
from lightning_fabric.plugins import MixedPrecision
from lightning_fabric.strategies.ddp import DDPStrategy
from lightning_fabric.strategies.model_parallel import ModelParallelStrategy
from lightning_fabric.strategies.single_device import SingleDeviceStrategy
from torch import Tensor, nn
from torch.amp import GradScaler
from torch.nn.parallel import DistributedDataParallel

from leco.errors import LecoError, nearest
from leco.settings import Precision

_Item = TypeVar("_Item")
_KINDS = ("cpu", "cuda", "mps", "xpu", "npu", "hpu", "mtia", "maia", "privateuseone")  # of devices that torch may know
Computed = Literal["32-true", "32-tf32", "bf16-mixed", "16-mixed"]  # precisions, once `auto` is resolved


@lru_cache(maxsize=1)
def make_fabric(device: str = "auto", precision: Precision = "32-true", shard: bool = False) -> Fabric:
    """Return a Fabric for one device or, under `torchrun`, one device per process, which may `shard` networks."""
    chosen = resolve_device(device)
    computed = resolve_precision(chosen.type, precision)
    check_precision(chosen.type, computed)
    logging.getLogger("lightning_fabric").setLevel(logging.WARNING)
    processes, local = (int(os.environ.get(name, "1")) for name in ("WORLD_SIZE", "LOCAL_WORLD_SIZE"))
    numbered = ":" in str(chosen)
    if processes > 1 and (numbered or chosen.type not in ("cpu", "cuda")):
        raise LecoError(f"device: {device} is one device, for one process, not {processes}; use cpu or cuda")
    if chosen.type == "cuda":
        _allow_tf32(computed != "32-true")
    strategy: Any = "auto"
    if processes > 1 and shard:
        if computed == "16-mixed":
            raise LecoError("training.network.precision: 16-mixed cannot scale sharded gradients; use 32-true")
        strategy = ModelParallelStrategy(_shard, data_parallel_size=processes, tensor_parallel_size=1)
    elif processes > 1:
        strategy = DDPStrategy(**_without_broadcast())
    kind: Any = chosen.type
    if chosen.type not in ("cpu", "cuda"):
        kind = _Other()
        strategy = SingleDeviceStrategy(device=chosen)
    fabric = Fabric(
        accelerator=kind,
        devices=[chosen.index] if numbered and chosen.type == "cuda" else local,
        num_nodes=processes // local,
        precision="32-true" if computed == "32-tf32" else computed,
        strategy=strategy,
    )
    fabric.launch()
    return fabric


def _allow_tf32(allowed: bool) -> None:
    """Let GPUs round the factors of matrix products and convolutions; torch's default allows that of convolutions."""
    torch.set_float32_matmul_precision("high" if allowed else "highest")
    torch.backends.cudnn.allow_tf32 = allowed


def _shard(network: Any, mesh: Any) -> nn.Module:
    """Divide the parameters of an `AnyNetwork` among processes; those of a block are gathered while it computes."""
    from torch.distributed.fsdp import fully_shard

    for part in (*network.blocks, network):
        fully_shard(part, mesh=mesh["data_parallel"])
    divided: nn.Module = network
    return divided


class _Other(Accelerator):
    """An accelerator that torch knows, used by one process: nothing has to be set up."""

    def setup_device(self, device: torch.device) -> None:
        """Do nothing."""

    def teardown(self) -> None:
        """Do nothing."""

    @staticmethod
    def parse_devices(devices: Any) -> Any:
        """Leave the number of devices as it is."""
        return devices

    @staticmethod
    def get_parallel_devices(devices: Any) -> list[torch.device]:
        """Return the only one."""
        found = accelerator()
        return [torch.device("cpu") if found is None else found]

    @staticmethod
    def auto_device_count() -> int:
        """Return one."""
        return 1

    @staticmethod
    def is_available() -> bool:
        """Whether torch has found one."""
        return accelerator() is not None

    @staticmethod
    def name() -> str:
        """Return a name that Lightning does not use."""
        return "other"


def in_turn(fabric: Fabric, mine: Iterable[_Item]) -> Iterator[_Item]:
    """Yield the items of all processes, one of each in turn, in each of them."""
    if fabric.world_size == 1:
        yield from mine
        return
    mine = iter(mine)
    while True:
        found: list[_Item | None] = [None] * fabric.world_size
        torch.distributed.all_gather_object(found, next(mine, None))
        items = [item for item in found if item is not None]
        yield from items
        if not items:
            return


def _without_broadcast() -> dict[str, Any]:
    """Option that turns off broadcasting buffers: `share_statistics` already synchronises BatchNorm."""
    known = inspect.signature(DistributedDataParallel).parameters
    return {"forward_sync_buffers" if "forward_sync_buffers" in known else "broadcast_buffers": False}


def keep_memory() -> None:
    """Make the C library keep the memory of freed tensors for the next step.

    Otherwise it is returned to the system, and every page is zeroed again when it is reused. A step of WRN-28-2 is
    1.03 to 1.08 times as fast (docs/explanation/performance.md), at the same peak memory. The setting affects the whole
    process, so it is made in runs only, not when `leco` is used as a library. Only glibc has it.
    """
    if sys.platform != "linux" or not hasattr(library := ctypes.CDLL(None), "mallopt"):
        return
    trim_threshold, mmap_threshold = -1, -3  # constants of malloc.h
    library.mallopt(trim_threshold, 2**31 - 1)
    library.mallopt(mmap_threshold, 32 * 2**20)  # the maximum of glibc; larger tensors are still returned


def accelerator() -> torch.device | None:
    """The kind of accelerator that torch finds on this machine: cuda, mps, xpu and the like; None if there is none."""
    if torch.cuda.is_available():
        return torch.device("cuda")
    return torch.accelerator.current_accelerator() if torch.accelerator.is_available() else None


def resolve_device(name: str) -> torch.device:
    """Return the device that a name such as `auto`, `cpu`, `mps` or `cuda:1` means here; refuse one that is missing."""
    found = accelerator()
    here = found.type if found is not None else "cpu"
    if name == "auto":
        return torch.device(here)
    kind, colon, number = name.partition(":")
    if kind not in (here, "cpu"):
        if kind in _KINDS:
            raise LecoError(f"device: this machine has no {kind} device that torch can use; use {here} or auto")
        raise LecoError(f"{name!r} is not a device{nearest(name, dict.fromkeys(('auto', 'cpu', here, 'cuda', 'mps')))}")
    if not colon:
        return torch.device(kind)
    count = torch.cuda.device_count() if kind == "cuda" else 1 if kind == "cpu" else torch.accelerator.device_count()
    if not (number.isascii() and number.isdecimal() and len(number) < 4 and int(number) < count):
        has = "one" if count == 1 else f"{count}, {kind}:0 to {kind}:{count - 1}"
        raise LecoError(f"{name!r} is not a device: this machine has {has}")
    return torch.device(kind) if kind == "cpu" else torch.device(kind, int(number))


def resolve_precision(device: str, precision: Precision) -> Computed:
    """Return the precision that `auto` means on a device: what GPUs of that generation compute fastest."""
    if precision != "auto":
        return precision
    return gpu_precision(torch.cuda.get_device_capability()) if device == "cuda" else "32-true"


def gpu_precision(capability: tuple[int, int]) -> Computed:
    """Return the precision for a GPU of a compute capability.

    >>> gpu_precision((8, 0)), gpu_precision((7, 5)), gpu_precision((6, 1))  # Ampere, Turing, Pascal
    ('bf16-mixed', '16-mixed', '32-true')
    """
    return "bf16-mixed" if capability >= (8, 0) else "16-mixed" if capability >= (7, 0) else "32-true"


def precision_of(fabric: Fabric) -> str:
    """The precision that a fabric computes in."""
    return str(fabric.strategy.precision.precision)


def gradient_scaler(fabric: Fabric) -> GradScaler | None:
    """The scaler that keeps small gradients from vanishing in float16, as at the start of a run; None if unneeded."""
    plugin = fabric.strategy.precision
    scaler = plugin.scaler if isinstance(plugin, MixedPrecision) else None
    if scaler is not None:  # a fabric serves several runs
        scaler.load_state_dict(GradScaler(device=fabric.device.type).state_dict())
    return scaler


def check_precision(device: str, precision: Precision) -> None:
    """Refuse a precision that the device does not support, before it kills the process."""
    if precision == "16-mixed" and device != "cuda":
        raise LecoError(
            f"training.network.precision: 16-mixed is for GPUs with CUDA, not {device}; use 32-true, or auto"
        )
    if precision == "bf16-mixed" and device not in ("cpu", "cuda"):
        raise LecoError(f"training.network.precision: bf16-mixed is for cuda and cpu, not {device}; use auto")
    if precision == "bf16-mixed" and device == "cpu" and not bfloat16_works():
        raise LecoError("bfloat16 does not work on this CPU (a trial in a child process failed); use 32-true")


@lru_cache(maxsize=1)
def bfloat16_works() -> bool:
    """Try bfloat16 in a child process: some virtual machines report AMX, but raise an illegal instruction."""
    trial = (
        "import torch\n"
        "x = torch.randn(8, 16, 32, 32, requires_grad=True)\n"
        "with torch.autocast('cpu', dtype=torch.bfloat16):\n"
        "    y = torch.nn.Linear(32, 64)(torch.nn.Conv2d(16, 32, 3, padding=1)(x)).float().square().mean()\n"
        "y.backward()\n"
        "assert x.grad.isfinite().all()\n"
    )
    child = subprocess.run([sys.executable, "-c", trial], capture_output=True, check=False, timeout=120)
    return child.returncode == 0


def place(network: nn.Module, device: torch.device) -> nn.Module:
    """Move a network to a device, in the memory format `channels_last`, which makes convolutions faster.

    On a CPU, a step of WRN-16-1 is 1.2 times as fast, of WRN-28-2 1.1 times (docs/explanation/performance.md). On
    GPUs, where it was not measured, it is the format of the kernels for half precision. Apple's GPUs keep torch's own.
    """
    memory = torch.contiguous_format if device.type == "mps" else torch.channels_last
    placed: nn.Module = network.to(device=device, memory_format=memory)  # type: ignore[call-overload]
    return placed


def compiled(network: nn.Module, device: torch.device) -> Callable[..., Any]:
    """Return the network, compiled at its first passes; refuse if what compiles it is missing."""
    if device.type == "cpu" and not any(map(shutil.which, (os.environ.get("CXX", "g++"), "clang++"))):
        raise LecoError("training.network.compile: needs a C++ compiler; install g++ or clang, or set it to false")
    if device.type == "cuda" and importlib.util.find_spec("triton") is None:
        raise LecoError("training.network.compile: needs Triton; pip install triton, or set it to false")
    function: Callable[..., Any] = torch.compile(network)
    return function


def share_statistics(network: nn.Module, device: torch.device) -> nn.Module:
    """Synchronise BatchNorm over all processes, so that results equal those of one process."""
    if device.type == "cuda":
        from timm.layers.norm_act import convert_sync_batchnorm

        converted: nn.Module = convert_sync_batchnorm(network)  # type: ignore[no-untyped-call]
        return converted
    for name, child in network.named_children():
        if isinstance(child, nn.BatchNorm1d | nn.BatchNorm2d) and type(child).__module__ == nn.BatchNorm1d.__module__:
            network.add_module(name, SharedBatchNorm.of(child))
        elif isinstance(child, nn.modules.batchnorm._BatchNorm):
            kind = type(child).__name__
            raise LecoError(f"{kind} cannot be synchronised between processes on a CPU; train in one process")
        else:
            share_statistics(child, device)
    return network


class _OverAll(torch.autograd.Function):
    """Sum over all processes; its gradient is the sum of their gradients."""

    @staticmethod
    def forward(_: Any, values: Tensor) -> Tensor:
        total = values.clone()
        torch.distributed.all_reduce(total)
        return total

    @staticmethod
    def backward(_: Any, gradient: Tensor) -> Tensor:
        return _OverAll.forward(_, gradient.contiguous())


def over_all(values: Tensor) -> Tensor:
    """Sum over all processes; Fabric's own sum has a barrier before it, at which a GPU is waited for."""
    total: Tensor = _OverAll.apply(values)
    return total


class SharedBatchNorm(nn.modules.batchnorm._BatchNorm):
    """BatchNorm over the samples of all processes, on any device (torch's own needs GPUs)."""

    @classmethod
    def of(cls, norm: nn.modules.batchnorm._BatchNorm) -> "SharedBatchNorm":
        """Convert a layer."""
        shared = cls(norm.num_features, norm.eps, norm.momentum, norm.affine, norm.track_running_stats)
        shared.weight, shared.bias = norm.weight, norm.bias
        shared.running_mean, shared.running_var = norm.running_mean, norm.running_var
        shared.num_batches_tracked = norm.num_batches_tracked
        return shared.train(norm.training)

    def _check_input_dim(self, x: Tensor) -> None: ...

    def forward(self, inputs: Tensor) -> Tensor:
        """(n, c, ...) -> (n, c, ...), in at least float32."""
        if not self.training:
            return super().forward(inputs)
        x = inputs.to(torch.promote_types(inputs.dtype, torch.float32))
        over = [dim for dim in range(x.dim()) if dim != 1]
        shape = [1, -1] + [1] * (x.dim() - 2)
        count = over_all(x.new_tensor(x.numel() / x.shape[1]))
        mean = over_all(x.sum(dim=over)) / count
        centred = x - mean.view(shape)
        variance = over_all(centred.square().sum(dim=over)) / count
        assert self.running_mean is not None
        assert self.running_var is not None
        assert self.num_batches_tracked is not None
        with torch.no_grad():
            momentum = 0.0 if self.momentum is None else self.momentum
            self.num_batches_tracked.add_(1)
            self.running_mean.lerp_(mean, momentum)
            self.running_var.lerp_(variance * count / (count - 1), momentum)
        normalised = centred * (variance.view(shape) + self.eps).rsqrt()
        if self.affine:
            normalised = normalised * self.weight.view(shape) + self.bias.view(shape)
        return normalised.to(inputs.dtype)


def check_shares(batch_size: int) -> None:
    """Refuse a batch size that cannot be divided equally among the processes of `torchrun`."""
    processes = int(os.environ.get("WORLD_SIZE", "1"))
    if batch_size // 2 % processes:
        fits = -(-batch_size // (2 * processes)) * 2 * processes
        raise LecoError(
            f"training.batches.size: half of {batch_size} cannot be divided among {processes} processes; use {fits}"
        )


def seed_dropout(seed: int) -> None:
    """Seed torch as `torch.manual_seed` does, without the half a millisecond that its bookkeeping takes."""
    torch.default_generator.manual_seed(seed)
    if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        torch.cuda.manual_seed_all(seed)
    elif (seed_other := _seed_of_other()) is not None:
        seed_other(seed)


@lru_cache(maxsize=1)
def _seed_of_other() -> Callable[[int], object] | None:
    """The function that seeds an accelerator other than CUDA."""
    found = accelerator()
    return None if found is None or found.type == "cuda" else getattr(torch, found.type).manual_seed
