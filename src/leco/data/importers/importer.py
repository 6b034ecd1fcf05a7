"""Samples as every importer returns them, and how they are cleaned before they become a manifest."""

import os
import random
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

from leco.data import SPLITS
from leco.data.images import SUFFIXES
from leco.data.manifest.checks import look, normalise, same_bytes
from leco.data.manifest.table import Fault, Problem, Table
from leco.errors import LecoError, and_more, printable
from leco.ontology.schema import name_problem
from leco.ontology.version import canonical

SPLITS_BY_NAME = {
    **dict.fromkeys(("train", "training"), "train"),
    **dict.fromkeys(("val", "valid", "validation", "dev"), "val"),
    **dict.fromkeys(("test", "testing"), "test"),
}
SEED = 0
SHARE = 5  # one in this many newest samples is for testing
_SHOWN = 5  # examples of what was left out
_LONGEST = 120  # characters of each


class Sample(NamedTuple):
    """One label of one image."""

    path: str  # relative to the root of its source, with / between folders
    label: str  # "" for none
    version: str  # "" if there is no label
    split: str = ""  # train, val or test; "" if unknown


@dataclass
class LeftOut:
    """Items that were left out, by reason."""

    items: dict[str, list[str]] = field(default_factory=dict)

    def add(self, reason: str, item: str) -> None:
        """Add an item."""
        self.items.setdefault(reason, []).append(item)

    def __len__(self) -> int:
        return sum(map(len, self.items.values()))

    def summary(self) -> list[str]:
        """Return a line for each reason, with the number of items and the first few."""
        lines = []
        for reason, items in self.items.items():
            shown = and_more([printable(item[:_LONGEST]) for item in items], _SHOWN)
            lines.append(f"{len(items):,} left out: {reason}: {', '.join(shown)}")
        return lines

    def to_text(self) -> str:
        """Return a line for each item."""
        return "".join(f"{reason}: {printable(item)}\n" for reason, items in self.items.items() for item in items)


@dataclass(frozen=True)
class Source:
    """The samples of all versions, oldest first, the folder that their paths are relative to, and what was left out."""

    root: Path
    versions: tuple[str, ...]
    samples: list[Sample]
    left_out: LeftOut = field(default_factory=LeftOut)
    remarks: list[str] = field(default_factory=list)  # assumptions the user should know of

    def classes(self) -> dict[str, list[str]]:
        """Return the classes of each version's labels, in alphabetical order."""
        found: dict[str, set[str]] = {version: set() for version in self.versions}
        for sample in self.samples:
            if sample.label:
                found[sample.version].add(sample.label)
        return {version: sorted(names) for version, names in found.items()}

    def table(self) -> Table:
        """Return the samples as a table for `read_manifest`, sorted by version; what was left out is `broken`."""
        position = {version: number for number, version in enumerate((*self.versions, ""))}
        rows = sorted(self.samples, key=lambda sample: (position[sample.version], sample.path))
        columns = zip(*rows, strict=True) if rows else [()] * 4
        named = zip(("image", "label", "version", "split"), map(list, columns), strict=True)
        broken = tuple(
            Problem(None, item, reason, reason.partition(";")[0])
            for reason, items in self.left_out.items.items()
            for item in items
        )
        return Table(self.root, dict(named), broken=broken)


@dataclass(frozen=True)
class Options:
    """Options of an importer besides its files."""

    folder: Path  # where to write images that are embedded in a source
    images: Path | None = None  # where the images are, if not beside the files
    path_column: str | None = None
    label_column: str | None = None


def version_names(paths: Sequence[Path]) -> tuple[str, ...]:
    """Return unique names of versions, after their files or folders.

    >>> version_names([Path("a/labels.csv"), Path("b/labels.csv")])
    ('labels', 'labels-2')
    """
    names: list[str] = []
    for number, path in enumerate(paths, start=1):
        name = path.resolve().name if path.is_dir() else path.stem
        if problem := name_problem(name):
            raise LecoError(f"{path}: the name is used for a version, which {problem}; rename it")
        while name in names:
            name = f"{name}-{number}"
        names.append(name)
    return tuple(names)


