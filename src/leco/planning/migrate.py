"""Labels carried over to a newer version: what needs nobody, and what needs an annotator."""

import hashlib
import io
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from leco.data.manifest.checks import check_versions, encode_labels, look, normalise, sample_path
from leco.data.manifest.problems import Fault, Problems
from leco.data.manifest.table import Table, check_columns
from leco.data.masks import decode_mask, encode_mask
from leco.errors import LecoError
from leco.io import write_bytes
from leco.ontology.ontology import Ontology
from leco.ontology.version import NO_LABEL

MEANING = {
    "kept": "the same class",
    "renamed": "the same class under another name",
    "replaced": "one class became one other",
    "merged": "several classes became one",
    "split": "one of several classes: an annotator must say which",
    "carved": "the class itself, or one taken out of it: an annotator must say which",
    "redrawn": "several classes became several others: an annotator must say which",
    "partly ended": "part of the class is no class any more: an annotator must say whether this is",
    "contradicting": "labels of two older versions lead to different classes",
    "ignored": "no longer a class: its labels now say nothing",
    "removed": "no class is left for this label",
    "there already": "the sample has a label of that version",
    "newer": "the label is of a later version",
    "unlabelled": "there is no label",
}
WITHOUT_HUMAN = ("kept", "renamed", "replaced", "merged")
WITH_HUMAN = ("split", "carved", "redrawn", "partly ended", "contradicting")


Questions = dict[tuple[str, str], tuple[int, tuple[str, ...]]]  # version and class: how often, and the choices


@dataclass(frozen=True)
class Fate:
    """What became of one class of one version."""

    kind: str
    choices: tuple[str, ...]  # classes that it can be now


@dataclass
class Migration:
    """What can be carried over, row by row."""

    to: str
    table: Table
    kinds: list[str]  # of each row
    fates: list[Fate | None]  # of each row that has an older label
    added: dict[str, str] = field(default_factory=dict)  # sample -> its class now, found without an annotator

    @property
    def counts(self) -> dict[str, int]:
        """Rows of each kind, those that need nobody first."""
        found = Counter(self.kinds)
        return {kind: found[kind] for kind in (*WITHOUT_HUMAN, *WITH_HUMAN, *MEANING) if found[kind]}

    def questions(self) -> Questions:
        """Old classes that need an annotator: how many rows, and what has to be offered; most rows first."""
        found: Questions = {}
        for place, (kind, fate) in enumerate(zip(self.kinds, self.fates, strict=True)):
            if kind in WITH_HUMAN and fate is not None:
                key = (self.table["version"][place], self.table["label"][place])
                found[key] = (found.get(key, (0,))[0] + 1, fate.choices)
        return dict(sorted(found.items(), key=lambda item: -item[1][0]))

    def migrated(self) -> Table:
        """All rows, and one more for every sample that is carried over; old labels stay."""
        return with_rows(self.table, self.added, self.to)


def with_rows(table: Table, added: Mapping[str, str], version: str) -> Table:
    """The table with one more row for each sample: its label, or its mask, under a version."""
    columns = {name: list(values) for name, values in table.columns.items()}
    for sample, label in added.items():
        row = {table.kind: sample, table.target: label, "version": version}
        for name, values in columns.items():
            values.append(row.get(name, ""))
    return Table(table.source, columns)


def migrate(table: Table, ontology: Ontology, to: str) -> Migration:
    """Look at every label of a manifest."""
    check_rows(table, ontology)
    last = ontology.position(to)
    fates = {
        (version.name, index): fate
        for version in ontology.versions[:last]
        for index, fate in enumerate(fates_of(ontology, version.name, to))
    }
    codes = [  # also of classes that were removed
        ontology[version].index(label) if label else NO_LABEL
        for version, label in zip(table["version"], table["label"], strict=True)
    ]
    samples, versions = [sample_path(sample, table.kind) for sample in table[table.kind]], table["version"]
    there = {
        sample for sample, version, code in zip(samples, versions, codes, strict=True) if version == to and code >= 0
    }
    found = Migration(to, table, [], [])
    classes: dict[str, set[str]] = {}
    for sample, version, label, code in zip(samples, versions, table["label"], codes, strict=True):
        fate = fates.get((version, code))
        found.fates.append(fate)
        if not label:
            found.kinds.append("unlabelled")
        elif sample in there:
            found.kinds.append("there already")
        elif ontology.position(version) > last:
            found.kinds.append("newer")
        elif fate is None:  # a label that was ignored from the start
            found.kinds.append("ignored")
        else:
            found.kinds.append(fate.kind)
            if fate.kind in WITHOUT_HUMAN:
                classes.setdefault(sample, set()).update(fate.choices)
    found.added = {sample: next(iter(names)) for sample, names in classes.items() if len(names) == 1}
    for place, (sample, kind) in enumerate(zip(samples, found.kinds, strict=True)):
        if kind in WITHOUT_HUMAN and sample not in found.added:
            found.kinds[place] = "contradicting"
    return found


