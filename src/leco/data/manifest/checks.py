"""Checks of the cells of a manifest against the ontology: versions, labels, splits, periods."""

import hashlib
import os
import posixpath
import stat
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from leco.data.manifest.problems import Fault, Problem
from leco.data.manifest.table import Table
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


NO_PERIOD = -1
_TAIL = 4096  # bytes; enough to tell almost all files of equal size apart


def check_repeats(table: Table, samples: Sequence[int], targets: Sequence[str]) -> Iterator[Problem]:
    """A sample has one label per version: a repetition is a problem, and of two labels both are.

    `samples` are the samples of the rows (-1: none), `targets` their labels or normalised mask paths.
    """
    groups: dict[tuple[int, str], list[int]] = defaultdict(list)
    for place, key in enumerate(zip(samples, table["version"], strict=True)):
        if key[0] >= 0:
            groups[key].append(place)
    for (_, version), places in groups.items():
        if len(places) == 1:
            continue
        under = f" under {version}" if version else ""
        if len({targets[place] for place in places}) == 1:
            for place in places[1:]:
                fault = Fault("repeated sample", f"is the same sample as in {table.name(places[0])}{under}")
                yield table.problem(place, fault)
            continue
        second = next(place for place in places if targets[place] != targets[places[0]])
        for place in places:
            other = second if targets[place] == targets[places[0]] else places[0]
            what = f"the {table.target} {targets[place]!r}{under}, but {targets[other]!r} in {table.name(other)}"
            yield table.problem(place, Fault("contradicting labels", f"has {what}"))


def resolve_splits(table: Table, samples: Sequence[int]) -> tuple[dict[int, str], list[Problem]]:
    """The split of every sample: what any of its rows says, else train; of two splits the test set keeps the sample."""
    first = _first_of_each(samples, table["split"], SPLITS)
    chosen = {sample: max(places, key=SPLITS.index) for sample, places in first.items()}
    problems = []
    for place, (sample, split) in enumerate(zip(samples, table["split"], strict=True)):
        if sample >= 0 and split in SPLITS and split != chosen[sample]:
            better = chosen[sample]
            message = f"is in {split} here, but in {better} in {table.name(first[sample][better])}"
            problems.append(table.problem(place, Fault("leak", message)))
    return {sample: chosen.get(sample, "train") for sample in samples if sample >= 0}, problems


def resolve_periods(table: Table, samples: Sequence[int]) -> tuple[dict[int, int], list[Problem]]:
    """The period of every sample: what any of its rows says; a second one contradicts the first."""
    periods = [str(int(period)) if is_period(period) else "" for period in table["period"]]
    first = _first_of_each(samples, periods, set(periods) - {""})
    problems = []
    for place, (sample, period) in enumerate(zip(samples, periods, strict=True)):
        if sample >= 0 and period and period != (given := next(iter(first[sample]))):
            message = f"is in period {period} here, but in {given} in {table.name(first[sample][given])}"
            fault = Fault("contradicting periods", f"{message}; a sample belongs to one period")
            problems.append(table.problem(place, fault))
    found = {sample: int(next(iter(first[sample]))) if sample in first else NO_PERIOD for sample in samples}
    return {sample: period for sample, period in found.items() if sample >= 0}, problems


def _first_of_each(
    samples: Sequence[int], values: Sequence[str], valid: Sequence[str] | set[str]
) -> dict[int, dict[str, int]]:
    """For every sample, the valid values its rows have, and the first row of each."""
    first: dict[int, dict[str, int]] = {}
    for place, (sample, value) in enumerate(zip(samples, values, strict=True)):
        if sample >= 0 and value in valid:
            first.setdefault(sample, {}).setdefault(value, place)
    return first


def identical_files(root: Path, sizes: Mapping[str, int], splits: Mapping[str, str]) -> dict[str, Fault]:
    """Files with the bytes of another one in a split that should be kept clean of them (test, then val)."""
    faults = {}
    for files in same_bytes(root, sizes, lambda some: len({splits[file] for file in some}) > 1):
        best = max(files, key=lambda file: SPLITS.index(splits[file]))
        for file in files:
            if splits[file] != splits[best]:
                message = f"is in {splits[file]} and has the very bytes of {best}, which is in {splits[best]}"
                faults[file] = Fault("leak", message)
    return faults


