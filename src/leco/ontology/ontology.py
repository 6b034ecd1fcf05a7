"""The history of a label ontology: its versions and the transitions between them."""

import hashlib
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from leco.arguments import checks_arguments
from leco.errors import LecoError, nearest
from leco.ontology.changes import Change, changes
from leco.ontology.transition import Transition
from leco.ontology.version import NO_LABEL, Version

if TYPE_CHECKING:
    from leco.ontology.evidence import Evidence


@dataclass(frozen=True, eq=False, repr=False)
class Ontology:
    """Versions, oldest first, and the transition from each to the next."""

    name: str
    versions: tuple[Version, ...]
    steps: tuple[Transition, ...]

    def __post_init__(self) -> None:
        pairs = list(zip(self.versions, self.versions[1:], strict=False))
        if not self.versions or [(step.old, step.new) for step in self.steps] != pairs:
            raise LecoError(f"ontology {self.name!r}: needs one transition between each version and the next")
        for step in self.steps:
            sums = step.sparse.sum(axis=1)
            wrong = (np.abs(sums - 1) > 1e-6) & (sums > 0)
            if wrong.any():
                row = int(np.argmax(wrong))
                raise LecoError(
                    f"the shares of {step.new.handle(row)!r} in {step.old.name} sum to {sums[row]:g}, not 1"
                )
        if len(self._position) < len(self.versions):
            raise LecoError(f"ontology {self.name!r}: version names must be unique: {', '.join(self._position)}")

    def __repr__(self) -> str:
        history = " -> ".join(f"{version.name} ({len(version)} classes)" for version in self.versions)
        return f"Ontology({self.name!r}: {history})"

    @classmethod
    def from_dict(cls, data: object) -> "Ontology":
        """Build an ontology from the content of its YAML file; see `docs/reference/ontology.md`."""
        from leco.ontology.schema import parse

        return parse(data)

    @classmethod
    @checks_arguments
    def from_taxonomy(
        cls, name: str, versions: Iterable[str], lineages: Iterable[Sequence[str]], ignored: Iterable[str] = ()
    ) -> "Ontology":
        """Build a tree from one lineage per newest class, coarsest name first.

        A name under several parents is several classes (*Satyrium*), with ids such as ``Orchidaceae/Satyrium``. The
        `ignored` labels are ignored in every version.
        """
        from leco.ontology.taxonomy import taxonomy

        return taxonomy(name, list(versions), lineages, list(ignored))

    @classmethod
    @checks_arguments
    def load(cls, path: Path | str) -> "Ontology":
        """Read and check a ``.yaml``, ``.json`` or ``.tsv`` file."""
        from leco.ontology.files import load

        return load(Path(path))

    @checks_arguments
    def save(self, path: Path | str) -> None:
        """Write a ``.yaml``, ``.json`` or ``.tsv`` file, atomically."""
        from leco.ontology.files import save

        save(self, Path(path))

    def to_dict(self) -> dict[str, Any]:
        """Return the content of the YAML file, the inverse of `from_dict`."""
        from leco.ontology.files import unparse

        return unparse(self)

    @property
    def newest(self) -> Version:
        """The version a model is trained for."""
        return self.versions[-1]

    @cached_property
    def _position(self) -> dict[str, int]:
        return {version.name: position for position, version in enumerate(self.versions)}

    @cached_property
    def _transitions(self) -> dict[tuple[int, int], Transition]:
        return {}  # a cache, as every batch needs them

    def position(self, version: str) -> int:
        """Return the index of a version."""
        if version not in self._position:
            raise LecoError(f"{version!r} is not a version of {self.name}{nearest(str(version), self._position)}")
        return self._position[version]

    def __getitem__(self, version: str) -> Version:
        return self.versions[self.position(version)]

    def until(self, version: str) -> "Ontology":
        """Return the ontology as it was when `version` was the newest: what a model of that period knows."""
        position = self.position(version)
        return Ontology(self.name, self.versions[: position + 1], self.steps[:position])

    @cached_property
    def fingerprint(self) -> str:
        """Sixteen hexadecimal digits that change with any class, id, order or share."""
        content = json.dumps(self.to_dict()["versions"], ensure_ascii=False)
        return hashlib.sha256(content.encode()).hexdigest()[:16]

    def transition(self, new: str, old: str) -> Transition:
        """Return how each class of `new` was labelled in `old`, composed over those in between (the paper's E)."""
        first, last = self.position(old), self.position(new)
        if first > last:
            raise LecoError(f"{new} is older than {old}: transitions go from the newer version to the older")
        if (first, last) not in self._transitions:
            whole = Transition.identity(self.versions[first])
            for step in self.steps[first:last]:
                whole = whole.then(step)
            self._transitions[first, last] = whole
        return self._transitions[first, last]

    def evidence(self) -> "Evidence":
        """Return every label of every version as evidence about the newest classes."""
        from leco.ontology.evidence import Evidence

        return Evidence.of(self)

    def changes(self, old: str, new: str) -> list[Change]:
        """Return the changes of the classes from `old` to `new`."""
        return changes(self.transition(new, old), *self.ended(old, new))

    def translate(self, labels: Any, new: str, old: str) -> Any:
        """Translate labels of `new` to `old`.

        Names become a list of names, a tensor of indices an int64 tensor, other indices an int64 array. A merged class
        becomes its majority parent; a brand-new class has no old label: -1, or "".
        """
        parents = np.append(self.transition(new, old).parents, NO_LABEL)  # so that -1, no label, stays -1
        if hasattr(labels, "new_tensor"):
            indices = parents[self[new].encode(labels.cpu().numpy())]
            return labels.new_tensor(indices, dtype=labels.long().dtype)  # wide enough for any index
        translated = parents[self[new].encode(labels)]
        numeric = isinstance(labels, np.ndarray) and labels.dtype.kind in "iuf"
        if numeric or not any(isinstance(label, str) for label in np.asarray(labels, dtype=object).ravel()):
            return translated
        return np.array([*self[old].handles, ""], dtype=object)[translated].tolist()

    def ended(self, old: str, new: str | None = None) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
        """Return masks of the classes of `old` of which a part was ignored, or removed, by `new`."""
        first, last = self.position(old), self.position(new or self.newest.name)
        ignored, removed = (np.zeros(len(self.versions[last]), dtype=bool) for _ in range(2))
        for step in reversed(self.steps[first:last]):
            ignored, removed = ((step.sparse.T @ part.astype(float)) > 0 for part in (ignored, removed))
            silent = [index for label in step.new.ignored if (index := step.old.lookup.get(label, NO_LABEL)) >= 0]
            childless = np.bincount(step.sparse.indices, minlength=len(step.old)) == 0
            childless[silent] = False
            ignored[silent] = True
            removed |= childless
        return ignored, removed
