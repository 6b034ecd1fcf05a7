"""Checks of data before training: all problems at once."""

from collections import defaultdict
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from leco.data import SPLITS
from leco.data.manifest.decode import MaskCounts, mask_counts
from leco.data.manifest.manifest import Manifest, NoRowsError, read_manifest
from leco.data.manifest.table import Problem, Table, read_table
from leco.data.vectors import Tick
from leco.errors import LecoError, and_more
from leco.ontology.files import load_all
from leco.ontology.lint import remarks
from leco.ontology.ontology import Ontology
from leco.ontology.transition import Transition
from leco.ontology.version import Version
from leco.text import plural

if TYPE_CHECKING:
    from leco.dataset.dataset import ManifestDataset

LOOKED_INTO = 5_000  # images to decode: a hundred thousand would take minutes


@dataclass(frozen=True)
class Finding:
    """A problem, warning or note, and how often it occurs."""

    about: str  # the experiment, the ontology, the manifest, or the labels
    message: str
    count: int = 1

    def __str__(self) -> str:
        return self.message


@dataclass
class Checked:
    """Findings about data before training."""

    file: Path
    problems: list[Finding] = field(default_factory=list)  # training is impossible
    warnings: list[Finding] = field(default_factory=list)  # the model may be worse than it could be
    notes: list[Finding] = field(default_factory=list)
    ontology: Ontology | None = None
    manifest: Manifest | None = None  # without the rows that have a problem
    masks: MaskCounts | None = None  # classes that occur in masks

    @property
    def ok(self) -> bool:
        """Whether there are no problems."""
        return not self.problems

    def add(self, where: list[Finding], about: str, *messages: str) -> None:
        """Add messages to the problems, warnings or notes."""
        where += [Finding(about, message) for message in messages]

    def __repr__(self) -> str:
        parts = {"problem": self.problems, "warning": self.warnings, "note": self.notes}
        lines = [f"{what}: {finding}" for what, findings in parts.items() for finding in findings]
        return "\n".join([f"{self.file}: {'ok' if self.ok else plural(len(self.problems), 'problem')}", *lines])


def check_dataset(data: "ManifestDataset", most: int | None = LOOKED_INTO) -> Checked:
    """Check the ontology, the manifest, its files and its labels; decode at most `most` images."""
    found = Checked(data.path)
    if data.ontology_path is not None:
        check_ontology(found, data.ontology_path)
    else:
        try:
            found.ontology = data.ontology
        except LecoError as error:
            found.add(found.problems, "ontology", str(error))
    try:
        table = data.table
    except LecoError as error:
        found.add(found.problems, "manifest", str(error))
        return found
    check_rows(found, table, data.root, most)
    if found.ontology and found.manifest:
        check_labels(found, found.ontology, found.manifest)
    return found


def check_ontology(found: Checked, path: Path) -> None:
    """Read the ontology, and list all problems with it and the origins that nobody has checked."""
    found.ontology, wrong, guessed = load_all(path)
    found.add(found.problems, "ontology", *wrong)
    if guessed:
        number = plural(len(guessed), "origin was", "origins were")
        listed = ", ".join(and_more(guessed, _SHOWN))
        remedy = f"remove `guessed: true` once you have checked {'it' if len(guessed) == 1 else 'them'}"
        found.add(found.warnings, "ontology", f"{path}: {number} guessed by leco init: {listed}; {remedy}")


def check_manifest(
    found: Checked, path: Path, root: Path, most: int | None = LOOKED_INTO, tick: Tick = lambda *_: None
) -> None:
    """Read the manifest, and check its rows and files."""
    try:
        table = read_table(path)
    except LecoError as error:
        headline, *lines = str(error).split("\n")
        found.add(found.problems, "manifest", *([f"{path}: {line.strip()}" for line in lines] or [headline]))
        return
    check_rows(found, table, root, most, tick)


def check_rows(
    found: Checked,
    table: Table,
    root: Path,
    most: int | None,
    tick: Tick = lambda *_: None,
) -> None:
    """Check rows and files; without an ontology, everything except the labels."""
    path = table.source
    ontology = found.ontology or _permissive_ontology(table)
    decode = found.ontology is not None or table.target == "label"
    try:
        manifest, problems = read_manifest(
            table, ontology, root=root, decode=decode, skip_bad=True, tick=tick, most=most
        )
    except NoRowsError as error:
        found.problems += _grouped(path, error.problems.found)
        found.add(found.problems, "manifest", f"{path}: no rows are left")
        return
    except LecoError as error:
        headline, *lines = str(error).split("\n")
        found.add(found.problems, "manifest", *([f"{path}: {line.strip()}" for line in lines] or [headline]))
        return
    usable = [p for p in problems.found if found.ontology or p.kind != "bad period"]  # unknown without an ontology
    found.problems += _grouped(path, usable)
    found.manifest = manifest
    found.masks = mask_counts(manifest, ontology) if manifest.masks and found.ontology else None
    images = len(set(table["image"])) if table.kind == "image" else 0
    if most is not None and images > most:
        found.add(found.notes, "manifest", f"{path}: {most:,} of {images:,} images were decoded, drawn at random")


