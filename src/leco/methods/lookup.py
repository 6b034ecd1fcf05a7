"""The evidence of a batch, kept for its distinct labels only and looked up for one block of samples at a time."""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from leco.methods.blockwise import At
from leco.ontology.evidence import UNLABELLED, Evidence

_SPARSE = 8  # looking up single classes pays if no label leaves more than one class in eight


@dataclass(frozen=True, eq=False)
class Lookup:
    """Log-likelihoods of k distinct labels: of all classes, or of the m that each label leaves possible."""

    rows: Tensor  # (n, ...) row ids
    column: Tensor  # (num_rows,) where the evidence of a row id is
    loglik: Tensor  # (c or m, k)
    classes: Tensor | None  # (m, k), or None for all; spare places repeat a class and have -inf
    informative: Tensor  # (k,) whether the label rules anything out

    @classmethod
    def dense(cls, rows: Tensor, evidence: Evidence) -> "Lookup":
        """Look up all classes."""
        distinct, column = _distinct(rows, evidence)
        loglik = evidence.gather(distinct).T.contiguous()
        return cls(rows, column, loglik, None, (loglik != 0).any(dim=0))

    @classmethod
    def sparse(cls, rows: Tensor, evidence: Evidence) -> "Lookup":
        """Look up possible classes, if they are few; else all."""
        distinct, column = _distinct(rows, evidence)
        start = evidence.starts[distinct]
        count = evidence.starts[distinct + 1] - start
        most = max(1, int(count.max()))
        if most > max(1, evidence.num_classes // _SPARSE):
            return cls.dense(rows, evidence)
        number = torch.arange(most, device=rows.device).unsqueeze(1)
        real = number < count
        entry = (start + number).where(real, start).clamp(max=len(evidence.classes) - 1)
        loglik = evidence.loglik[entry].where(real, -torch.inf)
        loglik[0, UNLABELLED] = 0.0  # all are possible; as nothing is made of it, one will do
        return cls(rows, column, loglik, evidence.classes[entry], distinct != UNLABELLED)

    @property
    def labelled(self) -> Tensor:
        """Whether the label of each sample, (n, ...), rules anything out."""
        return self.informative[self.column[self.rows]]

    def at(self, at: At) -> tuple[Tensor, Tensor | None]:
        """Log-likelihoods of a block of samples, (n, c or m, ...), and of which classes they are."""
        column = self.column[self.rows[at]]
        return _spread(self.loglik, column), None if self.classes is None else _spread(self.classes, column)


def _distinct(rows: Tensor, evidence: Evidence) -> tuple[Tensor, Tensor]:
    """Row ids that occur, and "unlabelled"; and the place of each among them."""
    occurs = torch.bincount(rows.reshape(-1), minlength=len(evidence)) > 0  # no sorting: there may be millions
    occurs[UNLABELLED] = True
    return occurs.nonzero().squeeze(1), occurs.cumsum(0) - 1


def _spread(table: Tensor, column: Tensor) -> Tensor:
    """Columns of a table (m, k) for samples (n, ...): (n, m, ...)."""
    samples, trailing = column.shape[0], column.shape[1:]
    index = column.reshape(samples, 1, math.prod(trailing)).expand(-1, len(table), -1)
    return table.expand(samples, -1, -1).gather(2, index).view(samples, len(table), *trailing)
