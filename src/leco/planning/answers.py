"""Answers of annotators, back into the manifest: with version, annotator and time; what contradicts is listed."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from leco.data.manifest.checks import look, normalise, sample_path
from leco.data.manifest.manifest import build_manifest
from leco.data.manifest.problems import Fault
from leco.data.manifest.table import Table, read_table
from leco.data.vectors import inspect_features, parse_features
from leco.errors import LecoError, printable
from leco.ontology.ontology import Ontology
from leco.planning.label_studio import DOUBT, read_export
from leco.planning.masks import BAD_MASK, OUTSIDE, OVERLAP, Region, class_called, mask_problems, write_drawn

KINDS = {
    OUTSIDE: "the answer is no class that the old label can be",
    "old label doubted": "the annotator chose none of the classes offered",
    "annotators disagree": "two annotators gave different answers; neither is taken",
    "labelled otherwise": "the manifest has another label, or mask, of that version",
    "other version": "the answer is said to be of another version than the newest",
    "unknown class": "the answer is no class of the newest version",
    BAD_MASK: "the mask cannot be read, or does not fit its image, or shows no class of the newest version",
    OVERLAP: "regions of different classes, drawn in Label Studio, share pixels",
    "no such sample": "neither the manifest nor its folder has this file",
}
_MOST_OTHERS = 5
_NO_MASKS = Fault(BAD_MASK, "it was drawn, but the manifest has a column `label`, not `mask`")
_TIMES = ("time", "updated_at", "created_at")  # our own name for it, and those of Label Studio


@dataclass(frozen=True)
class Answer:
    """One answer to one question; `place` says where it stands in its file."""

    place: str
    sample: str
    label: str  # a class, or the path of a mask
    annotator: str = ""
    time: str = ""
    version: str = ""  # the newest, if it is not said
    regions: tuple[Region, ...] = field(default=(), repr=False)  # drawn in Label Studio, and not yet a mask
    folder: str = ""  # below which their mask is to be written


@dataclass(frozen=True)
class Conflict:
    """An answer that was not taken, and why."""

    kind: str
    answer: Answer
    message: str

    def __str__(self) -> str:
        who = f" by {self.answer.annotator}" if self.answer.annotator else ""
        return printable(f"{self.answer.place}: {self.answer.sample}: {self.message}{who}")


@dataclass
class Taken:
    """What came of the answers."""

    table: Table
    accepted: list[Answer] = field(default_factory=list)
    conflicts: list[Conflict] = field(default_factory=list)
    empty: int = 0  # skipped, or not answered yet
    repeated: int = 0  # the same answer again, or what the manifest says already


def read_answers(path: Path) -> tuple[list[Answer], int]:
    """Answers, and how many questions have none: an export of Label Studio (JSON, JSON-MIN, CSV) or a filled batch."""
    if path.suffix.lower() == ".json":
        records: Sequence[Mapping[str, Any]] = [r | {"folder": f"{path.stem}-masks"} for r in read_export(path)]
    else:
        table, broken = read_table(path)
        if broken:
            raise LecoError(f"{path}: {broken[0]}")
        sample = "sample" if "sample" in table.columns else table.kind
        if not {sample, table.target} <= table.columns.keys():
            raise LecoError(f"{path}: needs a column `image`, `features` or `sample`, and `label` or `mask`")
        time = next((name for name in _TIMES if name in table.columns), _TIMES[0])
        names = {"sample": sample, "label": table.target, "annotator": "annotator", "time": time, "version": "version"}
        records = [
            {"place": table.name(place)} | {key: table[name][place] for key, name in names.items()}
            for place in range(len(table))
        ]
    found = [Answer(**record) for record in records if record["label"] or record.get("regions")]
    return found, len(records) - len(found)


def take_answers(manifest: Table, ontology: Ontology, root: Path, answers: Sequence[Answer], empty: int) -> Taken:
    """Add a row to the manifest for every answer that contradicts nothing; what it held stays."""
    build_manifest(manifest, [], root, ontology, decode=False, skip_bad=False, tick=lambda done, total: None)
    taken = Taken(manifest, empty=empty)
    known = _known_labels(manifest)
    paths = [sample_path(answer.sample, manifest.kind) for answer in answers]
    answers, problems = _problems(answers, paths, known, manifest, ontology, root)
    given: dict[str, list[Answer]] = {}
    for answer, path, problem in zip(answers, paths, problems, strict=True):
        if problem is None:
            given.setdefault(path, []).append(answer)
        else:
            taken.conflicts.append(Conflict(problem.kind, answer, problem.message))
    newest = ontology.newest
    for path, same in given.items():
        meant = [a.label if manifest.target == "mask" else newest.handles[newest.index(a.label)] for a in same]
        if len(distinct := list(dict.fromkeys(meant))) > 1:
            for answer, label in zip(same, meant, strict=True):
                others = " and ".join(repr(other) for other in distinct[:_MOST_OTHERS] if other != label)
                taken.conflicts.append(Conflict("annotators disagree", answer, f"{label!r}, but others say {others}"))
            continue
        there = newest.name in known.get(path, {})
        taken.accepted += [] if there else [_together(same)]
        taken.repeated += len(same) - (not there)
    taken.table = _with_rows(manifest, newest.name, taken.accepted)
    if taken.accepted:
        build_manifest(taken.table, [], root, ontology, decode=False, skip_bad=False, tick=lambda done, total: None)
    return taken


def _together(same: Sequence[Answer]) -> Answer:
    """One answer of all who gave it: their names in the order of the file, each once, and the time of the last."""
    names = dict.fromkeys(name for answer in same for name in answer.annotator.split("; ") if name)
    times = [answer.time for answer in same if answer.time] or [""]
    try:
        last = max(times, key=datetime.fromisoformat)
    except (TypeError, ValueError):  # with and without a time zone; written otherwise
        last = times[-1]
    return replace(same[0], annotator="; ".join(names), time=last)


def _known_labels(manifest: Table) -> dict[str, dict[str, str]]:
    """Path -> version -> label or mask."""
    found: dict[str, dict[str, str]] = {}
    for sample, version, label in zip(
        manifest[manifest.kind], manifest["version"], manifest[manifest.target], strict=True
    ):
        labels = found.setdefault(sample_path(sample, manifest.kind), {})
        if label:
            labels[version] = label
    return found


def _problems(
    answers: Sequence[Answer],
    paths: Sequence[str],
    known: Mapping[str, Mapping[str, str]],
    manifest: Table,
    ontology: Ontology,
    root: Path,
) -> tuple[list[Answer], list[Fault | None]]:
    """The answers, those that were drawn with the path of their mask, and what stands against each."""
    masks = manifest.target == "mask"
    missing = _missing([path for path in dict.fromkeys(paths) if path not in known], manifest.kind, root)
    silent = {version.name: ontology.ended(version.name)[0] for version in ontology.versions}
    found, seen = [], []
    for answer, path in zip(answers, paths, strict=True):
        fault = missing.get(path)
        if fault is None and answer.version not in ("", ontology.newest.name):
            message = f"{answer.label!r} is of {answer.version!r}; answers are of {ontology.newest.name}"
            fault = Fault("other version", message)
        if fault is None and answer.regions:
            drawn = write_drawn(root, path, answer.folder, answer.regions, ontology.newest) if masks else _NO_MASKS
            if isinstance(drawn, Fault):
                fault = drawn
            else:
                answer = replace(answer, label=drawn, regions=())
        elif fault is None and not masks:
            fault = _label_problem(answer, known.get(path, {}), ontology, silent)
        seen.append(answer)
        found.append(fault)
    if masks:
        left = [place for place, fault in enumerate(found) if fault is None]
        pairs = [(paths[place], seen[place].label) for place in left]
        for place, fault in zip(left, mask_problems(pairs, known, ontology, root), strict=True):
            found[place] = fault
    return seen, found


def _missing(paths: Sequence[str], kind: str, root: Path) -> dict[str, Fault]:
    """Of samples that the manifest does not have, those that its folder does not have either."""
    files = {path: normalise(path.partition("#")[0] if kind == "features" else path) for path in paths}
    there = look(root, {file for file in files.values() if isinstance(file, str)})[0]
    nowhere = Fault("no such sample", "neither the manifest nor its folder has this file")
    found = {path: nowhere for path, file in files.items() if file not in there}
    if kind == "features":
        rest = [path for path in paths if path not in found]
        wrong = {path: fault for path in rest if isinstance(fault := parse_features(path), Fault)}
        wrong |= inspect_features(root, [path for path in rest if path not in wrong], lambda done, total: None)
        found |= {path: Fault("no such sample", fault.message) for path, fault in wrong.items()}
    return found


def _label_problem(
    answer: Answer, labels: Mapping[str, str], ontology: Ontology, silent: Mapping[str, NDArray[np.bool_]]
) -> Fault | None:
    newest = ontology.newest
    if answer.label == DOUBT:
        older = " and ".join(f"{label!r} ({version})" for version, label in labels.items() if version != newest.name)
        offered = f"what {older} can be" if older else f"the classes of {newest.name}"
        return Fault("old label doubted", f"the annotator says it is none of {offered}")
    index = class_called(answer.label, newest)
    if isinstance(index, Fault):
        return index
    for version, label in labels.items():
        if version == newest.name:
            if newest.index(label) != index:
                return Fault("labelled otherwise", f"{answer.label!r}, but the manifest has {label!r} ({version})")
            continue
        old = ontology[version].index(label)
        says_something = old >= 0 and not silent[version][old]
        if says_something and old not in ontology.transition(newest.name, version).origins(index):
            return Fault(OUTSIDE, f"{answer.label!r} is none of what {label!r} ({version}) can be")
    return None


def _with_rows(manifest: Table, version: str, answers: Sequence[Answer]) -> Table:
    columns = {name: list(values) for name, values in manifest.columns.items()}
    for name in ("annotator", "time") if answers else ():
        columns.setdefault(name, [""] * len(manifest))
    for answer in answers:
        row = {manifest.kind: answer.sample, manifest.target: answer.label, "version": version}
        row |= {"annotator": answer.annotator, "time": answer.time}
        for name, values in columns.items():
            values.append(row.get(name, ""))
    return Table(manifest.source, columns)