def _grouped(path: Path, problems: list[Problem]) -> list[Finding]:
    """Group rows with the same problem into one finding, which names the first."""
    groups: dict[tuple[str, str], list[Problem]] = defaultdict(list)
    for problem in problems:
        groups[problem.kind, problem.message].append(problem)
    findings = []
    for same in groups.values():
        more = f" (and {len(same) - 1:,} more such rows)" if len(same) > 1 else ""
        findings.append(Finding("manifest", f"{path}: {same[0]}{more}", len(same)))
    return findings


def _permissive_ontology(table: Table) -> Ontology:
    """An ontology that accepts every label, to check the rest of a manifest without its own."""
    classes = tuple(dict.fromkeys(filter(None, table["label"]))) or ("none",)
    names = dict.fromkeys(filter(None, table["version"])) or {"none": None}
    versions = tuple(Version(name, classes) for name in names)
    same = sparse.eye_array(len(classes), format="csr")
    steps = tuple(Transition(old, new, same) for old, new in pairwise(versions))
    return Ontology("unknown", versions, steps)


def check_labels(found: Checked, ontology: Ontology, manifest: Manifest, learns_from_history: bool = True) -> None:
    """Check that there are enough labels to learn and to test every class."""
    changes = [ontology.changes(step.old.name, step.new.name) for step in ontology.steps]
    found.add(found.notes, "ontology", *remarks(ontology, changes))
    warnings = enough_labels(manifest, ontology, learns_from_history, found.masks)
    found.add(found.warnings, "labels", *warnings)
    if not (manifest.split == "val").any():
        held_out = "a fifth of each version's training samples is held out for model selection"
        found.add(found.notes, "labels", f"no val split: {held_out}")


FEW = 5  # training labels: fewer are hardly enough, since some are held out
_SHOWN = 12  # classes


def enough_labels(manifest: Manifest, ontology: Ontology, history: bool, masks: MaskCounts | None = None) -> list[str]:
    """Return warnings about classes with few labels or none; `history`: the method learns from older labels.

    A class without a newest label can still be learnt from an old label that implies it. With masks, the images that
    show a class are counted.
    """
    newest = ontology.newest
    label, note = ("label", "") if masks is None else ("image that shows it", masks.note)
    labels = "labels" if masks is None else "images that show it"
    counts = _counts(manifest, newest, masks)
    exact = _exact_older_labels(manifest, ontology, masks)
    old = [c for c in range(len(newest)) if not counts["train"][c] and history and exact[c]]
    few = [c for c in range(len(newest)) if 0 < counts["train"][c] < FEW]
    warnings = unlabelled(manifest, ontology, history, masks)
    if old:
        seen = {c: int(exact[c]) for c in old}
        warnings.append(f"{_classes(old)} of {newest.name} with older labels only{note}: {_names(ontology, old, seen)}")
    if few:
        seen = {c: counts["train"][c] for c in few}
        text = f"{_classes(few)} of {newest.name} with fewer than {FEW} training {labels}{note}"
        warnings.append(f"{text}: {_names(ontology, few, seen)}")
    if not any(counts["test"]):
        warnings.append(f"no test sample is labelled in {newest.name}{note}, so the model cannot be tested")
    elif untested := [c for c in range(len(newest)) if not counts["test"][c]]:
        text = f"{_classes(untested)} of {newest.name} without a test {label}{note}"
        warnings.append(f"{text}, so they cannot be tested: {_names(ontology, untested)}")
    return warnings


def unlabelled(
    manifest: Manifest, ontology: Ontology, history: bool = True, masks: MaskCounts | None = None
) -> list[str]:
    """Return a warning about the newest classes that nothing is learnt about, which `check` and `run` both give."""
    newest = ontology.newest
    label, note = ("label", "") if masks is None else ("image that shows it", masks.note)
    train, exact = _counts(manifest, newest, masks)["train"], _exact_older_labels(manifest, ontology, masks)
    none = [c for c in range(len(newest)) if not train[c] and not (history and exact[c])]
    if not none:
        return []
    remedy = f"label some samples, or remove the classes from {newest.name}: predictions of them mean nothing"
    return [f"{_classes(none)} of {newest.name} without any training {label}{note}: {_names(ontology, none)}; {remedy}"]


def _counts(manifest: Manifest, version: Version, masks: MaskCounts | None) -> dict[str, list[int]]:
    """Number of labels of each class, or of images that show it, in every split."""
    if masks is None:
        return manifest.counts(version)
    return masks.images.get(version.name, {split: [0] * len(version) for split in SPLITS})


def _exact_older_labels(manifest: Manifest, ontology: Ontology, masks: MaskCounts | None) -> NDArray[np.int64]:
    """For every newest class, the number of older training labels that imply it."""
    found = np.zeros(len(ontology.newest), dtype=np.int64)
    for version in ontology.versions[:-1]:
        table = ontology.transition(ontology.newest.name, version.name).sparse
        counts = np.array(_counts(manifest, version, masks)["train"])
        only = np.bincount(table.indices, minlength=len(version)) == 1
        found += (table > 0).astype(np.int64) @ np.where(only, counts, 0)
    return found


def _classes(some: list[int]) -> str:
    return f"{len(some):,} class{'es' if len(some) > 1 else ''}"


def _names(ontology: Ontology, some: list[int], counts: dict[int, int] | None = None) -> str:
    names = [f"{ontology.newest.handle(c)!r}" + (f" ({counts[c]:,})" if counts else "") for c in some]
    return ", ".join(and_more(names, _SHOWN))
