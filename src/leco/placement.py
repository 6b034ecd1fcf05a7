"""Copies of tensors to a device, without waiting for it."""

from functools import lru_cache

import torch
from torch import Tensor


def send(tensor: Tensor, device: torch.device) -> Tensor:
    """Copy a tensor to a device without waiting until that is done; GPUs read from page-locked memory meanwhile."""
    if tensor.device == device:
        return tensor
    locked = tensor.device.type == "cpu" and device.type == "cuda" and torch.cuda.is_available()
    return (tensor.pin_memory() if locked else tensor).to(device, non_blocking=True)


@lru_cache(maxsize=256)
def constant(tensor: Tensor, device: torch.device) -> Tensor:
    """Return a tensor that never changes on a device; it is copied there once."""
    return send(tensor, device)
