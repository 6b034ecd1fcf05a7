"""Activations that are computed again for the backward pass, block by block, instead of being kept."""

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from functools import partial
from typing import Any

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from leco.errors import LecoError
from leco.models.layers import Norm


def recompute_activations(backbone: nn.Module) -> None:
    """Let a backbone keep only the inputs of its blocks: the same results, for another forward pass."""
    found = blocks(backbone)
    if not found:
        raise LecoError("training.network.recompute: this backbone has no blocks of layers; set it to false")
    for block in found:
        block.forward = partial(_run, block, block.forward)


def blocks(backbone: nn.Module) -> list[nn.Module]:
    """Return the innermost modules of at least two layers that are parts of a list.

    >>> two = nn.Sequential(nn.Linear(2, 2), nn.ReLU(), nn.Linear(2, 2))
    >>> blocks(nn.Sequential(nn.Linear(2, 2), two)) == [two]
    True
    """
    listed = [child for module in backbone.modules() if _is_list(module) for child in module.children()]
    found = [block for block in listed if _layers(block) > 1]
    ids = set(map(id, found))
    return [block for block in found if not any(id(part) in ids for part in block.modules() if part is not block)]


def _is_list(module: nn.Module) -> bool:
    """Whether the children of a module follow each other, or are all of one kind, as in the stages of a RegNet."""
    return isinstance(module, nn.Sequential) or len({type(child) for child in module.children()}) == 1


def _layers(module: nn.Module) -> int:
    return sum(parameter.ndim > 1 for parameter in module.parameters())


def _run(block: nn.Module, forward: Any, *inputs: Any, **options: Any) -> Any:
    if not torch.is_grad_enabled():
        return forward(*inputs, **options)
    contexts = partial(_contexts, block)
    return checkpoint(forward, *inputs, use_reentrant=False, context_fn=contexts, **options)


def _contexts(block: nn.Module) -> tuple[Any, Any]:
    return nullcontext(), _counted_once(block)


@contextmanager
def _counted_once(block: nn.Module) -> Iterator[None]:
    """Keep BatchNorm's statistics, which have seen these inputs already."""
    kept = [(norm, norm.momentum, norm.num_batches_tracked) for norm in block.modules() if isinstance(norm, Norm)]
    for norm, _, count in kept:
        norm.momentum, norm.num_batches_tracked = 0.0, None if count is None else torch.empty_like(count)
    try:
        yield
    finally:
        for norm, momentum, count in kept:
            norm.momentum, norm.num_batches_tracked = momentum, count
