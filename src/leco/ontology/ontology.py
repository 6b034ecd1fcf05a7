"""The history of a label ontology: its versions and how each followed from the one before."""

import hashlib
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from leco.errors import LecoError, nearest
from leco.ontology.changes import Change, changes
from leco.ontology.transition import Transition
from leco.ontology.version import NO_LABEL, Version

if TYPE_CHECKING:
    from leco.ontology.evidence import Evidence


@dataclass(frozen=True, eq=False, repr=False)
class Ontology:
    """Versions, oldest first, and the step from each to the next."""

    name: str
    versions: tuple[Version, ...]
    steps: tuple[Transition, ...]

    def __post_init__(self) -> None:
        pairs = list(zip(self.versions, self.versions[1:], strict=False))
        if not self.versions or [(step.old, step.new) for step in self.steps] != pairs:
            raise LecoError(f"ontology {self.name!r}: one step is needed between each version and the next")
        for step in self.steps:
            sums = step.sparse.sum(axis=1)
            wrong = (np.abs(sums - 1) > 1e-6) & (sums > 0)
            if wrong.any():
                row = int(np.argmax(wrong))
                raise LecoError(
                    f"the shares of {step.new.handle(row)!r} in {step.old.name} sum to {sums[row]:g}, not 1"
                )
        if len(self._position) < len(self.versions):
            raise LecoError(f"ontology {self.name!r}: version names must differ: {', '.join(self._position)}")

    def __repr__(self) -> str:
        history = " -> ".join(f"{version.name} ({len(version)} classes)" for version in self.versions)
        return f"Ontology({self.name!r}: {history})"

    @classmethod
    def from_dict(cls, data: object) -> "Ontology":
        """Build an ontology from what its YAML file would hold; see `docs/reference/ontology.md`."""
        from leco.ontology.schema import parse

        return parse(data)

    @classmethod
    def from_taxonomy(
        cls, name: str, versions: Sequence[str], lineages: Iterable[Sequence[str]], ignored: Sequence[str] = ()
    ) -> "Ontology":
        """Build a tree from one lineage per newest class, coarsest name first.

        A name found under several parents is several classes (*Satyrium*), told apart by ids such as
        ``Orchidaceae/Satyrium``. The `ignored` labels say nothing in any version.
        """
        from leco.ontology.taxonomy import taxonomy

        return taxonomy(name, versions, lineages, ignored)

    @classmethod
    def load(cls, path: Path | str) -> "Ontology":
        """Read a ``.yaml``, ``.json`` or ``.tsv`` file, checking everything."""
        from leco.ontology.files import load

        return load(Path(path))

    def save(self, path: Path | str) -> None:
        """Write a ``.yaml``, ``.json`` or ``.tsv`` file; it appears whole or not at all."""
        from leco.ontology.files import save

        save(self, Path(path))

    def to_dict(self) -> dict[str, Any]:
        """Return what the YAML file holds; `from_dict` takes it back."""
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
        return {}  # every batch asks for them

    def position(self, version: str) -> int:
        """How many versions came before this one."""
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
        """Sixteen hexadecimal digits that change whenever any class, id, order or share does."""
        content = json.dumps(self.to_dict()["versions"], ensure_ascii=False)
        return hashlib.sha256(content.encode()).hexdigest()[:16]

    def transition(self, new: str, old: str) -> Transition:
        """How each class of `new` was labelled in `old`, composed over the versions between (the paper's E)."""
        first, last = self.position(old), self.position(new)
        if first > last:
            raise LecoError(f"{new} is older than {old}: transitions lead from the newer version to the older")
        if (first, last) not in self._transitions:
            whole = Transition.identity(self.versions[first])
            for step in self.steps[first:last]:
                whole = whole.then(step)
            self._transitions[first, last] = whole
        return self._transitions[first, last]

    def evidence(self) -> "Evidence":
        """Every label of every version as evidence about the newest classes."""
        from leco.ontology.evidence import Evidence

        return Evidence.of(self)

    def changes(self, old: str, new: str) -> list[Change]:
        """What happened to the classes from `old` to `new`."""
        return changes(self.transition(new, old), *self.ended(old, new))

    def translate(self, labels: Any, new: str, old: str) -> Any:
        """Give labels of `new` the names they had in `old`.

        Names become a list of names, a tensor of indices an int64 tensor, other indices an int64 array. A class merged
        from several gets the one most of it was; a brand-new class has no old label: -1, or "".
        """
        parents = np.append(self.transition(new, old).parents, NO_LABEL)  # so that no label, -1, stays none
        if hasattr(labels, "new_tensor"):
            indices = parents[self[new].encode(labels.cpu().numpy())]
            return labels.new_tensor(indices, dtype=labels.long().dtype)  # wide enough for any index
        translated = parents[self[new].encode(labels)]
        numeric = isinstance(labels, np.ndarray) and labels.dtype.kind in "iuf"
        if numeric or not any(isinstance(label, str) for label in np.asarray(labels, dtype=object).ravel()):
            return translated
        return np.array([*self[old].handles, ""], dtype=object)[translated].tolist()

    def ended(self, old: str, new: str | None = None) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
        """Which classes of `old` have a part that, by `new`, was ignored, and which a part that was removed."""
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