def same_bytes(root: Path, sizes: Mapping[str, int], matters: Callable[[list[str]], bool]) -> list[list[str]]:
    """Groups of files, of given sizes, that have the very same bytes; those that do not matter are not looked at.

    Only files of equal size are opened, and only those with the same end are read whole.
    """
    same_size: dict[int, list[str]] = defaultdict(list)
    for file, size in sizes.items():
        same_size[size].append(file)
    groups = [files for files in same_size.values() if matters(files)]
    for start in (-_TAIL, 0):
        finer = []
        for files in groups:
            same: dict[bytes, list[str]] = defaultdict(list)
            for file in files:
                same[_digest(root / file, max(0, sizes[file] + start) if start else 0)].append(file)
            finer += [some for some in same.values() if matters(some)]
        groups = finer
    return groups


def _digest(path: Path, start: int) -> bytes:
    try:
        with path.open("rb") as file:
            file.seek(start)
            return hashlib.file_digest(file, "blake2b").digest()
    except OSError:  # decoding it says so
        return str(path).encode()


LEAVES = "leaves the root"


def normalise(value: str) -> str | Fault:
    """Write a relative path in one way only, so that a sample is recognised.

    >>> normalise("./photos//../a.png")
    'a.png'
    >>> normalise("../a.png").kind
    'leaves the root'
    """
    path = posixpath.normpath(value)
    if path.startswith(("/", "../")) or path == ".." or value[1:3] in (":\\", ":/"):
        return Fault(LEAVES, "leaves the root folder; paths are relative to it and stay below it")
    return path


def sample_path(sample: str, kind: str) -> str:
    """A sample in the one way of writing it, by which samples are told apart; as it stands if there is none.

    >>> sample_path("./a.npy#3", "features")
    'a.npy#3'
    """
    file, mark, row = sample.partition("#") if kind == "features" else (sample, "", "")
    found = normalise(file)
    return sample if isinstance(found, Fault) else f"{found}{mark}{row}"


def look(root: Path, paths: Iterable[str]) -> tuple[dict[str, int], dict[str, Fault]]:
    """Sizes of the ordinary files among normalised paths, and what is wrong with the others.

    Sizes are needed of every file, so listing folders would save no system call over one `lstat` each.
    """
    real_root = os.path.realpath(root)
    outside: dict[str, bool] = {}  # by folder
    sizes: dict[str, int] = {}
    faults: dict[str, Fault] = {}
    for path in paths:
        folder = posixpath.dirname(path)
        full = f"{real_root}/{path}"
        try:
            if folder not in outside:
                outside[folder] = not _is_inside(f"{real_root}/{folder}", real_root)
            found = os.lstat(full)
            leaves = outside[folder]
            if stat.S_ISLNK(found.st_mode):
                leaves |= not _is_inside(full, real_root)
                found = os.stat(full)  # noqa: PTH116  (a Path for each of 100,000 files costs more than the call)
        except (OSError, ValueError) as error:  # ValueError: a NUL character
            faults[path] = _unreadable(real_root, path, error)
            continue
        if leaves:
            message = "is a link that leaves the root folder; copy it there, or give the folder that holds both as root"
            faults[path] = Fault(LEAVES, message)
        elif not stat.S_ISREG(found.st_mode):
            what = "a folder" if stat.S_ISDIR(found.st_mode) else "not an ordinary file"
            faults[path] = Fault("not a file", f"is {what}")
        elif not found.st_size:
            faults[path] = Fault("empty file", "is empty (0 bytes)")
        else:
            sizes[path] = found.st_size
    return sizes, faults


def _is_inside(path: str, real_root: str) -> bool:
    return os.path.commonpath([os.path.realpath(path), real_root]) == real_root


def _unreadable(root: str, path: str, error: OSError | ValueError) -> Fault:
    if isinstance(error, FileNotFoundError | NotADirectoryError | ValueError):
        return Fault("missing file", "there is no such file", partial(_nearest_file, root, path))
    return Fault("missing file", f"cannot be read: {error.strerror}")


def _nearest_file(root: str, path: str) -> str:
    if "\\" in path:
        return "; write / between folders, not \\"
    folder, name = posixpath.split(path)
    try:
        names = sorted(os.listdir(f"{root}/{folder}"))  # noqa: PTH208
        return "; it is a link to nothing" if name in names else nearest(name, names)
    except (OSError, ValueError):
        return f"; there is no folder {folder!r}"
