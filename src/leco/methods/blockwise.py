"""Losses of very many samples (pixels), a block at a time: only the logits are kept for the backward pass.

`F.cross_entropy` holds up to three more tensors of the size of the logits; this holds their gradient, and one block.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from leco.methods.losses import in_full

LARGE = 2**27  # numbers in a block: large, so that threads seldom wait for each other
SMALL = 2**21  # where a block is gone over many times, it should stay in the cache of a CPU
At = tuple[slice, ...]  # which samples and, of large ones, which part of their first trailing dimension
Losses = Callable[[Tensor, At], Tensor]
Targets = Callable[[Tensor, At], tuple[Tensor, Tensor | None]]


def blocks(shape: Sequence[int], size: int) -> Iterator[At]:
    """Cut (n, c, ...) into about equal parts of at most `size` numbers, where that can be: whole samples, or stripes.

    >>> list(blocks((3, 5), size=10))
    [(slice(0, 2, None),), (slice(2, 4, None),)]
    >>> list(blocks((1, 5, 4, 8), size=100))
    [(slice(0, 1, None), slice(0, 2, None)), (slice(0, 1, None), slice(2, 4, None))]
    """
    samples, *trailing = shape[0], *shape[2:]
    sample = math.prod(shape[1:])
    if sample <= size or not trailing:
        step = max(1, size // max(1, sample))
        yield from ((slice(start, start + step),) for start in range(0, samples, step))
        return
    step = -(-trailing[0] // -(-sample // size))
    for number in range(samples):
        for start in range(0, trailing[0], step):
            yield slice(number, number + 1), slice(start, start + step)


def block(values_nc: Tensor, at: At) -> Tensor:
    """A view of one block of (n, c, ...)."""
    return values_nc[(at[0], slice(None), *at[1:])]


def blockwise_nll(logits_nc: Tensor, losses: Losses, targets: Targets, size: int = LARGE) -> Tensor:
    """A loss of each sample, (n, ...), whose gradient is that of cross-entropy: ``softmax(z) - target``.

    From the log-probabilities of a block, `losses` makes the losses, and `targets` the probabilities that they should
    be: of all classes, or of the classes that it names as well, the others being zero.
    """
    nll: Tensor = _BlockwiseNLL.apply(logits_nc, losses, targets, size)
    return nll


class _BlockwiseNLL(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, logits_nc: Tensor, losses: Losses, targets: Targets, size: int) -> Tensor:
        ctx.save_for_backward(logits_nc)
        ctx.targets, ctx.size = targets, size
        dtype = torch.promote_types(logits_nc.dtype, torch.float32)
        nll = logits_nc.new_empty((logits_nc.shape[0], *logits_nc.shape[2:]), dtype=dtype)
        for at, log_probs in _log_probs(logits_nc, size):
            nll[at] = losses(log_probs, at)
        return nll

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, slope: Tensor) -> tuple[Tensor, None, None, None]:
        (logits_nc,) = ctx.saved_tensors
        gradient = torch.empty_like(logits_nc)
        for at, log_probs in _log_probs(logits_nc, ctx.size):
            target, classes = ctx.targets(log_probs, at)
            probs = log_probs.exp_()
            if classes is None:
                probs -= target
            else:
                probs.scatter_add_(1, classes, -target)
            torch.mul(probs, slope[at].unsqueeze(1), out=block(gradient, at))
        return gradient, None, None, None


def _log_probs(logits_nc: Tensor, size: int) -> Iterator[tuple[At, Tensor]]:
    """The log-probabilities of each block, each overwriting those before: fresh memory costs as much as the maths."""
    memory: Tensor | None = None
    for at in blocks(logits_nc.shape, size):
        logits = in_full(block(logits_nc, at))
        if memory is None or memory.shape != logits.shape:
            memory = logits.new_empty(logits.shape)
        yield at, torch.log_softmax(logits, dim=1, out=memory)
