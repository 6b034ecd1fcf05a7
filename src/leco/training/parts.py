"""Steps that do not fit into memory as a whole: a batch goes through the network in parts (gradient accumulation).

The gradients of the parts add up to those of the whole batch, since every mean is divided by the count of the whole.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from leco.data.batches import Step
from leco.errors import LecoError
from leco.methods.terms import Combined, Outputs, Term, all_losses, sums
from leco.models.layers import Norm
from leco.models.network import AnyNetwork
from leco.models.recompute import recompute_activations
from leco.ontology.evidence import Evidence

_SIGNS = ("out of memory", "can't allocate memory", "ALLOC_FAILED")  # of libraries, other devices, and the CPU


@dataclass
class Thrift:
    """How memory is saved: a batch in parts, activations that are computed again."""

    network: AnyNetwork
    parts: int = 1
    recomputes: bool = False

    def set(self, parts: int, recomputes: bool) -> None:
        """Divide batches into parts, and recompute activations from now on if they are not yet."""
        if recomputes and not self.recomputes:
            recompute_activations(self.network.backbone)
        self.parts, self.recomputes = parts, self.recomputes or recomputes

    def increase(self, samples: int) -> None:
        """Save more, in a way that changes nothing if there is one; `samples` are those of each kind in a batch.

        BatchNorm should see a whole batch, so activations come first if there is any; else parts are halved.
        """
        if self._normalises and not self.recomputes and self.network.blocks:
            self.set(self.parts, recomputes=True)
            return
        most = max(1, samples // 2) if self._normalises else samples  # one sample has no statistics
        if self.parts >= most:
            raise LecoError(
                f"out of memory even in {self.parts} parts of a batch; use a smaller network or smaller inputs"
            )
        self.parts = min(2 * self.parts, most)

    @property
    def _normalises(self) -> bool:
        """Whether BatchNorm normalises by the statistics of a batch."""
        return any(isinstance(module, Norm) and module.training for module in self.network.modules())

    def __str__(self) -> str:
        ways = ["training.network.recompute=true"] if self.recomputes else []
        ways += [f"training.batches.parts={self.parts}"] if self.parts > 1 else []
        apart = self.parts > 1 and self._normalises
        return " and ".join(ways) + (", whose parts BatchNorm normalises one by one" if apart else "")


def slices(samples: int, parts: int) -> Iterator[slice]:
    """Divide samples into parts of equal size, except for the last one.

    >>> list(slices(5, 2))
    [slice(0, 3, None), slice(3, 6, None)]
    """
    size = -(-samples // parts)
    return (slice(start, start + size) for start in range(0, samples, size))


@torch.no_grad()
def whole_counts(
    terms: Sequence[Term], outputs: Outputs, batch: Step, evidence: Evidence, places: Sequence[slice]
) -> Tensor:
    """Counts of all means over a whole batch: (means,).

    They depend on labels alone. So the outputs of the first part will do, in place of those of the other parts.
    """
    counts = []
    for at in places:
        part = batch.part(at)
        taken = {
            request: {version: logits.detach()[: len(part.new)] for version, logits in found.items()}
            for request, found in outputs.items()
        }
        counts.append(sums(all_losses(terms, taken, part, evidence))[:, 1])
    return torch.stack(counts).sum(dim=0)


def sum_of_parts(parts: Sequence[Combined], add_up: Callable[[Tensor], Tensor]) -> Combined:
    """Sum the losses of parts, and of processes by `add_up`; their means were divided by the counts of the whole."""
    first = parts[0]
    totals = [torch.stack([*part.terms.values(), *(total for total, _ in part.health.values())]) for part in parts]
    whole = iter(add_up(torch.stack(totals).sum(dim=0)).unbind())
    terms = {name: next(whole) for name in first.terms}
    health = {name: (next(whole), count) for name, (_, count) in first.health.items()}
    return Combined(torch.stack([part.loss for part in parts]).sum(), terms, health)


def is_out_of_memory(error: RuntimeError) -> bool:
    """Whether a device, or the memory of the machine, was too small."""
    return isinstance(error, torch.OutOfMemoryError) or any(sign in str(error) for sign in _SIGNS)
