"""Labels and masks carried over to a newer version: which need an annotator, and which do not."""

import hashlib
import io
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from leco.data.manifest.checks import check_versions, encode_labels, look, normalise, sample_path
from leco.data.manifest.table import Fault, Problems, Table, check_columns
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
    "partly ended": "part of the class is no longer a class: an annotator must say whether the sample still is one",
    "contradicting": "labels of two older versions lead to different classes",
    "ignored": "no longer a class: its labels carry no information",
    "removed": "no class is left for this label",
    "already labelled": "the sample has a label of that version",
    "newer": "the label is of a later version",
    "unlabelled": "the row has no label",
}
WITHOUT_HUMAN = ("kept", "renamed", "replaced", "merged")
WITH_HUMAN = ("split", "carved", "redrawn", "partly ended", "contradicting")
_SILENT = ("ignored", "unlabelled")  # pixels without information do not stop a mask from being carried over

Questions = dict[tuple[str, str], tuple[int, tuple[str, ...]]]  # version and class: frequency, and the choices


@dataclass(frozen=True)
class Fate:
    """How one class of one version was changed."""

    kind: str
    choices: tuple[str, ...]  # newer classes that it may be


@dataclass
class Migration:
    """The labels of a manifest, row by row, and those that are carried over."""

    to: str
    table: Table
    kinds: list[str]  # of each row
    fates: list[Fate | None]  # of each row; None without an older label
    added: dict[str, str] = field(default_factory=dict)  # sample -> its newer class, where no annotator is needed

    @property
    def counts(self) -> dict[str, int]:
        """Rows of each kind."""
        return _in_order(Counter(self.kinds))

    def questions(self) -> Questions:
        """Return the old classes that need an annotator, with their rows and choices; most rows first."""
        found: Questions = {}
        for place, (kind, fate) in enumerate(zip(self.kinds, self.fates, strict=True)):
            if kind in WITH_HUMAN and fate is not None:
                key = (self.table["version"][place], self.table["label"][place])
                found[key] = (found.get(key, (0,))[0] + 1, fate.choices)
        return dict(sorted(found.items(), key=lambda item: -item[1][0]))

    def migrated(self) -> Table:
        """Return all rows, and one more for every sample that is carried over; old labels are kept."""
        return with_labels(self.table, self.added, self.to)


def _in_order(counts: Counter[str]) -> dict[str, int]:
    """Return the counts in the order of `MEANING`: first those that need no annotator."""
    return {kind: counts[kind] for kind in MEANING if counts[kind]}


def with_labels(table: Table, labels: Mapping[str, str], version: str) -> Table:
    """Return a table with one more row for each sample: its label, or its mask, of a version."""
    rows: list[dict[str, str]] = [{table.kind: sample, table.target: label} for sample, label in labels.items()]
    return with_rows(table, rows, version)


def with_rows(table: Table, rows: Sequence[Mapping[str, str]], version: str) -> Table:
    """Return a table with more rows of a version, and with the columns that these add."""
    columns = {name: list(values) for name, values in table.columns.items()}
    for name in rows[0] if rows else ():
        columns.setdefault(name, [""] * len(table))
    for row in rows:
        for name, values in columns.items():
            values.append(version if name == "version" else row.get(name, ""))
    return Table(table.source, columns)


def migrate(table: Table, ontology: Ontology, to: str) -> Migration:
    """Find the labels of a manifest that can be carried over to a newer version."""
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
    labelled = {
        sample for sample, version, code in zip(samples, versions, codes, strict=True) if version == to and code >= 0
    }
    found = Migration(to, table, [], [])
    classes: dict[str, set[str]] = {}
    for sample, version, label, code in zip(samples, versions, table["label"], codes, strict=True):
        fate = fates.get((version, code))
        found.fates.append(fate)
        if not label:
            found.kinds.append("unlabelled")
        elif sample in labelled:
            found.kinds.append("already labelled")
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
    """Return the change of each class of a version, in order."""
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
            # A class of a redrawn group may still map to a single class.
            yield Fate(kinds[name] if kinds[name] in WITHOUT_HUMAN else "merged", choices)
        else:
            yield Fate(kinds[name] if kinds[name] in WITH_HUMAN else "redrawn", choices)


@dataclass
class MaskMigration:
    """The masks of a manifest, image by image, and those that are carried over."""

    to: str
    table: Table
    images: Counter[str] = field(default_factory=Counter)  # number that show each kind of change
    pixels: Counter[str] = field(default_factory=Counter)
    asked: Questions = field(default_factory=dict)
    added: dict[str, tuple[str, str]] = field(default_factory=dict)  # image -> mask to carry over, its version
    left: dict[str, str] = field(default_factory=dict)  # image -> reason why it is not carried over

    @property
    def counts(self) -> dict[str, int]:
        """Images that show each kind of change."""
        return _in_order(self.images)

    def questions(self) -> Questions:
        """Return the old classes that need an annotator, with their images and choices; most images first."""
        return dict(sorted(self.asked.items(), key=lambda item: -item[1][0]))


