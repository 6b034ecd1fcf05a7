"""Checks of the cells of a manifest: versions and labels, splits and periods, repetitions, leaks, paths."""

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

from leco.data import SPLITS
from leco.data.manifest.table import Fault, Problem, Table
from leco.errors import LecoError, nearest
from leco.ontology.ontology import Ontology
from leco.ontology.version import NO_LABEL, Version

NO_PERIOD = -1
OUTSIDE = "outside the root"
_LONGEST_PERIOD = 9  # digits
_TAIL = 4096  # bytes; enough to tell almost all files of equal size apart


def impossible_classes(ontology: Ontology, version: str) -> NDArray[np.bool_]:
    """Return a mask of the classes that no newest class comes from and that were never ignored."""
    table = ontology.transition(ontology.newest.name, version).sparse
    explained = np.bincount(table.indices, minlength=table.shape[1]) > 0
    return ~explained & ~ontology.ended(version)[0]


def impossible(label: str, version: str, newest: str) -> Fault:
    """Return the fault of a label whose class was removed."""
    return Fault(
        "impossible label",
        f"label {label!r} of {version} is impossible: no class of {newest} comes from it; name one with `from`, remove "
        f"the sample, or list {label!r} under `ignore` of the version that dropped it",
    )


def check_versions(table: Table, ontology: Ontology) -> Iterator[Problem]:
    """Yield versions that the ontology does not have, and labels without a version."""
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
    """Return the class index of every row, -1 where it has no label, and the labels that are not classes."""
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
    """Yield splits other than train, val and test, and periods other than 0 to `periods` - 1; both may be empty."""
    for place, split in enumerate(table["split"]):
        if split and split not in SPLITS:
            fault = Fault("bad split", f"{split!r} is not a split", partial(nearest, split, SPLITS))
            yield table.problem(place, fault)
    for place, period in enumerate(table["period"]):
        if period and not (_is_period(period) and int(period) < periods):
            message = f"period {period!r} is not an integer from 0 to {periods - 1}; each version has one"
            yield table.problem(place, Fault("bad period", message))


def _is_period(text: str) -> bool:
    """Return whether a cell is a non-negative integer of reasonable size."""
    return text.isascii() and text.isdigit() and len(text) <= _LONGEST_PERIOD


def check_repeats(table: Table, samples: Sequence[str], targets: Sequence[str]) -> Iterator[Problem]:
    """Yield repetitions of a sample under the same version; if their labels differ, all of them are wrong.

    `samples` are the normalised inputs of the rows ("": none), `targets` their labels or normalised mask paths.
    """
    first: dict[tuple[str, str], int] = {}
    repeated: dict[tuple[str, str], list[int]] = {}
    for place, key in enumerate(zip(samples, table["version"], strict=True)):
        if key[0] and first.setdefault(key, place) != place:
            repeated.setdefault(key, [first[key]]).append(place)
    for (_, version), places in repeated.items():
        under = f" under {version}" if version else ""
        if len({targets[place] for place in places}) == 1:
            for place in places[1:]:
                fault = Fault("repeated sample", f"repeats the sample of {table.name(places[0])}{under}")
                yield table.problem(place, fault)
            continue
        second = next(place for place in places if targets[place] != targets[places[0]])
        for place in places:
            other = second if targets[place] == targets[places[0]] else places[0]
            message = f"{table.target} {targets[place]!r}{under} contradicts {targets[other]!r} in {table.name(other)}"
            yield table.problem(place, Fault("contradicting labels", message))


def resolve_splits(table: Table, samples: Sequence[str]) -> tuple[dict[str, str], list[Problem]]:
    """Return the split of every sample (train if no row gives one), and the rows that give another one."""
    first = _first_of_each(samples, table["split"], SPLITS)
    chosen = {sample: max(places, key=SPLITS.index) for sample, places in first.items()}
    problems = []
    for place, (sample, split) in enumerate(zip(samples, table["split"], strict=True)):
        if sample and split in SPLITS and split != chosen[sample]:
            better = chosen[sample]
            message = f"is in split {split} here, but in {better} in {table.name(first[sample][better])}"
            problems.append(table.problem(place, Fault("leak", message)))
    return {sample: chosen.get(sample, "train") for sample in samples if sample}, problems