def check_paths(paths: Sequence[Path]) -> None:
    """Refuse paths that do not exist or are given twice."""
    seen: set[str] = set()
    for path in paths:
        if not path.exists():
            raise LecoError(f"{path}: no such file or folder")
        if os.path.realpath(path) in seen:
            raise LecoError(f"{path}: is given twice; each version needs its own")
        seen.add(os.path.realpath(path))


def common_root(folders: Sequence[Path]) -> Path:
    """Return the folder that contains all folders, unless it is the root of the file system."""
    real = [folder.resolve() for folder in folders]
    root = Path(os.path.commonpath(real))
    if root == Path(root.anchor):
        names = " and ".join(dict.fromkeys(map(str, real)))
        raise LecoError(f"{names}: only {root} contains all images; move or copy them into one folder")
    return root


def prefix(root: Path, folder: Path) -> str:
    """Return the prefix that makes paths in a folder relative to a root that contains it."""
    below = folder.resolve().relative_to(root).as_posix()
    return "" if below == "." else f"{below}/"


def entry(path: Path, place: str, record: object, key: str, kinds: type | tuple[type, ...]) -> Any:
    """Return the value of a key in a record of a JSON file, checking its type."""
    where = f"{path}: {place}: " if place else f"{path}: "
    if not isinstance(record, Mapping):
        raise LecoError(f"{where}must be an object, not {short(record)}")
    if key not in record:
        raise LecoError(f"{where}has no {key!r}")
    value = record[key]
    if not isinstance(value, kinds) or isinstance(value, bool):
        raise LecoError(f"{where}{key!r} has the wrong type: {short(value)}")
    return value


def short(value: object) -> str:
    """Return a value, or its JSON type, in a few characters."""
    if isinstance(value, Mapping | list):
        return "an object" if isinstance(value, Mapping) else "a list"
    return repr(value) if len(repr(value)) <= 60 else f"{repr(value)[:57]}…"