@dataclass(frozen=True, eq=False)
class _Rule:
    """How the classes of a version map to the newer one."""

    version: str
    fates: tuple[Fate, ...]
    codes: NDArray[np.int64]  # class of the newer version, or -1; the last entry is for pixels without a label

    @classmethod
    def of(cls, ontology: Ontology, old: str, to: str) -> "_Rule":
        fates = tuple(fates_of(ontology, old, to))
        index = ontology[to].index
        codes = [index(fate.choices[0]) if fate.kind in WITHOUT_HUMAN else NO_LABEL for fate in fates]
        return cls(old, fates, np.array([*codes, NO_LABEL]))

    def kinds(self, mask: NDArray[np.int32]) -> dict[int, tuple[str, int]]:
        """Return the change and the number of pixels of every class in a mask."""
        classes, counts = np.unique(mask, return_counts=True)
        return {
            index: ("unlabelled" if index < 0 else self.fates[index].kind, count)
            for index, count in zip(classes.tolist(), counts.tolist(), strict=True)
        }


def migrate_masks(table: Table, ontology: Ontology, to: str, root: Path) -> MaskMigration:
    """Find the masks of a manifest that can be carried over to a newer version."""
    check_rows(table, ontology)
    problems = Problems(Path(table.source), rows=len(table))
    found = MaskMigration(to, table)
    last = ontology.position(to)
    rules = {version.name: _Rule.of(ontology, version.name, to) for version in ontology.versions[:last]}
    images = [sample_path(image, "image") for image in table["image"]]
    rows = list(zip(range(len(table)), images, table["mask"], table["version"], strict=True))
    labelled = {image for _, image, mask, version in rows if mask and version == to}
    carried: dict[str, dict[bytes, tuple[str, str]]] = {}  # image -> digest of a newer mask -> an old one, its version
    for place, image, mask, version in rows:
        if not mask or image in labelled or ontology.position(version) > last:
            found.images["unlabelled" if not mask else "already labelled" if image in labelled else "newer"] += 1
            continue
        labels = _read(root, mask, len(ontology[version]))
        if isinstance(labels, Fault):
            problems.extend([table.problem(place, labels, mask)])
            continue
        if obstacle := _count(found, rules[version], ontology, labels):
            found.left[image] = obstacle
        else:
            new = rules[version].codes[labels]
            content = hashlib.blake2b(new.tobytes() + str(new.shape).encode()).digest()
            carried.setdefault(image, {})[content] = (mask, version)
    problems.raise_any()
    for image, masks in carried.items():
        if len(masks) > 1:
            found.images["contradicting"] += 1
            found.left[image] = MEANING["contradicting"]
        else:
            found.left.pop(image, None)  # another of its masks is carried over
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
        return Fault("unknown mask value", f"has a pixel value outside its {classes} classes")
    return labels


def _count(found: MaskMigration, rule: _Rule, ontology: Ontology, labels: NDArray[np.int32]) -> str:
    """Count the changes that a mask shows; return what stops it from being carried over, or ""."""
    kinds = rule.kinds(labels)
    found.images.update({kind for kind, _ in kinds.values()})
    obstacles = []
    for index, (kind, pixels) in kinds.items():
        found.pixels[kind] += pixels
        if kind in WITH_HUMAN:
            key = (rule.version, ontology[rule.version].handle(index))
            found.asked[key] = (found.asked.get(key, (0,))[0] + 1, rule.fates[index].choices)
        if kind not in (*WITHOUT_HUMAN, *_SILENT):
            share = pixels / labels.size
            obstacles.append(f"{ontology[rule.version].handle(index)} ({kind}, {share:.0%} of the pixels)")
    silent = all(kind in _SILENT for kind, _ in kinds.values())
    return "no pixel has a class" if silent else ", ".join(obstacles)


def write_masks(found: MaskMigration, ontology: Ontology, root: Path, folder: str) -> Table:
    """Write the masks that are carried over below `folder` of the root; return the manifest that lists them."""
    paths = {image: _path(folder, mask) for image, (mask, _) in found.added.items()}
    read = {sample_path(path, "image") for path in (*found.table["image"], *found.table["mask"])}
    if taken := next((path for path in paths.values() if path in read), None):
        raise LecoError(f"{root / taken}: is a file of {found.table.source}; choose another output")
    rules = {version: _Rule.of(ontology, version, found.to) for _, version in found.added.values()}
    for image, (mask, version) in found.added.items():
        new = rules[version].codes[decode_mask(root / sample_path(mask, "image"))]
        write_mask(root / paths[image], encode_mask(new, len(ontology[found.to])))
    return with_labels(found.table, paths, found.to)


def _path(folder: str, mask: str) -> str:
    path = sample_path(mask, "image")
    return f"{folder}/{path if path.lower().endswith('.png') else path + '.png'}"


def write_mask(path: Path, mask: NDArray[Any]) -> None:
    """Write an encoded mask as PNG, with its folder."""
    from PIL import Image

    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise LecoError(f"{path.parent}: cannot be written: {error.strerror}") from None
    content = io.BytesIO()
    Image.fromarray(mask).save(content, "png")
    write_bytes(path, content.getvalue())
