"""A GPU that is not there: every tensor on it has a shape and a device, but no values.

With torch's FakeTensorMode, code runs as it would on a GPU, without computing anything. Counted is what a CPU would
have to wait for: values that are read (`item`, `tolist`, `bool`, `cpu`), results whose shape depends on values
(`nonzero`, masks as indices, `bincount`, `unique`), and copies to the device that block. Tensors on two devices in one
operation raise an error, as on a GPU. Tensors on the CPU are real.

Streams are pretended, too. Noted are races: a stream that uses a tensor of another one without waiting for it, or
without having it recorded, so that its memory could be reused too early.
"""

import functools
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Any
from unittest import mock

import torch
from lightning_fabric import Fabric
from torch import Tensor, nn
from torch._subclasses import fake_tensor
from torch._subclasses.fake_tensor import DataDependentOutputException, DynamicOutputShapeException, FakeTensor
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._pytree import tree_leaves

GPU, _META = torch.device("cuda:0"), torch.device("meta")
_COPIES = ("aten::_to_copy", "aten::copy_")
_NO_KERNELS = ("aten::empty", "aten::lift", "aten::detach", "aten::alias", "aten::_reshape_alias", "prim::")


class PretendedStream:
    """Operations that are done one after the other, and those of other streams that they wait for."""

    def __init__(self, _: torch.device = GPU) -> None:
        self.reached: dict[PretendedStream, int] = {}  # operations of each stream that are done before the next one

    def wait_stream(self, other: "PretendedStream") -> None:
        """Wait for what other streams have been given so far."""
        for stream, time in other.reached.items():
            self.reached[stream] = max(time, self.reached.get(stream, 0))


def _memory(tensor: Tensor) -> StorageWeakRef:
    """The memory of a tensor, which views share."""
    return StorageWeakRef(tensor.untyped_storage())


class PretendedGPU(fake_tensor.FakeTensorMode):
    """Runs what has to do with the GPU without values, and all else as usual."""

    def __init__(self) -> None:
        super().__init__(allow_non_fake_inputs=True)
        self._inside = False
        self.waits: list[str] = []  # what the CPU waited for, and where
        self.kernels: list[str] = []  # operations that were launched on the device
        self.has_float64 = True
        self.stream = PretendedStream()  # the current one
        self.races: list[str] = []
        self.copies: list[tuple[PretendedStream, torch.Size]] = []  # to the device
        self.written: dict[StorageWeakRef, tuple[PretendedStream, int]] = {}  # where and when, by memory
        self.recorded: dict[StorageWeakRef, set[PretendedStream]] = {}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = dict(kwargs or {})
        if kwargs.get("device") is not None and torch.device(kwargs["device"]).type in ("meta", "cuda"):
            kwargs["device"] = GPU  # autograd takes the tensors for those of torch's meta device
        tensors = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, Tensor)]
        ours = [tensor for tensor in tensors if isinstance(tensor, FakeTensor)]
        if not ours and kwargs.get("device") != GPU:
            return func(*args, **kwargs)
        name = func._schema.name
        if name in _COPIES:
            found = self._copied(name, args, kwargs, tensors)
            if found is not None:
                return found
        if not self._inside:  # an operation may consist of others, which are one kernel on a GPU
            self._count(func)
        outside, self._inside = self._inside, True
        try:
            found = super().__torch_dispatch__(func, types, args, kwargs)
            for leaf in () if self.has_float64 else tree_leaves(found):
                if isinstance(leaf, FakeTensor) and leaf.dtype == torch.float64:
                    raise TypeError("cannot convert to float64, which the device does not support")  # as of MPS
            self._note_races(name, ours, [leaf for leaf in tree_leaves(found) if isinstance(leaf, FakeTensor)])
            return found
        except (DataDependentOutputException, DynamicOutputShapeException):
            if not outside:
                self._wait(name)
            raise
        finally:
            self._inside = outside

    def _copied(self, name: str, args: Any, kwargs: Any, tensors: list[Tensor]) -> Tensor | None:
        """Note copies that block; one from the GPU has no values, so these are zeros."""
        source, target = tensors[-1], kwargs.get("device") if name == "aten::_to_copy" else tensors[0].device
        if isinstance(source, FakeTensor) and target is not None and torch.device(target).type == "cpu":
            self._wait("a copy to the CPU")
            return torch.zeros(source.shape, dtype=kwargs.get("dtype") or source.dtype)
        blocks = not kwargs.get("non_blocking", args[2] if name == "aten::copy_" and len(args) > 2 else False)
        if not isinstance(source, FakeTensor) and source.dim():
            self.copies.append((self.stream, source.shape))
            if blocks:
                self._wait("a copy to the device that blocks")
        return None

    def _note_races(self, name: str, used: list[FakeTensor], returned: list[FakeTensor]) -> None:
        """Compare when the tensors of an operation were written with what the current stream has waited for."""
        now = self.stream
        for tensor in used:
            place = _memory(tensor)
            stream, time = self.written.get(place, (now, 0))
            if now.reached.get(stream, 0) < time:
                self.races.append(f"{name} does not wait for a tensor of another stream")
            if stream is not now and now not in self.recorded.get(place, ()):
                self.races.append(f"{name} uses memory that another stream may reuse")
        now.reached[now] = now.reached.get(now, 0) + 1
        for place in {*map(_memory, returned)} - {*map(_memory, used)}:
            self.written[place] = (now, now.reached[now])

    def _wait(self, what: str) -> None:
        frames = [f for f in traceback.extract_stack() if "/leco/" in f.filename or "/tests/" in f.filename]
        places = [f"{f.filename.rpartition('/')[2]}:{f.lineno}" for f in frames if f.filename != __file__]
        self.waits.append(f"{what} at {' > '.join(places[-3:])}")

    def _count(self, func: Any) -> None:
        returned = [result.alias_info for result in func._schema.returns]
        is_view = any(alias is not None and not alias.is_write for alias in returned)
        if not is_view and not func._schema.name.startswith(_NO_KERNELS):
            self.kernels.append(func._schema.name)