def check_rows(table: Table, ontology: Ontology) -> None:
    """Refuse a manifest with unknown columns, versions or labels."""
    problems = Problems(Path(table.source), rows=len(table))
    problems.extend(check_columns(table))
    problems.raise_any()
    problems.extend(check_versions(table, ontology))
    wrong = encode_labels(table, ontology)[1]
    problems.extend(problem for problem in wrong if problem.kind != "impossible label")  # counted as removed
    problems.raise_any()


def fates_of(ontology: Ontology, old: str, new: str) -> Iterable[Fate]:
    """What became of each class of a version, in order."""
    transition = ontology.transition(new, old)
    children = transition.sparse.tocsc()
    ignored, removed = ontology.ended(old, new)
    kinds = {name: change.kind for change in ontology.changes(old, new) for name in change.old}
    for index, name in enumerate(ontology[old].handles):
        found = np.sort(children.indices[children.indptr[index] : children.indptr[index + 1]])
        choices = tuple(ontology[new].handle(int(child)) for child in found)
        if not choices:
            yield Fate("ignored" if ignored[index] else "removed", ())
        elif len(choices) == 1 and (ignored[index] or removed[index]):
            yield Fate("partly ended", choices)
        elif len(choices) == 1:
            # In a redrawn group, a class may still have become one class only.
            yield Fate(kinds[name] if kinds[name] in WITHOUT_HUMAN else "merged", choices)
        else:
            yield Fate(kinds[name] if kinds[name] in WITH_HUMAN else "redrawn", choices)


_SILENT = ("ignored", "unlabelled")  # pixels that say nothing stand in nobody's way


@dataclass
class MaskMigration:
    """What can be carried over, image by image."""

    to: str
    table: Table
    images: Counter[str] = field(default_factory=Counter)  # by kind of change: how many show it
    pixels: Counter[str] = field(default_factory=Counter)
    asked: Questions = field(default_factory=dict)
    added: dict[str, tuple[str, str]] = field(default_factory=dict)  # image -> the mask that tells it all, its version
    left: dict[str, str] = field(default_factory=dict)  # image -> why it is not carried over

    @property
    def counts(self) -> dict[str, int]:
        """Images that show each kind of change, those that need nobody first."""
        return {kind: self.images[kind] for kind in (*WITHOUT_HUMAN, *WITH_HUMAN, *MEANING) if self.images[kind]}

    def questions(self) -> Questions:
        """Old classes that need an annotator: in how many images, and what has to be offered; most images first."""
        return dict(sorted(self.asked.items(), key=lambda item: -item[1][0]))


@dataclass(frozen=True, eq=False)
class _Rule:
    """What becomes of each class of a version."""

    version: str
    fates: tuple[Fate, ...]
    codes: NDArray[np.int64]  # class of the newer version; -1 where there is none; the last is that of no label

    @classmethod
    def of(cls, ontology: Ontology, old: str, to: str) -> "_Rule":
        fates = tuple(fates_of(ontology, old, to))
        index = ontology[to].index
        codes = [index(fate.choices[0]) if fate.kind in WITHOUT_HUMAN else NO_LABEL for fate in fates]
        return cls(old, fates, np.array([*codes, NO_LABEL]))

    def kinds(self, mask: NDArray[np.int32]) -> dict[int, tuple[str, int]]:
        """Of every class in a mask, what became of it, and how many pixels it has."""
        classes, counts = np.unique(mask, return_counts=True)
        return {
            index: ("unlabelled" if index < 0 else self.fates[index].kind, count)
            for index, count in zip(classes.tolist(), counts.tolist(), strict=True)
        }


