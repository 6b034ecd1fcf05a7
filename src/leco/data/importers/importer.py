"""What every source becomes: samples with a path, a label, its version and, where it is known, a split."""

import os
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

from leco.data.manifest.checks import normalise
from leco.data.manifest.problems import Fault
from leco.errors import LecoError, printable
from leco.ontology.schema import name_problem

SPLITS_BY_NAME = {
    **dict.fromkeys(("train", "training"), "train"),
    **dict.fromkeys(("val", "valid", "validation", "dev"), "val"),
    **dict.fromkeys(("test", "testing"), "test"),
}
_SHOWN = 5  # examples of what was left out
_LONGEST = 120  # characters of each


class Sample(NamedTuple):
    """One label of one image."""

    path: str  # below the root of its source, / between folders
    label: str  # "" for none
    version: str  # "" where there is no label
    split: str = ""  # train, val or test; "" where the source does not say


@dataclass
class LeftOut:
    """What was not taken, by the reason why."""

    items: dict[str, list[str]] = field(default_factory=dict)

    def add(self, reason: str, item: str) -> None:
        """Note one more."""
        self.items.setdefault(reason, []).append(item)

    def __len__(self) -> int:
        return sum(map(len, self.items.values()))

    def summary(self) -> list[str]:
        """A line for each reason: how many, and the first ones."""
        lines = []
        for reason, items in self.items.items():
            shown = ", ".join(printable(item[:_LONGEST]) for item in items[:_SHOWN])
            lines.append(f"{len(items):,} left out: {reason}: {shown}{', …' if len(items) > _SHOWN else ''}")
        return lines

    def to_text(self) -> str:
        """All of it, a line each."""
        return "".join(f"{reason}: {printable(item)}\n" for reason, items in self.items.items() for item in items)


@dataclass(frozen=True)
class Source:
    """The samples of all versions, oldest version first; what their paths are relative to, and what was left out."""

    root: Path
    versions: tuple[str, ...]
    samples: list[Sample]
    left_out: LeftOut = field(default_factory=LeftOut)
    remarks: list[str] = field(default_factory=list)  # what was supposed of it

    def classes(self) -> dict[str, list[str]]:
        """The classes that each version's labels name, in alphabetical order."""
        found: dict[str, set[str]] = {version: set() for version in self.versions}
        for sample in self.samples:
            if sample.label:
                found[sample.version].add(sample.label)
        return {version: sorted(names) for version, names in found.items()}


@dataclass(frozen=True)
class Options:
    """What a reader may be told besides its files."""

    folder: Path  # where images may be written that are embedded in a source
    images: Path | None = None  # where the images are, if not beside the files
    path_column: str | None = None
    label_column: str | None = None


def version_names(paths: Sequence[Path]) -> tuple[str, ...]:
    """Name versions after their files or folders, each in its own way.

    >>> version_names([Path("a/labels.csv"), Path("b/labels.csv")])
    ('labels', 'labels-2')
    """
    names: list[str] = []
    for number, path in enumerate(paths, start=1):
        name = path.resolve().name if path.is_dir() else path.stem
        if problem := name_problem(name):
            raise LecoError(f"{path}: its name becomes that of a version, but {problem}; rename it")
        while name in names:
            name = f"{name}-{number}"
        names.append(name)
    return tuple(names)


def check_paths(paths: Sequence[Path]) -> None:
    """Refuse what is not there, or is named twice."""
    seen: set[str] = set()
    for path in paths:
        if not path.exists():
            raise LecoError(f"{path}: there is no such file or folder")
        if os.path.realpath(path) in seen:
            raise LecoError(f"{path}: is given twice; each version has its own")
        seen.add(os.path.realpath(path))


def common_root(folders: Sequence[Path]) -> Path:
    """The folder that holds some real folders; not all that is on a machine, which no manifest should reach."""
    real = [folder.resolve() for folder in folders]
    root = Path(os.path.commonpath(real))
    if root == Path(root.anchor):
        names = " and ".join(dict.fromkeys(map(str, real)))
        raise LecoError(f"{names}: no folder but {root} holds all images; move, or copy, them into one")
    return root


def prefix(root: Path, folder: Path) -> str:
    """What to put before the paths in a folder, so that they are relative to a root that holds it."""
    below = folder.resolve().relative_to(root).as_posix()
    return "" if below == "." else f"{below}/"


def entry(path: Path, place: str, record: object, key: str, kinds: type | tuple[type, ...]) -> Any:
    """What a record of a JSON file has under a key; a wrong one is refused with its place."""
    if not isinstance(record, Mapping):
        raise LecoError(f"{path}: {place} must be a table, not {short(record)}")
    if key not in record:
        raise LecoError(f"{path}: {place} has no {key!r}")
    value = record[key]
    if not isinstance(value, kinds) or isinstance(value, bool):
        raise LecoError(f"{path}: {place}: {key!r} must not be {short(value)}")
    return value


def short(value: object) -> str:
    """A value, or what kind of thing it is, in few characters."""
    if isinstance(value, Mapping | list):
        return "a table" if isinstance(value, Mapping) else "a list"
    return repr(value) if len(repr(value)) <= 60 else f"{repr(value)[:57]}…"


MISSING = "there is no such file"
AMBIGUOUS = "several files have that name"


class Finder:
    """Finds files below a folder, by their path or else by their name."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder.resolve()

    def at(self, reference: str) -> str | Fault:
        """The path of a reference that is one, relative to the folder or absolute, if it stays below the folder."""
        path = reference.replace("\\", "/") if "/" not in reference else reference  # as Windows writes them
        if path.startswith(f"{self.folder.as_posix().rstrip('/')}/"):
            path = path[len(self.folder.as_posix().rstrip("/")) + 1 :]
        return normalise(path)

    def find(self, *references: str) -> str | Fault:
        """The file that one of some ways to call it leads to; of several with its name, the one whose folders fit."""
        for reference in references:
            path = self.at(reference)
            if isinstance(path, str) and self._is_there(path):
                return path
        for reference in references:
            parts = [part for part in reference.replace("\\", "/").split("/") if part]
            candidates = self._by_name.get(parts[-1], []) if parts else []
            for depth in range(2, len(parts) + 1):
                fitting = [c for c in candidates if c.split("/")[-depth:] == parts[-depth:]]
                candidates = fitting or candidates
            if len(candidates) == 1:
                return candidates[0]
            if candidates:
                return Fault("ambiguous", AMBIGUOUS)
        return Fault("missing file", MISSING)

    def _is_there(self, path: str) -> bool:
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
