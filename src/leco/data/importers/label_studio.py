"""Exports of Label Studio: choices of images (JSON and JSON-MIN), and brush masks.

`leco.planning` reads the answers to exported batches with the same functions.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

import numpy as np
from numpy.typing import NDArray

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
from leco.data.manifest.table import Fault
from leco.errors import LecoError, and_more, nearest
from leco.io import read_json

_CHANNELS = 4  # of a brush mask: red, green, blue, alpha
_UPLOADED = re.compile(r"[0-9a-f]{8}-(?=.)")  # prefix that Label Studio adds to the name of an uploaded file
# Keys of a task in JSON-MIN that are neither data nor labels.
_METADATA = {
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
    """Read one export per version; images are found by name below `options.images`, by default beside the export."""
    check_paths(paths)
    folders = [options.images or path.parent for path in paths]
    root, versions, left_out = common_root(folders), version_names(paths), LeftOut()
    samples, remarks = [], []
    for path, folder, version in zip(paths, folders, versions, strict=True):
        finder, start = Finder(folder), prefix(root, folder)
        tasks = _Tasks.read(path, options)
        remarks.append(f"{path.name}: images are under {tasks.image!r}, labels under {tasks.control!r}")
        for reference, choices in tasks:
            if len(choices) > 1:
                left_out.add("several choices, or disagreeing annotators", f"{version}: {reference}")
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
    image: str  # the key of the image
    control: str  # the name of the control whose choices are the labels

    @classmethod
    def read(cls, path: Path, options: Options) -> "_Tasks":
        tasks = read_tasks(path)
        whole = any(is_whole(task) for task in tasks)
        made = [_made(path, number, task) if whole else minimal(task) for number, task in enumerate(tasks)]
        data = [task["data"] if whole and isinstance(task.get("data"), Mapping) else task for task in tasks]
        image = _image_key(path, data, options.path_column)
        return cls(path, data, made, image, _control(path, made, image, options.label_column))

    def __iter__(self) -> Iterator[tuple[str, set[str]]]:
        """Yield the image and the choices of every task; a task that is not done has no choices."""
        for number, (about, controls) in enumerate(zip(self.data, self.made, strict=True)):
            reference = about.get(self.image)
            if not isinstance(reference, str) or not reference:
                raise LecoError(
                    f"{self.path}: task {number}: {self.image!r} is not the path of an image: {short(reference)}"
                )
            yield reference, controls.get(self.control, set())


def read_tasks(path: Path) -> list[Mapping[str, Any]]:
    """Read the tasks of an export."""
    tasks = read_json(path, LARGEST_FILE)
    if not isinstance(tasks, list) or not tasks or not all(isinstance(task, Mapping) for task in tasks):
        raise LecoError(f"{path}: is not a Label Studio export, a list of tasks")
    return tasks


def is_whole(task: Mapping[str, Any]) -> bool:
    """Return whether a task is in JSON, not JSON-MIN."""
    return "annotations" in task or "completions" in task


def annotations(
    path: Path, place: str, task: Mapping[str, Any]
) -> Iterator[tuple[Mapping[str, Any], dict[str, set[str]]]]:
    """Yield every annotation of a whole task and its choices by control; a skipped one has no choices."""
    for annotation in _listed(path, f"{place}: annotations", task.get("annotations", task.get("completions", []))):
        found: dict[str, set[str]] = {}
        results = [] if annotation.get("was_cancelled") else annotation.get("result", [])
        for result in _listed(path, f"{place}: result", results):
            if result.get("type") == "choices":
                name = result.get("from_name")
                found.setdefault(name if isinstance(name, str) else "", set()).update(_chosen(result.get("value")))
        yield annotation, found


def _made(path: Path, number: int, task: Mapping[str, Any]) -> dict[str, set[str]]:
    """Return, by control, the choices in all annotations of a task."""
    found: dict[str, set[str]] = {}
    for _, choices in annotations(path, f"task {number}", task):
        for name, chosen in choices.items():
            found.setdefault(name, set()).update(chosen)
    return found


def _listed(path: Path, place: str, records: object) -> list[Mapping[str, Any]]:
    if not isinstance(records, list) or not all(isinstance(record, Mapping) for record in records):
        raise LecoError(f"{path}: {place} must be a list of objects, not {short(records)}")
    return records


def minimal(task: Mapping[str, Any]) -> dict[str, set[str]]:
    """Return, by key, possible choices in a task in JSON-MIN, which does not tell data from labels."""
    found = {key: _chosen(value) for key, value in task.items() if key not in _METADATA}
    return {key: choices for key, choices in found.items() if choices}


def _chosen(value: object) -> set[str]:
    """Return the choices in a value: a string, an object with `choices`, or a list of either."""
    items = value if isinstance(value, list) else [value]
    inner = [item.get("choices") if isinstance(item, Mapping) else item for item in items]
    texts = [text for found in inner for text in (found if isinstance(found, list) else [found])]
    return {text.strip() for text in texts if isinstance(text, str)} - {""}


def _image_key(path: Path, data: Sequence[Mapping[str, Any]], chosen: str | None) -> str:
    """Return the key of the images: the chosen one, or the first whose value is the path of an image."""
    if chosen is not None:
        if chosen not in data[0]:
            raise LecoError(f"{path}: tasks have no key {chosen!r}{nearest(chosen, map(str, data[0]))}")
        return chosen
    for key, value in data[0].items():
        if isinstance(value, str) and _spellings(value)[-1].lower().endswith(SUFFIXES):
            return key
    keys = nearest("", map(str, data[0]))
    raise LecoError(f"{path}: no key of a task is the path of an image; choose one with --path-column{keys}")


def _control(path: Path, made: Sequence[Mapping[str, set[str]]], image: str, chosen: str | None) -> str:
    """Return the control of the labels: the chosen one, one with a common name, or the only one."""
    known = list(dict.fromkeys(name for controls in made for name in controls if name != image))
    if chosen is not None:
        if chosen not in known:
            raise LecoError(f"{path}: no choices named {chosen!r}{nearest(chosen, known)}")
        return chosen
    if common := [name for name in LABELS if name in known]:
        return common[0]
    if len(known) > 1:
        names = ", ".join(and_more([short(name) for name in known], 8))
        raise LecoError(f"{path}: several keys may be the choices ({names}); choose one with --label-column")
    if not known:
        raise LecoError(f"{path}: no task has choices; boxes and other regions are not read")
    return known[0]


def _spellings(reference: str) -> list[str]:
    """Return possible names of a file: as given, as the path of a URL, and without the prefix of an upload."""
    found = [reference]
    try:
        url = urlsplit(reference)
        path = next(iter(parse_qs(url.query).get("d", [])), "") or unquote(url.path)
    except ValueError:  # not a valid URL
        path = reference
    path = path.lstrip("/")
    folder, slash, name = path.rpartition("/")
    found += [path, f"{folder}{slash}{_UPLOADED.sub('', name, count=1) if _UPLOADED.match(name) else name}"]
    return list(dict.fromkeys(found))


def decode_brush(stream: Sequence[int], width: int, height: int) -> NDArray[np.bool_]:
    """Decode a brush mask, run-length encoded RGBA, to the pixels (height, width) whose alpha is above zero.

    The stream has 32 bits for the number of values; 5 bits for the size of a value and 4 times 4 bits for the sizes of
    a length, all less one; then the runs. A run has 1 bit for whether it repeats one value, 2 bits for which of the
    four sizes its length has, its length less one, and its value, or all of its values. The caller has checked the
    size against the real image, and only alpha is stored, so memory is bounded whatever the stream says.
    """
    try:
        content = bytes(stream)
    except (TypeError, ValueError):
        raise LecoError("the brush stream is not a list of integers from 0 to 255") from None
    bits = _Bits(content)
    total = bits.number(32)
    if total != width * height * _CHANNELS:
        raise LecoError(f"the brush stream has {total:,} values, not {_CHANNELS} for each of {width}x{height} pixels")
    word = bits.number(5) + 1
    sizes = [bits.number(4) + 1 for _ in range(4)]
    drawn = np.zeros(width * height, dtype=bool)
    start = 0
    while start < total:
        repeats = bits.number(1)
        end = start + bits.number(sizes[bits.number(2)]) + 1
        if end > total:
            raise LecoError(f"a run of the brush stream ends at value {end:,} of {total:,}")
        pixels = slice(start // _CHANNELS, end // _CHANNELS)  # those whose alpha, the last channel, is in the run
        if repeats:
            drawn[pixels] = bits.number(word) > 0
        else:
            drawn[pixels] = bits.above_zero(end - start, word)[_CHANNELS - 1 - start % _CHANNELS :: _CHANNELS]
        start = end
    return drawn.reshape(height, width)


class _Bits:
    """A reader of bits, the highest of each byte first."""

    def __init__(self, content: bytes) -> None:
        self.content, self.place = content, 0

    def number(self, bits: int) -> int:
        first, end = self._take(bits)
        value = int.from_bytes(self.content[first // 8 : -(-end // 8)], "big")
        return value >> (-end % 8) & ((1 << bits) - 1)

    def above_zero(self, count: int, bits: int) -> NDArray[np.bool_]:
        """Return which of several numbers are above 0."""
        first, end = self._take(count * bits)
        part = np.frombuffer(self.content, np.uint8, -(-end // 8) - first // 8, first // 8)
        values = np.unpackbits(part)[first % 8 :][: end - first].reshape(count, bits)
        above: NDArray[np.bool_] = values.max(axis=1) > 0
        return above

    def _take(self, bits: int) -> tuple[int, int]:
        first, self.place = self.place, self.place + bits
        if self.place > 8 * len(self.content):
            raise LecoError(f"the brush stream ends early, after {len(self.content):,} bytes")
        return first, self.place
