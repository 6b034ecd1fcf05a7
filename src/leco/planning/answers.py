"""Answers of annotators, back into the manifest: with version, annotator and time; what contradicts is listed."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from leco.data.manifest import build_manifest
from leco.data.paths import look, normalise
from leco.data.problems import Fault
from leco.data.table import Table, read_table
from leco.errors import LecoError, nearest
from leco.ontology.ontology import Ontology
from leco.planning.label_studio import read_export

KINDS = {
    "outside the old class": "the answer is no class that the old label can be",
    "old label doubted": "the annotator chose none of the classes offered",
    "annotators disagree": "two annotators gave different answers",
    "labelled otherwise": "the manifest has another label of that version",
    "unknown class": "the answer is no class of that version",
    "no such sample": "neither the manifest nor its folder has this file",
}


@dataclass(frozen=True)
class Answer:
    """One answer to one question; `place` says where it stands in its file."""

    place: str
    sample: str
    label: str  # a class, or the path of a mask
    annotator: str = ""
    time: str = ""
    doubted: bool = False


@dataclass(frozen=True)
class Conflict:
    """An answer that was not taken, and why."""

    kind: str
    answer: Answer
    message: str

    def __str__(self) -> str:
        who = f" by {self.answer.annotator}" if self.answer.annotator else ""
        return f"{self.answer.place}: {self.answer.sample}: {self.message}{who}"


@dataclass
class Taken:
    """What came of the answers."""

    table: Table
    accepted: list[Answer] = field(default_factory=list)
    conflicts: list[Conflict] = field(default_factory=list)
    empty: int = 0  # skipped, or not answered yet
    repeated: int = 0  # the same answer again, or what the manifest says already


def read_answers(path: Path) -> tuple[list[Answer], int]:
    """Answers of a JSON export of Label Studio, or of a table with `image` or `features`, and `label` or `mask`."""
    if path.suffix.lower() == ".json":
        records: Sequence[Mapping[str, str]] = read_export(path)
    else:
        table, broken = read_table(path)
        if broken:
            raise LecoError(f"{path}: {broken[0]}")
        if not {table.kind, table.target} <= table.columns.keys():
            raise LecoError(f"{path}: needs a column `image` or `features`, and `label` or `mask`")
        names = {"sample": table.kind, "label": table.target, "annotator": "annotator", "time": "time"}
        records = [
            {"place": table.name(place)} | {key: table[name][place] for key, name in names.items()}
            for place in range(len(table))
        ]
    found = [
        Answer(r["place"], r["sample"], r["label"], r["annotator"], r["time"], bool(r.get("doubted")))
        for r in records
        if not r.get("skipped") and (r["label"] or r.get("doubted"))
    ]
    return found, len(records) - len(found)


def take_answers(manifest: Table, ontology: Ontology, root: Path, answers: Sequence[Answer], empty: int) -> Taken:
    """Add a row to the manifest for every answer that contradicts nothing; what it held stays."""
    build_manifest(manifest, [], root, ontology, decode=False, skip_bad=False, tick=lambda done, total: None)
    taken = Taken(manifest, empty=empty)
    known = _known_labels(manifest)
    newest = ontology.newest.name
    first: dict[str, Answer] = {}
    for answer in answers:
        path = _path(answer.sample, manifest.kind)
        problem = _problem(answer, path, known, manifest, ontology, root)
        earlier = first.get(path)
        if problem is None and earlier is not None:
            if earlier.label == answer.label:
                taken.repeated += 1
                continue
            problem = ("annotators disagree", f"{answer.label!r}, but {earlier.label!r} by {earlier.annotator or '?'}")
            if earlier in taken.accepted:  # neither is taken
                taken.accepted.remove(earlier)
                said = f"{earlier.label!r}, but {answer.label!r} by {answer.annotator or '?'}"
                taken.conflicts.append(Conflict(problem[0], earlier, said))
        if problem is not None:
            taken.conflicts.append(Conflict(problem[0], answer, problem[1]))
            continue
        if newest in known.get(path, {}):
            taken.repeated += 1
            continue
        first[path] = answer
        taken.accepted.append(answer)
    taken.table = _with_rows(manifest, newest, taken.accepted)
    if taken.accepted:
        build_manifest(taken.table, [], root, ontology, decode=False, skip_bad=False, tick=lambda done, total: None)
    return taken


def _path(sample: str, kind: str) -> str:
    """Samples are told apart by their paths, written in one way."""
    file, mark, row = sample.partition("#") if kind == "features" else (sample, "", "")
    found = normalise(file)
    return sample if isinstance(found, Fault) else f"{found}{mark}{row}"


def _known_labels(manifest: Table) -> dict[str, dict[str, str]]:
    """Path -> version -> label or mask."""
    found: dict[str, dict[str, str]] = {}
    for sample, version, label in zip(
        manifest[manifest.kind], manifest["version"], manifest[manifest.target], strict=True
    ):
        labels = found.setdefault(_path(sample, manifest.kind), {})
        if label:
            labels[version] = label
    return found


def _problem(
    answer: Answer, path: str, known: Mapping[str, Mapping[str, str]], manifest: Table, ontology: Ontology, root: Path
) -> tuple[str, str] | None:
    newest = ontology.newest
    if path not in known:
        file = path.partition("#")[0] if manifest.kind == "features" else path
        clean = normalise(file)
        if isinstance(clean, Fault) or look(root, [clean])[1]:
            return "no such sample", "neither the manifest nor its folder has this file"
    labels = known.get(path, {})
    older = ", ".join(f"{label!r} ({version})" for version, label in labels.items() if version != newest.name)
    if answer.doubted:
        return "old label doubted", f"the annotator says it is none of what {older or 'was offered'} can be"
    if manifest.target == "mask":
        return None  # the masks themselves are checked as those of any manifest are
    if answer.label not in newest.lookup:
        return (
            "unknown class",
            f"{answer.label!r} is not a class of {newest.name}{nearest(answer.label, newest.lookup)}",
        )
    index = newest.index(answer.label)
    for version, label in labels.items():
        if version == newest.name:
            if newest.index(label) != index:
                return "labelled otherwise", f"{answer.label!r}, but the manifest has {label!r} ({version})"
        elif index >= 0 and not _fits(ontology, version, label, index):
            return "outside the old class", f"{answer.label!r} is none of what {label!r} ({version}) can be"
    return None


def _fits(ontology: Ontology, version: str, label: str, index: int) -> bool:
    """Whether a newest class may have had this label."""
    old = ontology[version].index(label)
    if old < 0:
        return True
    silent = ontology.ended(version)[0][old]
    return bool(silent) or old in ontology.transition(ontology.newest.name, version).origins(index)


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
