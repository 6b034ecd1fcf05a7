"""Copies of tensors to a device, without waiting for it."""

from functools import lru_cache

import torch
from torch import Tensor

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


@lru_cache(maxsize=256)
def constant(tensor: Tensor, device: torch.device) -> Tensor:
    """Return a tensor that never changes on a device; it is copied there once."""
    return send(tensor, device)
