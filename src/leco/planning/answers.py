"""Answers of annotators, merged into the manifest with version, annotator and time; conflicts are listed."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from leco.data.manifest.checks import look, normalise, sample_path
from leco.data.manifest.decode import MaskRule, Picture, inspect_pictures
from leco.data.manifest.manifest import read_manifest
from leco.data.manifest.table import Fault, Table, read_table
from leco.data.masks import decode_mask
from leco.data.vectors import inspect_features, parse_features
from leco.errors import LecoError, printable
from leco.ontology.ontology import Ontology
from leco.planning.label_studio import BAD_MASK, NONE_OF_THESE, Region, draw_mask, find_class, read_export
from leco.planning.migrate import with_rows
from leco.text import from_csv_cell

OUTSIDE = "outside the old class"
REJECTED = "old label rejected"
DISAGREE = "annotators disagree"
DIFFERENT = "different label"
WRONG_VERSION = "wrong version"
UNKNOWN_SAMPLE = "unknown sample"
MOST_OUTSIDE = 0.1  # of the pixels that both masks label: edges are never drawn twice alike
_MOST_OTHERS = 5
_TIMES = ("time", "updated_at", "created_at")  # the name in a batch, and those of Label Studio


@dataclass(frozen=True)
class Answer:
    """One answer to one question; `place` names its row or task in the file."""

    place: str
    sample: str
    label: str  # a class, or the path of a mask
    annotator: str = ""
    time: str = ""
    version: str = ""  # empty for the newest
    regions: tuple[Region, ...] = field(default=(), repr=False)  # drawn in Label Studio, not yet a mask
    folder: str = ""  # below which their mask is to be written


@dataclass(frozen=True)
class Conflict:
    """An answer that was not accepted, and why."""

    kind: str
    answer: Answer
    message: str

    def __str__(self) -> str:
        who = f" (by {self.answer.annotator})" if self.answer.annotator else ""
        return printable(f"{self.answer.place}: {self.answer.sample}: {self.message}{who}")


@dataclass
class Merged:
    """A manifest with the answers that were accepted, and the conflicts of the others."""

    table: Table
    accepted: list[Answer] = field(default_factory=list)
    conflicts: list[Conflict] = field(default_factory=list)
    repeated: int = 0  # the same answer again, or one that the manifest already has


def read_answers(path: Path) -> tuple[list[Answer], int]:
    """Read an export of Label Studio (JSON, JSON-MIN, CSV) or a filled-in batch; also count empty answers."""
    if path.suffix.lower() == ".json":
        records: Sequence[Mapping[str, Any]] = [r | {"folder": f"{path.stem}-masks"} for r in read_export(path)]
    else:
        table = read_table(path)
        if table.broken:
            raise LecoError(f"{path}: {table.broken[0]}")
        sample = "sample" if "sample" in table.columns else table.kind
        if not {sample, table.target} <= table.columns.keys():
            raise LecoError(f"{path}: needs a column `image`, `features` or `sample`, and a column `label` or `mask`")
        time = next((name for name in _TIMES if name in table.columns), _TIMES[0])
        names = {"sample": sample, "label": table.target, "annotator": "annotator", "time": time, "version": "version"}
        records = [
            {"place": table.name(place)} | {key: from_csv_cell(table[name][place]) for key, name in names.items()}
            for place in range(len(table))
        ]
    found = [Answer(**record) for record in records if record["label"] or record.get("regions")]
    return found, len(records) - len(found)


def merge_answers(manifest: Table, ontology: Ontology, root: Path, answers: Sequence[Answer]) -> Merged:
    """Add a row to the manifest for every answer without a conflict; its other rows are kept."""
    _check(manifest, ontology, root)
    checks = _Checks(manifest, ontology, root)
    merged = Merged(manifest)
    by_sample: dict[str, list[Answer]] = {}
    for answer, path, fault in checks.check(answers):
        if fault is None:
            by_sample.setdefault(path, []).append(answer)
        else:
            merged.conflicts.append(Conflict(fault.kind, answer, fault.message))
    newest = ontology.newest
    for path, same in by_sample.items():
        labels = [a.label if checks.masks else newest.handles[newest.index(a.label)] for a in same]
        if len(distinct := list(dict.fromkeys(labels))) > 1:
            for answer, label in zip(same, labels, strict=True):
                others = " and ".join(repr(other) for other in distinct[:_MOST_OTHERS] if other != label)
                merged.conflicts.append(Conflict(DISAGREE, answer, f"{label!r}, but other annotators say {others}"))
        elif newest.name in checks.known.get(path, {}):
            merged.repeated += len(same)
        else:
            merged.accepted.append(_combine(same))
            merged.repeated += len(same) - 1
    rows = [
        {manifest.kind: a.sample, manifest.target: a.label, "annotator": a.annotator, "time": a.time}
        for a in merged.accepted
    ]
    merged.table = with_rows(manifest, rows, newest.name)
    if rows:
        _check(merged.table, ontology, root)
    return merged


def _check(table: Table, ontology: Ontology, root: Path) -> None:
    read_manifest(table, ontology, root=root, decode=False)


def _combine(same: Sequence[Answer]) -> Answer:
    """Combine equal answers: all annotators in the order of the file, and the latest time."""
    names = dict.fromkeys(name for answer in same for name in answer.annotator.split("; ") if name)
    times = [answer.time for answer in same if answer.time] or [""]
    try:
        last = max(times, key=datetime.fromisoformat)
    except (TypeError, ValueError):  # with and without a time zone; in another format
        last = times[-1]
    return replace(same[0], annotator="; ".join(names), time=last)


@dataclass(frozen=True)
class _Checks:
    """Checks of answers against a manifest, its ontology and its files."""

    manifest: Table
    ontology: Ontology
    root: Path

    @property
    def masks(self) -> bool:
        return self.manifest.target == "mask"

    @cached_property
    def known(self) -> dict[str, dict[str, str]]:
        """Path -> version -> label or mask."""
        table = self.manifest
        found: dict[str, dict[str, str]] = {}
        for sample, version, label in zip(table[table.kind], table["version"], table[table.target], strict=True):
            labels = found.setdefault(sample_path(sample, table.kind), {})
            if label:
                labels[version] = label
        return found

    @cached_property
    def silent(self) -> dict[str, NDArray[np.bool_]]:
        """Version -> (old,) whether a class was ignored later, so that its labels carry no information."""
        return {version.name: self.ontology.ended(version.name)[0] for version in self.ontology.versions}

    @cached_property
    def fits(self) -> dict[str, NDArray[np.bool_]]:
        """Version -> (old, new) whether a pixel of the old class may be of the new one."""
        newest = self.ontology.newest.name
        return {
            version.name: (self.ontology.transition(newest, version.name).sparse.toarray().T > 0)
            | self.silent[version.name][:, None]
            for version in self.ontology.versions[:-1]
        }

    def check(self, answers: Sequence[Answer]) -> list[tuple[Answer, str, Fault | None]]:
        """Return each answer, with the mask of what was drawn, the path of its sample, and its conflict."""
        paths = [sample_path(answer.sample, self.manifest.kind) for answer in answers]
        missing = self._missing([path for path in dict.fromkeys(paths) if path not in self.known])
        found = []
        for answer, path in zip(answers, paths, strict=True):
            checked = missing.get(path) or self._one(answer, path)
            fault = checked if isinstance(checked, Fault) else None
            found.append((answer if isinstance(checked, Fault) else checked, path, fault))
        if not self.masks:
            return found
        left = [place for place, (_, _, fault) in enumerate(found) if fault is None]
        faults = self._masks([(found[place][1], found[place][0].label) for place in left])
        for place, fault in zip(left, faults, strict=True):
            found[place] = (*found[place][:2], fault)
        return found

    def _missing(self, paths: Sequence[str]) -> dict[str, Fault]:
        """Of samples outside the manifest, return those that its folder does not have either."""
        features = self.manifest.kind == "features"
        files = {path: normalise(path.partition("#")[0] if features else path) for path in paths}
        existing = look(self.root, {file for file in files.values() if isinstance(file, str)})[0]
        nowhere = Fault(UNKNOWN_SAMPLE, "neither the manifest nor its folder has this file")
        found = {path: nowhere for path, file in files.items() if file not in existing}
        if features:
            rest = [path for path in paths if path not in found]
            wrong = {path: fault for path in rest if isinstance(fault := parse_features(path), Fault)}
            rest = [path for path in rest if path not in wrong]
            wrong |= inspect_features(self.root, rest, lambda done, total: None)
            found |= {path: Fault(UNKNOWN_SAMPLE, fault.message) for path, fault in wrong.items()}
        return found

    def _one(self, answer: Answer, path: str) -> Answer | Fault:
        newest = self.ontology.newest
        if answer.version not in ("", newest.name):
            message = f"{answer.label!r} is a label of {answer.version!r}, but answers must be of {newest.name}"
            return Fault(WRONG_VERSION, message)
        if answer.regions and not self.masks:
            return Fault(BAD_MASK, "a mask was drawn, but the manifest has a column `label`, not `mask`")
        if answer.regions:
            drawn = draw_mask(self.root, path, answer.folder, answer.regions, newest)
            return drawn if isinstance(drawn, Fault) else replace(answer, label=drawn, regions=())
        fault = None if self.masks else self._label(answer.label, self.known.get(path, {}))
        return fault or answer

    def _label(self, label: str, labels: Mapping[str, str]) -> Fault | None:
        """Check a label against those that the sample has."""
        newest = self.ontology.newest
        if label == NONE_OF_THESE:
            older = " and ".join(f"{old!r} ({version})" for version, old in labels.items() if version != newest.name)
            offered = f"the classes that {older} may be" if older else f"the classes of {newest.name}"
            return Fault(REJECTED, f"the annotator chose none of {offered}")
        index = find_class(label, newest)
        if isinstance(index, Fault):
            return index
        for version, other in labels.items():
            if version == newest.name:
                if newest.index(other) != index:
                    return Fault(DIFFERENT, f"{label!r}, but the manifest has {other!r} ({version})")
                continue
            old = self.ontology[version].index(other)
            informative = old >= 0 and not self.silent[version][old]
            if informative and old not in self.ontology.transition(newest.name, version).origins(index):
                return Fault(OUTSIDE, f"{label!r} is not a class that {other!r} ({version}) may be")
        return None

    def _masks(self, answers: Sequence[tuple[str, str]]) -> list[Fault | None]:
        """Check the mask of each image by itself, and against those that the image has."""
        newest = self.ontology.newest.name
        found: list[Fault | None] = []
        pictures = []
        for image, mask in answers:
            path = normalise(mask)
            wrong = path if isinstance(path, Fault) else look(self.root, [path])[1].get(path)
            found.append(None if wrong is None else Fault(BAD_MASK, f"{mask}: {wrong.message}{wrong.remedy()}"))
            pictures.append(Picture(image, () if isinstance(path, Fault) or wrong else ((path, newest),)))
        rules = {newest: MaskRule.of(self.ontology, newest)}
        for number, file, _, fault in inspect_pictures(self.root, pictures, rules):
            found[number] = found[number] or Fault(BAD_MASK, f"{file}: {fault.message}{fault.remedy()}")
        for number, (image, _) in enumerate(answers):
            if found[number] is None:
                found[number] = self._mask(pictures[number].masks[0][0], self.known.get(image, {}))
        return found

    def _mask(self, path: str, masks: Mapping[str, str]) -> Fault | None:
        newest = self.ontology.newest.name
        if newest in masks and normalise(masks[newest]) == path:
            return None
        drawn = decode_mask(self.root / path)
        if newest in masks:  # a later export of the same drawing is another file
            if _is_same(self.root / masks[newest], drawn):
                return None
            return Fault(DIFFERENT, f"{path}, but the manifest has {masks[newest]} ({newest})")
        for version, mask in masks.items():
            try:
                old = decode_mask(self.root / mask)
            except LecoError as error:
                return Fault(BAD_MASK, f"cannot be compared with the mask of {version}: {error}")
            fits = self.fits[version]
            if old.shape != drawn.shape or old.max(initial=-1) >= len(fits):
                return Fault(BAD_MASK, f"the mask of {version}, {mask}, has another size, or a value that is no class")
            both = (old >= 0) & (drawn >= 0)
            outside = float((~fits[old[both], drawn[both]]).mean()) if both.any() else 0.0
            if outside > MOST_OUTSIDE:
                return Fault(OUTSIDE, f"{outside:.0%} of its pixels are not a class that {mask} ({version}) may be")
        return None


def _is_same(path: Path, mask: NDArray[np.int32]) -> bool:
    try:
        return np.array_equal(decode_mask(path), mask)
    except LecoError:
        return False
