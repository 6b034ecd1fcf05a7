"""Labels in any common format, and the samples that each period may train on."""

import os
import reprlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_consistent_length, column_or_1d
from torch import Tensor

from leco.data.periods import Annotated, Part
from leco.errors import LecoError
from leco.ontology.ontology import Ontology
from leco.ontology.version import NO_LABEL, Version

_PLAIN = "v1"  # version of labels without an ontology
Array = NDArray[Any]


@dataclass(frozen=True, eq=False)
class Labels:
    """Labels of all samples, by version."""

    ontology: Ontology
    known: dict[str, NDArray[np.int64]]  # version -> class index of each sample, -1 where it has no label
    spelled: dict[str, Array]  # version -> names of its classes, followed by that of "no class"

    @property
    def versions(self) -> list[str]:
        """Versions that have labels, each of which makes a period; they must include the newest."""
        versions = [name for name, labels in self.known.items() if (labels != NO_LABEL).any()]
        if versions[-1:] != [self.ontology.newest.name]:
            raise LecoError(f"no sample is labelled in the newest version {self.ontology.newest.name}; label some")
        return versions

    def annotated(self, version: str) -> Annotated:
        """Samples that a model of a version may train on: none that is labelled in a later version.

        Nothing is held out for validation. Samples without a label are unlabelled history.
        """
        position = self.ontology.position(version)
        parts = [
            Part(name, torch.from_numpy(np.flatnonzero(labels != NO_LABEL))) for name, labels in self.known.items()
        ]
        unlabelled = np.all([labels == NO_LABEL for labels in self.known.values()], axis=0)
        history = [*parts[:position], Part(version, torch.from_numpy(np.flatnonzero(unlabelled)))]
        nothing = Part(version, torch.empty(0, dtype=torch.int64))
        return Annotated(parts[position], tuple(part for part in history if len(part.indices)), nothing)


def as_ontology(given: object) -> Ontology:
    """Return an ontology, given one or a file or dictionary that describes it."""
    match given:
        case Ontology():
            return given
        case str() | os.PathLike():
            return Ontology.load(os.fspath(given))
        case Mapping():
            return Ontology.from_dict(dict(given))
    what = " ".join(reprlib.repr(given).split())
    raise LecoError(f"ontology: must be a leco.Ontology, a path or a mapping, not {what}")


def plain_labels(y: Array) -> Labels:
    """Labels without an ontology: one version, made of the distinct ones."""
    absent = missing(y)
    if absent.any():
        place = int(np.argmax(absent))
        raise LecoError(f"y has no label at position {place}; pass an `ontology` to learn from unlabelled samples")
    check_classification_targets(y)
    distinct, indices = np.unique(y, return_inverse=True)
    version = Version(_PLAIN, tuple(str(label) for label in distinct.tolist()))
    return Labels(Ontology("y", (version,), ()), {_PLAIN: indices}, {_PLAIN: distinct})


def read_labels(y: object, versions: object, ontology: Ontology) -> Labels:
    """Read labels (names, ids or indices; None, NaN, -1 or "" where one is missing), each of its version.

    `versions` is one name for all, one for each sample, or None for the newest. If all labels are numbers, predictions
    are numbers, otherwise names.
    """
    labels = as_column(y)
    named = versions_of(labels, versions, ontology)
    none = np.array(None, dtype=object)  # other labels are blanked, not dropped, so that errors name the right position
    known = {v.name: v.encode(np.where(named == v.name, labels, none)) for v in ontology.versions}
    evidence = ontology.evidence()
    for name, indices in known.items():
        evidence.ids(indices, name)  # refuses what no newest class explains, before any training
    numbers = not any(isinstance(label, str) and label for label in labels.tolist())
    return Labels(ontology, known, {version.name: spell(version, numbers) for version in ontology.versions})


def spell(version: Version, numbers: bool) -> Array:
    """Names of the classes of a version: indices and -1 for none, or names and "" for none."""
    return np.array([*range(len(version)), NO_LABEL]) if numbers else np.array([*version.handles, ""])


def versions_of(labels: Array, versions: object, ontology: Ontology) -> Array:
    """The version of each label."""
    if versions is None or isinstance(versions, str):
        named = np.full(len(labels), ontology.newest.name if versions is None else versions, dtype=object)
    else:
        named = as_column(versions)
        check_consistent_length(labels, named)
    nameless = missing(named) & ~missing(labels)
    if nameless.any():
        place = int(np.argmax(nameless))
        raise LecoError(f"label {labels[place]!r} at position {place} has no version; set it in `versions`")
    named = np.where(missing(named), "", named)
    for name in dict.fromkeys(named.tolist()):
        if name:
            ontology.position(name)
    return named


def as_column(values: object) -> Array:
    """Values of any type, one per sample, as objects."""
    if isinstance(values, np.ma.MaskedArray):
        values = np.where(np.ma.getmaskarray(values), np.array(None, dtype=object), values.data)
    if isinstance(values, list | tuple):
        values = [value.tolist() if isinstance(value, Tensor) else value for value in values]
    column: Array = column_or_1d(np.asarray(values, dtype=object), warn=True)
    return column


def missing(values: Array) -> NDArray[np.bool_]:
    """Mask of missing values: None, NaN, pandas' NA or an empty string."""
    return np.array([is_missing(value) for value in values.tolist()], dtype=bool)


def is_missing(value: object) -> bool:
    """Whether a value is None, NaN, pandas' NA or an empty string."""
    if value is None or type(value).__name__ in ("NAType", "NaTType"):
        return True
    return (isinstance(value, str) and not value) or (isinstance(value, float | np.floating) and value != value)