def resolve_periods(table: Table, samples: Sequence[str]) -> tuple[dict[str, int], list[Problem]]:
    """Return the period of every sample (`NO_PERIOD` if no row gives one), and the rows that give another one."""
    periods = [str(int(period)) if _is_period(period) else "" for period in table["period"]]
    first = _first_of_each(samples, periods, set(periods) - {""})
    problems = []
    for place, (sample, period) in enumerate(zip(samples, periods, strict=True)):
        if sample and period and period != (given := next(iter(first[sample]))):
            message = f"is in period {period} here, but in {given} in {table.name(first[sample][given])}"
            fault = Fault("contradicting periods", f"{message}; a sample belongs to one period")
            problems.append(table.problem(place, fault))
    found = {sample: int(next(iter(periods))) for sample, periods in first.items()}
    return {sample: found.get(sample, NO_PERIOD) for sample in samples if sample}, problems


def _first_of_each(
    samples: Sequence[str], values: Sequence[str], valid: Sequence[str] | set[str]
) -> dict[str, dict[str, int]]:
    """Return, for every sample, the valid values in its rows and the first row of each."""
    first: dict[str, dict[str, int]] = {}
    for place, (sample, value) in enumerate(zip(samples, values, strict=True)):
        if sample and value in valid:
            first.setdefault(sample, {}).setdefault(value, place)
    return first


def identical_files(root: Path, sizes: Mapping[str, int], splits: Mapping[str, str]) -> dict[str, Fault]:
    """Return the files that are byte-identical to a file of test or, failing that, val, but are in another split."""
    faults = {}
    for files in same_bytes(root, sizes, lambda some: len({splits[file] for file in some}) > 1):
        best = max(files, key=lambda file: SPLITS.index(splits[file]))
        for file in files:
            if splits[file] != splits[best]:
                message = f"is in {splits[file]}, but is byte-identical to {best}, which is in {splits[best]}"
                faults[file] = Fault("leak", message)
    return faults


def same_bytes(root: Path, sizes: Mapping[str, int], matters: Callable[[list[str]], bool]) -> list[list[str]]:
    """Return groups of byte-identical files, given their sizes; groups that do not matter are skipped.

    Only files of equal size are opened, and only those with the same last bytes are read completely.
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
    except OSError:  # reported when it is decoded
        return str(path).encode()


def normalise(value: str) -> str | Fault:
    """Return the canonical form of a relative path, which identifies a sample.

    >>> normalise("./photos//../a.png")
    'a.png'
    >>> normalise("../a.png").kind
    'outside the root'
    """
    path = posixpath.normpath(value)
    if path.startswith(("/", "../")) or path == ".." or value[1:3] in (":\\", ":/"):
        return Fault(OUTSIDE, "is outside the root folder; paths must be relative and stay below it")
    return path


def sample_path(sample: str, kind: str) -> str:
    """Return the canonical form of a sample, or the sample unchanged if it has none.

    >>> sample_path("./a.npy#3", "features")
    'a.npy#3'
    """
    file, mark, row = sample.partition("#") if kind == "features" else (sample, "", "")
    found = normalise(file)
    return sample if isinstance(found, Fault) else f"{found}{mark}{row}"


def look(root: Path, paths: Iterable[str]) -> tuple[dict[str, int], dict[str, Fault]]:
    """Return the sizes of the regular files among normalised paths, and the faults of the others.

    The size of every file is needed, so listing folders would save no system calls over one `lstat` per file.
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
            message = "is a symlink to outside the root folder; copy the file, or choose a root that contains both"
            faults[path] = Fault(OUTSIDE, message)
        elif not stat.S_ISREG(found.st_mode):
            what = "a folder" if stat.S_ISDIR(found.st_mode) else "not a regular file"
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
        return Fault("missing file", "no such file", partial(_nearest_file, root, path))
    return Fault("missing file", f"cannot be read: {error.strerror}")


def _nearest_file(root: str, path: str) -> str:
    if "\\" in path:
        return "; separate folders by /, not \\"
    folder, name = posixpath.split(path)
    try:
        names = sorted(os.listdir(f"{root}/{folder}"))  # noqa: PTH208
        return "; it is a broken symlink" if name in names else nearest(name, names)
    except (OSError, ValueError):
        return f"; the folder {folder!r} does not exist"
