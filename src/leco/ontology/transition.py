"""Transitions: how the classes of a newer version were labelled in an older one."""

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from leco.errors import LecoError
from leco.ontology.version import NO_LABEL, Version

if TYPE_CHECKING:
    from torch import Tensor

# A dense table of this many cells (400 MB) is certainly a mistake.
_LARGEST_DENSE = 100_000_000


@dataclass(frozen=True, eq=False, repr=False)
class Transition:
    """How each class of `new` was labelled in `old`: rows sum to one; a tree is the one-hot case (the paper's E).

    A row sums to less if part of the class had no label in `old`, and is empty for a brand-new class, which no old
    label can mean. Stored sparsely, so that a tree costs O(classes).
    """

    old: Version
    new: Version
    sparse: Any  # scipy.sparse.csr_array, (num_new, num_old)

    def __post_init__(self) -> None:
        matrix = sparse.csr_array(self.sparse, dtype=np.float64)
        matrix.eliminate_zeros()
        matrix.sort_indices()
        if matrix.shape != (len(self.new), len(self.old)):
            expected = f"{len(self.new)} classes of {self.new.name} by {len(self.old)} of {self.old.name}"
            raise LecoError(f"shares of shape {matrix.shape} do not fit {expected}")
        sums = matrix.sum(axis=1)
        wrong = (sums > 1 + 1e-6) | ~np.isfinite(sums)
        wrong[matrix.nonzero()[0][matrix.data < 0]] = True
        if wrong.any():
            row = int(np.argmax(wrong))
            shares = ", ".join(f"{share:g}" for share in matrix[[row]].data)
            what = f"shares of {self.new.handle(row)!r} in {self.old.name}"
            raise LecoError(f"{what} must be positive and sum to at most 1, not {shares}")
        object.__setattr__(self, "sparse", matrix)

    def __repr__(self) -> str:
        return f"Transition({self.new.name} -> {self.old.name}, {self.sparse.nnz} links)"

    @classmethod
    def identity(cls, version: Version) -> "Transition":
        """Return the transition of a version to itself."""
        return cls(version, version, sparse.eye_array(len(version), format="csr"))

    @property
    def shares(self) -> "Tensor":
        """Dense (num_new, num_old) float32 shares; use `parents` or `sparse` for huge ontologies."""
        import torch

        if len(self.new) * len(self.old) > _LARGEST_DENSE:
            raise LecoError(
                f"a dense {len(self.new)} x {len(self.old)} table of shares would need "
                f"{len(self.new) * len(self.old) * 4 / 1e9:.1f} GB; use .sparse or .parents"
            )
        return torch.from_numpy(self.sparse.toarray().astype(np.float32))

    def origins(self, new: int) -> dict[int, float]:
        """Return the old classes that a new class comes from, and their shares."""
        start, stop = self.sparse.indptr[new : new + 2]
        return dict(zip(self.sparse.indices[start:stop].tolist(), self.sparse.data[start:stop].tolist(), strict=True))

    @cached_property
    def is_tree(self) -> bool:
        """Whether every class had at most one label: the case that the paper assumes."""
        return bool((np.diff(self.sparse.indptr) <= 1).all())

    @cached_property
    def parents(self) -> NDArray[np.int64]:
        """The majority parent of each new class (the first one on a tie), -1 for brand-new ones."""
        counts = np.diff(self.sparse.indptr)
        parents = np.full(len(self.new), NO_LABEL, dtype=np.int64)
        single = np.flatnonzero(counts == 1)
        parents[single] = self.sparse.indices[self.sparse.indptr[single]]
        for row in np.flatnonzero(counts > 1).tolist():
            origins = self.origins(row)
            parents[row] = max(origins, key=lambda old: origins[old])
        return parents

    def then(self, newer: "Transition") -> "Transition":
        """Compose two transitions, so that labels of TP0 can supervise a model of TP2."""
        if newer.old != self.new:
            raise LecoError(f"{newer.old.name} does not follow {self.new.name}")
        return Transition(self.old, newer.new, newer.sparse @ self.sparse)

    @cached_property
    def _edges(self) -> "tuple[Tensor, Tensor, Tensor]":
        """New class, old class and share of each link."""
        import torch

        edges = self.sparse.tocoo()
        new, old = (torch.from_numpy(found.astype(np.int64)) for found in (edges.row, edges.col))
        return new, old, torch.from_numpy(edges.data)

    def project(self, probs_nc: "Tensor") -> "Tensor":
        """Return probabilities over the classes of `old`, given those over `new` (dimension 1): ``probs @ shares``.

        The probability of brand-new classes is lost, so the result may sum to less than one.
        """
        from leco.placement import constant

        if probs_nc.dim() < 2 or probs_nc.shape[1] != len(self.new):
            raise LecoError(f"probabilities of shape {tuple(probs_nc.shape)} do not fit {len(self.new)} classes")
        new_index, old_index, weight = (constant(each, probs_nc.device) for each in self._edges)
        weight = weight.to(probs_nc.dtype)
        mass = probs_nc.index_select(1, new_index) * weight.view(1, -1, *[1] * (probs_nc.dim() - 2))
        projected = probs_nc.new_zeros(probs_nc.shape[0], len(self.old), *probs_nc.shape[2:])
        return projected.index_add(1, old_index, mass)