@contextmanager
def pretended_gpu() -> Iterator[PretendedGPU]:
    """Pretend that there is a GPU; caches of tensors are emptied before and afterwards.

    Autograd looks at devices in C++, where a GPU must exist: there, the tensors say that they are on the meta device.
    """
    dispatch = FakeTensor.__dict__["__torch_dispatch__"].__func__

    def on_meta(kind: Any, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is torch.ops.prim.device.default:
            return _META
        return dispatch(kind, func, types, args, kwargs)

    def copied(self: FakeTensor, memo: dict[int, Any]) -> Tensor:
        copy = self.detach().clone()
        memo[id(self)] = nn.Parameter(copy, self.requires_grad) if isinstance(self, nn.Parameter) else copy
        return memo[id(self)]

    def current(_: torch.device) -> PretendedStream:
        return gpu.stream

    @contextmanager
    def on(stream: PretendedStream) -> Iterator[None]:
        before, gpu.stream = gpu.stream, stream
        yield
        gpu.stream = before

    def record(self: FakeTensor, stream: PretendedStream) -> None:
        gpu.recorded.setdefault(_memory(self), set()).add(stream)

    handlers = {torch.ops.prim.device.default: lambda _: _META}
    _empty_caches()
    with (
        mock.patch.object(FakeTensor, "__torch_dispatch__", classmethod(on_meta)),
        mock.patch.object(FakeTensor, "__deepcopy__", copied, create=True),
        mock.patch.object(FakeTensor, "record_stream", record, create=True),
        mock.patch("torch.cuda.Stream", PretendedStream),
        mock.patch("torch.cuda.current_stream", current),
        mock.patch("torch.cuda.stream", on),
        mock.patch.dict(fake_tensor._DISPATCH_META_HANDLERS, handlers),
        PretendedGPU() as gpu,
    ):
        yield gpu
    _empty_caches()


def _empty_caches() -> None:
    for name, module in list(sys.modules.items()):
        if name.startswith("leco"):
            for value in list(vars(module).values()):
                if isinstance(value, functools._lru_cache_wrapper):
                    value.cache_clear()


class PretendedFabric:
    """What a training asks of Lightning Fabric, on the pretended GPU."""

    device, world_size, global_rank, is_global_zero = GPU, 1, 0, True
    strategy = Fabric(accelerator="cpu", devices=1).strategy

    def autocast(self) -> Any:
        return nullcontext()

    def setup_module(self, network: nn.Module) -> nn.Module:
        return network

    def setup_optimizers(self, optimiser: torch.optim.Optimizer) -> torch.optim.Optimizer:
        return optimiser

    def backward(self, loss: Tensor) -> None:
        loss.backward()  # type: ignore[no-untyped-call]

    def clip_gradients(
        self, network: nn.Module, _: torch.optim.Optimizer, max_norm: float, error_if_nonfinite: bool = True
    ) -> None:
        nn.utils.clip_grad_norm_(network.parameters(), max_norm, error_if_nonfinite=error_if_nonfinite)

    def all_reduce(self, values: Tensor, reduce_op: str = "sum") -> Tensor:
        return values.to(self.device)  # as Fabric does
