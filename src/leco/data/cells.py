"""Checks of the cells of a manifest against the ontology: versions, labels, splits, periods."""

from collections.abc import Iterator
from functools import partial

import numpy as np
from numpy.typing import NDArray

from leco.data.problems import Fault, Problem
from leco.data.table import Table
from leco.errors import LecoError, nearest
from leco.ontology.ontology import Ontology
from leco.ontology.version import NO_LABEL, Version

SPLITS = ("train", "val", "test")  # the later ones are the ones to keep clean
_LONGEST_PERIOD = 9  # digits


def impossible_classes(ontology: Ontology, version: str) -> NDArray[np.bool_]:
    """Which classes of a version no newest class comes from, though none of it was ignored: nothing to learn from."""
    table = ontology.transition(ontology.newest.name, version).sparse
    explained = np.bincount(table.indices, minlength=table.shape[1]) > 0
    return ~explained & ~ontology.ended(version)[0]


def impossible(label: str, version: str, newest: str) -> Fault:
    """Say what to do about a label whose class was removed."""
    return Fault(
        "impossible label",
        f"label {label!r} of {version} is impossible: no class of {newest} comes from it; say which does with "
        f"`from`, leave the sample out, or list {label!r} under `ignore` of the version that dropped it",
    )


def check_versions(table: Table, ontology: Ontology) -> Iterator[Problem]:
    """Every label, and every version given, must belong to the ontology."""
    names = {version.name for version in ontology.versions}
    for place, (label, version) in enumerate(zip(table[table.target], table["version"], strict=True)):
        if version and version not in names:
            remedy = partial(nearest, version, [v.name for v in ontology.versions])
            fault = Fault("unknown version", f"{version!r} is not a version of {ontology.name}", remedy)
            yield table.problem(place, fault)
        elif label and not version:
            remedy = partial(nearest, "", [v.name for v in ontology.versions])
            yield table.problem(place, Fault("no version", f"{table.target} {label!r} has no version", remedy))


def encode_labels(table: Table, ontology: Ontology) -> tuple[NDArray[np.int64], list[Problem]]:
    """Class index of every row in its version, -1 where there is none, and the labels that are no classes."""
    versions = {version.name: version for version in ontology.versions}
    known: dict[tuple[str, str], int | Fault] = {}
    removed: dict[str, NDArray[np.bool_]] = {}
    codes = np.full(len(table), NO_LABEL, dtype=np.int64)
    problems = []
    for place, key in enumerate(zip(table["version"], table["label"], strict=True)):
        if key not in known:
            version, label = key
            if not label or version not in versions:
                known[key] = NO_LABEL
            else:
                if version not in removed:
                    removed[version] = impossible_classes(ontology, version)
                known[key] = _encode(versions[version], label, removed[version], ontology.newest.name)
        code = known[key]
        if isinstance(code, Fault):
            problems.append(table.problem(place, code))
        else:
            codes[place] = code
    return codes, problems


def _encode(version: Version, label: str, removed: NDArray[np.bool_], newest: str) -> int | Fault:
    if label not in version.lookup:
        remedy = partial(nearest, label, version.lookup)
        return Fault("unknown label", f"label {label!r} is not a class of {version.name}", remedy)
    try:
        index = version.index(label)
    except LecoError as error:
        return Fault("ambiguous label", f"label {error}")
    if index >= 0 and removed[index]:
        return impossible(label, version.name, newest)
    return index


def check_splits_and_periods(table: Table, periods: int) -> Iterator[Problem]:
    """A split is train, val or test; a period a whole number below `periods`; either may be empty."""
    for place, split in enumerate(table["split"]):
        if split and split not in SPLITS:
            fault = Fault("bad split", f"{split!r} is not a split", partial(nearest, split, SPLITS))
            yield table.problem(place, fault)
    for place, period in enumerate(table["period"]):
        if period and not (is_period(period) and int(period) < periods):
            message = f"period {period!r} is not a whole number from 0 to {periods - 1}: there is one per version"
            yield table.problem(place, Fault("bad period", message))


def is_period(text: str) -> bool:
    """Whether a cell is a whole number of a reasonable size."""
    return text.isascii() and text.isdigit() and len(text) <= _LONGEST_PERIOD