class Finder:
    """Finds files below a folder by path or, failing that, by name."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder.resolve()

    def at(self, reference: str) -> str | Fault:
        """Return the path of a reference relative to the folder; it may be absolute, but must be below the folder."""
        path = reference.replace("\\", "/") if "/" not in reference else reference  # as Windows writes them
        if path.startswith(f"{self.folder.as_posix().rstrip('/')}/"):
            path = path[len(self.folder.as_posix().rstrip("/")) + 1 :]
        return normalise(path)

    def find(self, *references: str) -> str | Fault:
        """Return the file that one of several spellings refers to; of several with its name, the one in that folder."""
        for reference in references:
            path = self.at(reference)
            if isinstance(path, str) and self._exists(path):
                return path
        for reference in references:
            parts = [part for part in reference.replace("\\", "/").split("/") if part]
            candidates = self._by_name.get(parts[-1], []) if parts else []
            for depth in range(2, len(parts) + 1):
                matching = [c for c in candidates if c.split("/")[-depth:] == parts[-depth:]]
                candidates = matching or candidates
            if len(candidates) == 1:
                return candidates[0]
            if candidates:
                return Fault("ambiguous", "several files have this name")
        return Fault("missing file", "no such file")

    def _exists(self, path: str) -> bool:
        try:
            return (self.folder / path).is_file()
        except (OSError, ValueError):  # a name too long, or with a NUL character
            return False

    @cached_property
    def _by_name(self) -> dict[str, list[str]]:
        found: dict[str, list[str]] = defaultdict(list)
        for folder, inner, files in os.walk(self.folder):
            inner[:] = sorted(name for name in inner if not name.startswith("."))
            below = os.path.relpath(folder, self.folder)
            for name in files:
                found[name].append(name if below == "." else f"{below}/{name}")
        return found


def clean(source: Source) -> Source:
    """Leave out whatever a manifest would refuse.

    Byte-identical files are one sample. A sample with several labels in one version loses them all, as none can be
    trusted; one in several splits is moved to `test` or, failing that, to `val`.
    """
    left_out, remarks = source.left_out, list(source.remarks)
    fit = _spelled_alike([sample for sample in source.samples if not _unfit(sample, left_out)])
    sizes, faults = look(source.root, dict.fromkeys(sample.path for sample in fit))
    for path, fault in faults.items():
        left_out.add(fault.message, path)
    first = {file: files[0] for files in same_bytes(source.root, sizes, lambda some: len(some) > 1) for file in files}
    existing = [s._replace(path=first.get(s.path, s.path)) for s in fit if s.path in sizes]
    if copies := sum(file != kept for file, kept in first.items()):
        remarks.append(f"{copies:,} files are byte-identical to another one: each such image is one sample")
    samples = _one_label_each(existing, left_out)
    splits: dict[str, set[str]] = defaultdict(set)
    for sample in existing:
        if sample.split:
            splits[sample.path].add(sample.split)
    if several := sum(len(found) > 1 for found in splits.values()):
        remarks.append(f"{several:,} images in several splits were moved to test, or else to val")
    chosen = {path: max(found, key=SPLITS.index) for path, found in splits.items()}
    cleaned = replace(source, samples=[s._replace(split=chosen.get(s.path, "")) for s in samples], remarks=remarks)
    for version, classes in cleaned.classes().items():
        if not classes:
            raise LecoError("; ".join([f"no usable image is labelled in {version}", *left_out.summary()]))
    return cleaned


def _spelled_alike(samples: list[Sample]) -> list[Sample]:
    """Give labels that differ in the spelling of accents only the first one."""
    first: dict[str, str] = {}
    return [sample._replace(label=first.setdefault(canonical(sample.label), sample.label)) for sample in samples]


def _unfit(sample: Sample, left_out: LeftOut) -> bool:
    """Leave a sample out if it cannot be written to a manifest."""
    if not _fits_a_cell(sample.path) or sample.path != normalise(sample.path):
        left_out.add("a path that is not UTF-8, has line breaks or is padded with blanks", sample.path)
    elif not sample.path.lower().endswith(SUFFIXES):
        left_out.add("not an image", sample.path)
    elif sample.label and (problem := name_problem(sample.label)):
        left_out.add(f"a label that cannot be a class name: it {problem}", sample.path)
    else:
        return False
    return True


def _fits_a_cell(path: str) -> bool:
    try:
        path.encode()
    except UnicodeEncodeError:
        return False
    return path == path.strip() and not {"\n", "\r"}.intersection(path)


def _one_label_each(samples: list[Sample], left_out: LeftOut) -> list[Sample]:
    """Keep one row per image and version; a row without a label only if its image has no other."""
    labels: dict[tuple[str, str], dict[str, Sample]] = defaultdict(dict)
    labelled = {sample.path for sample in samples if sample.label}
    for sample in samples:
        if sample.label or sample.path not in labelled:
            labels[sample.path, sample.version].setdefault(sample.label, sample)
    kept: list[Sample] = []
    for (path, version), found in labels.items():
        if len(found) == 1:
            kept.extend(found.values())
        else:
            left_out.add("several labels in one version", f"{path}: {', '.join(sorted(found))} in {version}")
    return kept


def add_test_split(source: Source) -> tuple[Source, int]:
    """Move a fifth of every newest class to `test`, unless the split exists; return also the number of images.

    Of fewer than three images, none is moved: they are needed for training.
    """
    newest = source.versions[-1]
    candidates: dict[str, list[str]] = defaultdict(list)
    for sample in source.samples:
        if sample.version == newest:
            if sample.split == "test":
                return source, 0
            if sample.split != "val":
                candidates[sample.label].append(sample.path)
    moved: set[str] = set()
    for label, paths in sorted(candidates.items()):
        # One seed per class: a new class does not change the test images of the others.
        moved.update(random.Random(f"{SEED} {label}").sample(sorted(paths), round(len(paths) / SHARE)))
    samples = [s._replace(split="test" if s.path in moved else s.split or "train") for s in source.samples]
    return replace(source, samples=samples), len(moved)