def migrate_masks(
    table: Table, ontology: Ontology, to: str, root: Path, tick: Callable[[], object] = lambda: None
) -> MaskMigration:
    """Look at every mask of a manifest."""
    check_rows(table, ontology)
    problems = Problems(Path(table.source), rows=len(table))
    found = MaskMigration(to, table)
    last = ontology.position(to)
    rules = {version.name: _Rule.of(ontology, version.name, to) for version in ontology.versions[:last]}
    images = [sample_path(image, "image") for image in table["image"]]
    rows = list(zip(range(len(table)), images, table["mask"], table["version"], strict=True))
    there = {image for _, image, mask, version in rows if mask and version == to}
    drawn: dict[str, dict[bytes, tuple[str, str]]] = {}  # image -> what its masks become -> one of them
    for place, image, mask, version in rows:
        tick()
        if not mask or image in there or ontology.position(version) > last:
            found.images["unlabelled" if not mask else "there already" if image in there else "newer"] += 1
            continue
        labels = _read(root, mask, len(ontology[version]))
        if isinstance(labels, Fault):
            problems.extend([table.problem(place, labels, mask)])
            continue
        needs = _count(found, rules[version], ontology, labels)
        if needs:
            found.left[image] = needs
        else:
            new = rules[version].codes[labels]
            content = hashlib.blake2b(new.tobytes() + str(new.shape).encode()).digest()
            drawn.setdefault(image, {})[content] = (mask, version)
    problems.raise_any()
    for image, masks in drawn.items():
        if len(masks) > 1:
            found.images["contradicting"] += 1
            found.left[image] = MEANING["contradicting"]
        else:
            found.left.pop(image, None)  # another of its masks tells it all
            found.added[image] = next(iter(masks.values()))
    return found


def _read(root: Path, mask: str, classes: int) -> NDArray[np.int32] | Fault:
    path = normalise(mask)
    if isinstance(path, Fault):
        return path
    if wrong := look(root, [path])[1].get(path):
        return wrong
    try:
        labels = decode_mask(root / path)
    except LecoError as error:
        return Fault("bad mask", str(error).removeprefix(f"{root / path}: "))
    if labels.min(initial=NO_LABEL) < NO_LABEL or labels.max(initial=NO_LABEL) >= classes:
        return Fault("unknown mask value", f"has a value that is none of its {classes} classes")
    return labels


def _count(found: MaskMigration, rule: _Rule, ontology: Ontology, labels: NDArray[np.int32]) -> str:
    """Count the changes that a mask shows; what stands in the way of carrying it over, or ""."""
    kinds = rule.kinds(labels)
    found.images.update({kind for kind, _ in kinds.values()})
    needs = []
    for index, (kind, pixels) in kinds.items():
        found.pixels[kind] += pixels
        if kind in WITH_HUMAN:
            key = (rule.version, ontology[rule.version].handle(index))
            found.asked[key] = (found.asked.get(key, (0,))[0] + 1, rule.fates[index].choices)
        if kind not in (*WITHOUT_HUMAN, *_SILENT):
            share = pixels / labels.size
            needs.append(f"{ontology[rule.version].handle(index)} ({kind}, {share:.0%} of the pixels)")
    nothing = all(kind in _SILENT for kind, _ in kinds.values())
    return "nothing in it is a class of any version" if nothing else ", ".join(needs)


def write_masks(found: MaskMigration, ontology: Ontology, root: Path, folder: str) -> Table:
    """Draw all masks that need nobody anew, below `folder` of the root, and list them; no other file is touched."""
    from PIL import Image

    paths = {image: _path(folder, mask) for image, (mask, _) in found.added.items()}
    read = {sample_path(path, "image") for path in (*found.table["image"], *found.table["mask"])}
    if taken := next((path for path in paths.values() if path in read), None):
        raise LecoError(f"{root / taken}: is one of the files of {found.table.source}; name another output")
    for image, new in _drawn(found, ontology, root):
        text = io.BytesIO()
        Image.fromarray(new).save(text, "png")
        path = root / paths[image]
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise LecoError(f"{path.parent}: cannot be written: {error.strerror}") from None
        write_bytes(path, text.getvalue())
    return with_rows(found.table, paths, found.to)


def _path(folder: str, mask: str) -> str:
    path = sample_path(mask, "image")
    return f"{folder}/{path if path.lower().endswith('.png') else path + '.png'}"


def _drawn(found: MaskMigration, ontology: Ontology, root: Path) -> Iterator[tuple[str, NDArray[Any]]]:
    """Every image that needs nobody, and its mask under the newer version; the largest value means no label."""
    rules: dict[str, _Rule] = {}
    for image, (mask, version) in found.added.items():
        rules.setdefault(version, _Rule.of(ontology, version, found.to))
        new = rules[version].codes[decode_mask(root / sample_path(mask, "image"))]
        yield image, encode_mask(new, len(ontology[found.to]))
