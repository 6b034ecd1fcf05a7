"""Copies of tensors to a device, without waiting for it."""

from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache
from typing import TypeVar

import torch
from torch import Tensor

_Item = TypeVar("_Item")
_WITHOUT_FLOAT64 = {"mps"}


def has_float64(device: torch.device) -> bool:
    """Whether a device computes in 64 bits; Apple's GPUs do not."""
    return device.type not in _WITHOUT_FLOAT64


def widest(device: torch.device) -> torch.dtype:
    """The floats with the most bits that a device has."""
    return torch.float64 if has_float64(device) else torch.float32


def send(tensor: Tensor, device: torch.device) -> Tensor:
    """Copy a tensor to a device without waiting until that is done; CUDA reads from page-locked memory meanwhile.

    Only CUDA keeps the order of such copies, so that others wait. Apple's GPUs have floats of 32 bits at most.
    """
    if tensor.device == device:
        return tensor
    locked = tensor.device.type == "cpu" and device.type == "cuda" and torch.cuda.is_available()
    if tensor.dtype == torch.float64 and not has_float64(device):
        tensor = tensor.float()
    return (tensor.pin_memory() if locked else tensor).to(device, non_blocking=device.type == "cuda")


def sent_ahead(
    items: Iterable[_Item], device: torch.device, move: Callable[[_Item, Callable[[Tensor], Tensor]], _Item]
) -> Iterator[_Item]:
    """Yield items, whose tensors `move` sends to a device; CUDA copies the next one while it computes with this one.

    Such copies are on a stream of their own: on that of the kernels, they would wait for those queued before.
    """
    if device.type != "cuda":
        yield from (move(item, lambda tensor: send(tensor, device)) for item in items)
        return
    kernels = torch.cuda.current_stream(device)
    copies = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]

    def copy(tensor: Tensor) -> Tensor:
        with torch.cuda.stream(copies):
            copied = send(tensor, device)
        copied.record_stream(kernels)  # its memory is not reused before the kernels that read it are done
        return copied

    ahead: tuple[_Item, ...] = ()
    for item in items:
        kernels.wait_stream(copies)  # until what is yielded now has arrived
        following = move(item, copy)
        yield from ahead
        ahead = (following,)
    kernels.wait_stream(copies)
    yield from ahead


@lru_cache(maxsize=256)
def constant(tensor: Tensor, device: torch.device) -> Tensor:
    """Return a tensor that never changes on a device; it is copied there once."""
    return send(tensor, device)
