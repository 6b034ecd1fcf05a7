"""Linear heads on frozen features, fitted with evidence losses."""

from dataclasses import dataclass
from functools import cached_property

import torch
import torch.nn.functional as F
from torch import Tensor

from leco.methods.linear import minimise
from leco.ontology.evidence import UNLABELLED, Evidence
from leco.planning.known import HISTORY, NEWEST, Known

_TOLERANCE = 1e-4  # of the gradient


@dataclass(frozen=True, eq=False)
class Head:
    """A linear head for some data: the strength of its prior, and the weight of a row of history."""

    known: Known
    prior: float
    history_weight: float

    @classmethod
    def on(cls, known: Known, prior: float) -> "Head":
        """Weigh the history of some data; rows without a label do not count."""
        new, old = (int(((known.part == part) & (known.labels != UNLABELLED)).sum()) for part in (NEWEST, HISTORY))
        return cls(known, prior, history_weight(new, old))

    @property
    def name(self) -> str:
        """All that a fit depends on besides the data."""
        return f"head, prior {self.prior:g}, history {self.history_weight:g}"

    def fit(self, newest: Tensor, history: Tensor) -> Tensor:
        """Return the weights fitted to these samples."""
        known = self.known
        rows = known.rows(torch.cat([newest, history]))
        rows = rows[known.labels[rows] != UNLABELLED]
        weights = torch.ones(len(rows)).masked_fill(known.part[rows] == HISTORY, self.history_weight)
        return fit_head(known.features[rows], known.labels[rows], weights, known.evidence, self.prior)

    @cached_property
    def weights(self) -> Tensor:
        """The weights fitted to all samples."""
        return self.fit(self.known.samples(NEWEST), self.known.samples(HISTORY))

    def predict(self, newest: Tensor, history: Tensor, rows: Tensor) -> Tensor:
        """Fit these samples, and return the likeliest class of each of these rows."""
        return logits(self.fit(newest, history), self.known.features[rows]).argmax(dim=1)


def fit_head(features: Tensor, labels: Tensor, weights: Tensor, evidence: Evidence, prior: float) -> Tensor:
    """Return the weights (d + 1, c) of the likeliest head: evidence losses and a Gaussian prior, by L-BFGS from zero.

    Rows count `weights` times. The result is deterministic for the same numbers and the same number of threads.
    """
    given, ids = labels.unique(return_inverse=True)  # type: ignore[no-untyped-call]
    l2 = 2 * prior / float(weights.sum())
    return minimise(features, evidence.gather(given), ids, weights, l2, tolerance=_TOLERANCE).float()


def logits(head: Tensor, features: Tensor) -> Tensor:
    """(n, c); the last row of a head is its bias."""
    return F.linear(features, head[:-1].T, head[-1])


def history_weight(new: int, old: int) -> float:
    """Return the weight of a row of history, so that history weighs at most as much as the new rows (K = M).

    It is the same for all subsamples of the same data; otherwise history would count least where new labels are few,
    which is where it is needed most.

    >>> history_weight(100, 400)
    0.25
    """
    return min(1.0, new / max(old, 1))
