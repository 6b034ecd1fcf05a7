"""Masks carried over to a newer version: those whose every pixel needs nobody are drawn anew, the rest is listed."""

import hashlib
import io
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from leco.data.mask_files import decode_mask, encode_mask
from leco.data.paths import look, normalise, sample_path
from leco.data.problems import Fault, Problems
from leco.data.table import Table
from leco.errors import LecoError
from leco.ontology.files import write_bytes
from leco.ontology.ontology import Ontology
from leco.ontology.version import NO_LABEL
from leco.planning.migrate import MEANING, WITH_HUMAN, WITHOUT_HUMAN, Fate, Questions, check_rows, fates_of, with_rows

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
