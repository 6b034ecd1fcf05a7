"""Evidence: a label of any version, or none, as log-likelihoods over the newest classes."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import sparse
from torch import Tensor

from leco.errors import LecoError
from leco.ontology.version import NO_LABEL

if TYPE_CHECKING:
    from leco.ontology.ontology import Ontology

INTEGERS = {
    *(torch.uint8, torch.uint16, torch.uint32, torch.uint64),
    *(torch.int8, torch.int16, torch.int32, torch.int64),
}
_TABLE = 2**22  # largest number of values for which all rows are kept dense: 16 MB
_IMPOSSIBLE = -1  # in place of a row id
UNLABELLED = 0  # the row id of "no label": all classes remain possible


@dataclass(frozen=True, eq=False)
class Evidence:
    """Rows of ``e_c = log P(annotator says this label | the true newest class is c)``, one per label of any version.

    Row 0 is "unlabelled" (all zero). Rows are sparse (row `i` has the entries ``starts[i]:starts[i + 1]``), so that a
    tree costs one entry per class and version; unless all are small, they are made dense only for the samples of a
    batch.
    """

    ontology: "Ontology"
    offsets: dict[str, int]  # version name -> row id of its first class
    starts: Tensor  # (num_rows + 1,)
    classes: Tensor  # (num_entries,) newest class index
    loglik: Tensor  # (num_entries,)
    silent: Tensor  # (num_rows,) whether a label is of a class that was later ignored
    informative: Tensor  # (num_rows,) whether a label rules anything out
    most: dict[str, int]  # version name -> largest number of entries of its rows

    @classmethod
    def of(cls, ontology: "Ontology") -> "Evidence":
        """Compile the evidence of every label of every version."""
        newest = ontology.newest
        blocks = [sparse.csr_array((1, len(newest)))]
        silent = [np.zeros(1, dtype=bool)]
        offsets: dict[str, int] = {}
        rows = 1
        for version in ontology.versions:
            offsets[version.name] = rows
            rows += len(version)
            blocks.append(ontology.transition(newest.name, version.name).sparse.T.tocsr())
            silent.append(ontology.ended(version.name)[0])
        table = sparse.vstack(blocks, format="csr")
        counts = np.diff(table.indptr)
        certain = np.add.reduceat(np.append(table.data, 0) == 1, table.indptr[:-1]) * (counts > 0)
        informative = certain < len(newest)
        informative[UNLABELLED] = False
        most = {v.name: int(counts[offsets[v.name] :][: len(v)].max(initial=1)) for v in ontology.versions}
        return cls(
            ontology,
            offsets,
            torch.from_numpy(table.indptr.astype(np.int64)),
            torch.from_numpy(table.indices.astype(np.int64)),
            torch.from_numpy(np.log(table.data)).float(),
            torch.from_numpy(np.concatenate(silent) & (counts == 0)),
            torch.from_numpy(informative),
            most,
        )

    @property
    def num_classes(self) -> int:
        """Number of newest classes."""
        return len(self.ontology.newest)

    def __len__(self) -> int:
        return len(self.starts) - 1

    def to(self, device: torch.device | str) -> "Evidence":
        """Return the same evidence on another device."""
        names = ("starts", "classes", "loglik", "silent", "informative")
        tensors = {name: getattr(self, name).to(device) for name in names}
        return replace(self, **tensors)

    def ids(self, labels: Tensor | NDArray[Any] | Sequence[Any], version: str) -> Tensor:
        """Return the row ids of labels (indices or names; -1, None or "" for none) of `version`, in the same shape.

        A label is impossible if its class was removed, so that no newest class explains it; that raises an error, so
        that training never meets one.
        """
        known = self.ontology[version]
        if isinstance(labels, Tensor) and labels.dtype in INTEGERS:
            indices = labels.long()
            if indices.numel() and not NO_LABEL <= int(indices.min()) <= int(indices.max()) < len(known):
                known.encode(labels.cpu().numpy())  # raises an error that names the label
        elif isinstance(labels, Tensor):
            raise LecoError(f"labels of {version} must be integers, not {labels.dtype}")
        else:
            indices = torch.from_numpy(known.encode(labels))
        indices = indices.to(self.starts.device)
        ids = self.known_ids(indices, version)
        if version in self.with_impossible and (impossible := ids == _IMPOSSIBLE).any():
            label = known.handle(int(indices[impossible][0]))
            raise LecoError(
                f"label {label!r} of {version} is impossible: no class of {self.ontology.newest.name} comes from it; "
                f"remove these {int(impossible.sum())} samples, or list {label!r} under `ignore` of the version that "
                "dropped it"
            )
        return ids

    def known_ids(self, indices: Tensor, version: str) -> Tensor:
        """Return the row ids of label indices that `ids` has checked before, without waiting for a GPU."""
        return self._row_ids[version][indices.long()]  # -1 is the last of them

    @cached_property
    def _row_ids(self) -> dict[str, Tensor]:
        """By version, the row id of each class and, last, of no label."""
        found = {}
        for version in self.ontology.versions:
            ids = torch.arange(len(version), device=self.starts.device) + self.offsets[version.name]
            ids = ids.where(self.starts[ids] < self.starts[ids + 1], _IMPOSSIBLE).where(~self.silent[ids], UNLABELLED)
            found[version.name] = torch.cat([ids, ids.new_tensor([UNLABELLED])])
        return found

    @cached_property
    def with_impossible(self) -> set[str]:
        """Versions with a class that no newest class explains."""
        return {version for version, ids in self._row_ids.items() if (ids == _IMPOSSIBLE).any()}

    def gather(self, ids: Tensor) -> Tensor:
        """Return the log-likelihoods of row ids of shape (n, ...): (n, C, ...)."""
        flat = ids.reshape(-1).long()
        rows = self._dense(flat) if self._table is None else self._table.index_select(0, flat)
        return rows.view(*ids.shape, self.num_classes).movedim(-1, 1) if ids.dim() > 1 else rows

    @cached_property
    def _table(self) -> Tensor | None:
        """All rows, if they are small: selecting them is much faster than building them in every step."""
        fits = len(self) * self.num_classes <= _TABLE
        return self._dense(torch.arange(len(self), device=self.starts.device)) if fits else None

    def longest(self, flat: Tensor, version: str | None = None) -> int:
        """Largest number of classes that some rows allow, of one version if it is given, without waiting for a GPU."""
        if version is not None:
            return self.most[version]
        if flat.device.type != "cpu" or not len(flat):
            return max(self.most.values())
        return max(1, int((self.starts[flat + 1] - self.starts[flat]).max()))

    def entries(self, flat: Tensor, most: int) -> tuple[Tensor, Tensor]:
        """Return the at most m classes that each of n rows allows, and their log-likelihoods: (n, m) each.

        Shorter rows are padded with their first class, at -inf; one without entries (no label) is all padding.
        """
        start = self.starts[flat]
        count = (self.starts[flat + 1] - start).unsqueeze(1)
        number = torch.arange(most, device=flat.device)
        real = number < count
        entry = (start.unsqueeze(1) + number.where(real, 0)).clamp(max=len(self.classes) - 1)
        return self.classes[entry], self.loglik[entry].where(real, -torch.inf)

    def _dense(self, flat: Tensor) -> Tensor:
        classes, loglik = self.entries(flat, self.longest(flat))
        rows = torch.full((len(flat), self.num_classes), -torch.inf, device=flat.device)
        rows = rows.scatter_reduce_(1, classes, loglik, "amax")  # padding is -inf
        return rows.masked_fill_((flat == UNLABELLED).unsqueeze(1), 0.0)

    def rows(self, labels: Tensor | NDArray[Any] | Sequence[Any], version: str) -> Tensor:
        """Return the log-likelihoods over the newest classes, (n, C, ...), of labels of `version`.

        >>> from leco import Ontology
        >>> history = {"v1": ["dog", "cat"], "v2": {"poodle": {"from": "dog"}, "husky": {"from": "dog"}, "cat": None}}
        >>> ontology = Ontology.from_dict({"versions": [{"name": k, "classes": v} for k, v in history.items()]})
        >>> ontology.evidence().rows(["dog", "cat", ""], version="v1")
        tensor([[0., 0., -inf],
                [-inf, -inf, 0.],
                [0., 0., 0.]])
        """
        return self.gather(self.ids(labels, version))
