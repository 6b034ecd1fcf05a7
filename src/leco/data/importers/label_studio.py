"""Exports of Label Studio (JSON and JSON-MIN) whose images were given one of several choices.

What such a file looks like is said here once: `leco.planning.label_studio` reads the answers to own batches with it.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

from leco.data.images import SUFFIXES
from leco.data.importers.coco import LARGEST_FILE
from leco.data.importers.importer import (
    Finder,
    LeftOut,
    Options,
    Sample,
    Source,
    check_paths,
    common_root,
    prefix,
    short,
    version_names,
)
from leco.data.importers.tables import LABELS
from leco.data.manifest.problems import Fault
from leco.errors import LecoError, nearest
from leco.io import read_json

_UPLOADED = re.compile(r"[0-9a-f]{8}-(?=.)")  # what Label Studio puts before the name of an uploaded file
# What JSON-MIN says of a task besides its data and its labels.
_ABOUT = {
    "id",
    "annotator",
    "annotation_id",
    "created_at",
    "updated_at",
    "lead_time",
    "agreement",
    "cancelled_annotations",
}


def read_label_studio(paths: Sequence[Path], options: Options) -> Source:
    """Read one export per version; images are found by name below `options.images`, or else beside the export."""
    check_paths(paths)
    folders = [options.images or path.parent for path in paths]
    root, versions, left_out = common_root(folders), version_names(paths), LeftOut()
    samples, remarks = [], []
    for path, folder, version in zip(paths, folders, versions, strict=True):
        finder, start = Finder(folder), prefix(root, folder)
        tasks = _Tasks.read(path, options)
        remarks.append(f"{path.name}: images are named by {tasks.image!r}, labels by {tasks.control!r}")
        for reference, choices in tasks:
            if len(choices) > 1:
                left_out.add("several choices, or annotators who disagree", f"{version}: {reference}")
                continue
            found = finder.find(*_spellings(reference))
            if isinstance(found, Fault):
                left_out.add(f"{found.message} below {folder}", f"{version}: {reference}")
            else:
                label = next(iter(choices), "")
                samples.append(Sample(f"{start}{found}", label, version if label else ""))
    return Source(root, versions, samples, left_out, remarks)


@dataclass(frozen=True)
class _Tasks:
    """The tasks of an export."""

    path: Path
    data: list[Mapping[str, Any]]
    made: list[dict[str, set[str]]]  # choices by control
    image: str  # what the data call their image
    control: str

    @classmethod
    def read(cls, path: Path, options: Options) -> "_Tasks":
        tasks = read_tasks(path)
        whole = any(is_whole(task) for task in tasks)
        made = [_made(path, number, task) if whole else minimal(task) for number, task in enumerate(tasks)]
        data = [task["data"] if whole and isinstance(task.get("data"), Mapping) else task for task in tasks]
        image = _image_key(path, data, options.path_column)
        return cls(path, data, made, image, _control(path, made, image, options.label_column))

    def __iter__(self) -> Iterator[tuple[str, set[str]]]:
        """The image of every task, and the choices that were made; none for a task that nobody has done."""
        for number, (about, controls) in enumerate(zip(self.data, self.made, strict=True)):
            reference = about.get(self.image)
            if not isinstance(reference, str) or not reference:
                raise LecoError(f"{self.path}: task {number} has no image under {self.image!r}, but {short(reference)}")
            yield reference, controls.get(self.control, set())


def read_tasks(path: Path) -> list[Mapping[str, Any]]:
    """The tasks of an export."""
    tasks = read_json(path, LARGEST_FILE)
    if not isinstance(tasks, list) or not tasks or not all(isinstance(task, Mapping) for task in tasks):
        raise LecoError(f"{path}: is not an export of Label Studio, a list of tasks")
    return tasks


def is_whole(task: Mapping[str, Any]) -> bool:
    """Whether a task is of JSON, not of JSON-MIN."""
    return "annotations" in task or "completions" in task


def annotations(
    path: Path, place: str, task: Mapping[str, Any]
) -> Iterator[tuple[Mapping[str, Any], dict[str, set[str]]]]:
    """Every annotation of a whole task, and by control the choices in it; none where it was skipped."""
    for annotation in _listed(path, place, task.get("annotations", task.get("completions", []))):
        found: dict[str, set[str]] = {}
        results = [] if annotation.get("was_cancelled") else annotation.get("result", [])
        for result in _listed(path, f"{place}: annotations", results):
            if result.get("type") == "choices":
                name = result.get("from_name")
                found.setdefault(name if isinstance(name, str) else "", set()).update(_chosen(result.get("value")))
        yield annotation, found


def _made(path: Path, number: int, task: Mapping[str, Any]) -> dict[str, set[str]]:
    """By control, the choices in all annotations of a task."""
    found: dict[str, set[str]] = {}
    for _, choices in annotations(path, f"task {number}", task):
        for name, chosen in choices.items():
            found.setdefault(name, set()).update(chosen)
    return found


def _listed(path: Path, place: str, records: object) -> list[Mapping[str, Any]]:
    if not isinstance(records, list) or not all(isinstance(record, Mapping) for record in records):
        raise LecoError(f"{path}: {place} must hold a list of tables, not {short(records)}")
    return records


def minimal(task: Mapping[str, Any]) -> dict[str, set[str]]:
    """By key, what may be choices in a task of JSON-MIN, which does not say what is data and what is a label."""
    found = {key: _chosen(value) for key, value in task.items() if key not in _ABOUT}
    return {key: choices for key, choices in found.items() if choices}


def _chosen(value: object) -> set[str]:
    """The choices in a value: a text, a table with `choices`, or a list of either."""
    items = value if isinstance(value, list) else [value]
    inner = [item.get("choices") if isinstance(item, Mapping) else item for item in items]
    texts = [text for found in inner for text in (found if isinstance(found, list) else [found])]
    return {text.strip() for text in texts if isinstance(text, str)} - {""}


def _image_key(path: Path, data: Sequence[Mapping[str, Any]], asked: str | None) -> str:
    """What tasks call their image: the key that was asked for, or the first that names one."""
    if asked is not None:
        if asked not in data[0]:
            raise LecoError(f"{path}: tasks have no {asked!r}{nearest(asked, map(str, data[0]))}")
        return asked
    for key, value in data[0].items():
        if isinstance(value, str) and _spellings(value)[-1].lower().endswith(SUFFIXES):
            return key
    raise LecoError(f"{path}: no key of a task names an image; say --path-column{nearest('', map(str, data[0]))}")


def _control(path: Path, made: Sequence[Mapping[str, set[str]]], image: str, asked: str | None) -> str:
    """What the control is called that holds the labels: as asked for, as it usually is, or as the only one is."""
    known = list(dict.fromkeys(name for controls in made for name in controls if name != image))
    if asked is not None:
        if asked not in known:
            raise LecoError(f"{path}: no choices are called {asked!r}{nearest(asked, known)}")
        return asked
    if usual := [name for name in LABELS if name in known]:
        return usual[0]
    if len(known) > 1:
        names = ", ".join(short(name) for name in known[:8])
        raise LecoError(f"{path}: several keys may hold the choices ({names}); say --label-column")
    if not known:
        raise LecoError(f"{path}: no task has a choice; only choices are read, not boxes or other regions")
    return known[0]


def _spellings(reference: str) -> list[str]:
    """The ways a file may be called: as it stands, as a URL's path, as an upload was called before."""
    found = [reference]
    try:
        url = urlsplit(reference)
        path = next(iter(parse_qs(url.query).get("d", [])), "") or unquote(url.path)
    except ValueError:  # what looks like a URL, and is none
        path = reference
    path = path.lstrip("/")
    folder, slash, name = path.rpartition("/")
    found += [path, f"{folder}{slash}{_UPLOADED.sub('', name, count=1) if _UPLOADED.match(name) else name}"]
    return list(dict.fromkeys(found))
