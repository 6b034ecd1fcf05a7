"""Networks whose parameters are divided among processes (FSDP2): each holds a part of every tensor."""

from collections.abc import Mapping

from lightning_fabric import Fabric
from lightning_fabric.strategies.model_parallel import ModelParallelStrategy
from torch import Tensor
from torch.distributed.tensor import DTensor, distribute_tensor


def shards(fabric: Fabric) -> bool:
    """Whether a fabric divides networks among processes."""
    return isinstance(fabric.strategy, ModelParallelStrategy)


def gathered(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return tensors as they are or, of divided ones, whole on the CPU; all processes must call this."""
    return {name: t.full_tensor().cpu() if isinstance(t, DTensor) else t for name, t in tensors.items()}


def divided(tensor: Tensor, like: Tensor) -> Tensor:
    """Return this process's part of a tensor, if another one of the same shape is divided."""
    if not isinstance(like, DTensor) or tensor.shape != like.shape:
        return tensor
    return distribute_tensor(tensor.to(like.device), like.device_mesh, like.placements, src_data_rank=None)
