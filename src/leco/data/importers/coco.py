"""COCO JSON as labels: an image whose annotations all have the same category is of that class."""

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from leco.data.importers.importer import (
    Finder,
    LeftOut,
    Options,
    Sample,
    Source,
    check_paths,
    common_root,
    entry,
    prefix,
    short,
    version_names,
)
from leco.data.manifest.table import Fault
from leco.errors import LecoError
from leco.io import read_json

LARGEST_FILE = 500_000_000  # bytes; the training set of COCO 2017 has 450 MB
_ID = (int, str)


def read_coco(paths: Sequence[Path], options: Options) -> Source:
    """Read one file per version; `file_name` is relative to `options.images`, by default the folder of the file."""
    check_paths(paths)
    folders = [options.images or path.parent for path in paths]
    root, versions, left_out = common_root(folders), version_names(paths), LeftOut()
    samples = []
    for path, folder, version in zip(paths, folders, versions, strict=True):
        finder, start = Finder(folder), prefix(root, folder)
        for file, label in _labels(path, version, left_out):
            found = finder.find(file)
            if isinstance(found, Fault):
                left_out.add(f"{found.message} below {folder}", f"{version}: {file}")
            else:
                samples.append(Sample(f"{start}{found}", label, version))
    return Source(root, versions, samples, left_out)


def _labels(path: Path, version: str, left_out: LeftOut) -> Iterator[tuple[str, str]]:
    """Yield the file and the class of every image that has exactly one."""
    content = read_json(path, LARGEST_FILE)
    if not isinstance(content, Mapping):
        raise LecoError(f"{path}: is not COCO JSON, an object with images, annotations and categories")
    categories = _by_id(path, content, "categories", "name")
    for name, count in Counter(categories.values()).items():
        if count > 1:
            raise LecoError(f"{path}: {count} categories are named {short(name)}; rename all but one")
    images = _by_id(path, content, "images", "file_name")
    seen: dict[int | str, set[int | str]] = defaultdict(set)
    for note in _records(path, content, "annotations", image_id=_ID, category_id=_ID):
        if note["image_id"] not in images:
            left_out.add("an annotation of an image that is not listed", f"{version}: {note['image_id']}")
        elif note["category_id"] not in categories:
            left_out.add("an annotation of a category that is not listed", f"{version}: {note['category_id']}")
        else:
            seen[note["image_id"]].add(note["category_id"])
    for image, file in images.items():
        if len(seen[image]) == 1:
            yield file, categories[next(iter(seen[image]))]
        else:
            left_out.add("several categories" if seen[image] else "no annotation", f"{version}: {file}")
    for unused in categories.keys() - {category for of_image in seen.values() for category in of_image}:
        left_out.add("a class without annotations", f"{version}: {categories[unused]}")


def _by_id(path: Path, content: Mapping[str, Any], part: str, key: str) -> dict[int | str, str]:
    """Return one value of each record of a list, by the id of the record."""
    found: dict[int | str, str] = {}
    for record in _records(path, content, part, id=_ID, **{key: str}):
        name, value = record["id"], record[key]
        if found.setdefault(name, value) != value:
            both = f"{short(found[name])} and {short(value)}"
            raise LecoError(f"{path}: {part}: the id {short(name)} is that of {both}; give each its own")
    return found


def _records(path: Path, content: Mapping[str, Any], part: str, **kinds: Any) -> Iterator[Mapping[str, Any]]:
    """Yield the records of a list, after checking the types of the keys that are needed."""
    for number, record in enumerate(entry(path, "", content, part, list)):
        for key, kind in kinds.items():
            entry(path, f"{part}[{number}]", record, key, kind)
        yield record
