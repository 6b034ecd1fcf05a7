"""Datasets saved by Hugging Face's `save_to_disk`, read by pyarrow alone; embedded images become files."""

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from leco.data.importers.importer import (
    SPLITS_BY_NAME,
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
from leco.data.importers.tables import LABELS, PATHS
from leco.data.manifest.table import Fault
from leco.errors import LecoError, first_line, nearest, printable
from leco.io import read_json

_LARGEST_JSON = 50_000_000
_SIGNATURES = {
    b"\x89PNG\r\n\x1a\n": ".png",
    b"\xff\xd8\xff": ".jpg",
    b"GIF8": ".gif",
    b"BM": ".bmp",
    b"II*\0": ".tif",
    b"MM\0*": ".tif",
}


def read_hugging_face(paths: Sequence[Path], options: Options) -> Source:
    """Read one saved `Dataset` or `DatasetDict` per version.

    Images that are not embedded are searched below `options.images`, by default the folder of the dataset.
    """
    check_paths(paths)
    versions, left_out = version_names(paths), LeftOut()
    taken: list[tuple[Path, Sample]] = []
    for path, version in zip(paths, versions, strict=True):
        finder = Finder(options.images or path)
        for split, folder in _splits(path, version, left_out):
            for number, (image, label) in enumerate(_rows(folder, options)):
                place = f"{version} {f'{split} ' if split else ''}row {number}"
                if isinstance(label, Fault):
                    left_out.add(label.message, place)
                    continue
                found = _file(image, options.folder, finder)
                if isinstance(found, Fault):
                    left_out.add(found.message, place)
                    continue
                below, name = found
                taken.append((below, Sample(name, label, version if label else "", split)))
    folders = list(dict.fromkeys(below for below, _ in taken)) or [options.folder]
    root = common_root(folders)
    starts = {folder: prefix(root, folder) for folder in folders}
    samples = [sample._replace(path=f"{starts[below]}{sample.path}") for below, sample in taken]
    return Source(root, versions, samples, left_out)


def _splits(path: Path, version: str, left_out: LeftOut) -> Iterator[tuple[str, Path]]:
    """Yield the datasets in a folder: the folder itself or, for a `DatasetDict`, one per split."""
    if not (path / "dataset_dict.json").is_file():
        yield "", path
        return
    listed = path / "dataset_dict.json"
    for name in entry(listed, "", read_json(listed, _LARGEST_JSON), "splits", list):
        split = SPLITS_BY_NAME.get(name.lower()) if isinstance(name, str) else None
        if split is None:
            left_out.add("a split other than train, validation and test", f"{version}: {short(name)}")
        else:
            yield split, path / name


def _rows(folder: Path, options: Options) -> Iterator[tuple[Any, str | Fault]]:
    """Yield the image, as it is stored, and the label of every row."""
    import pyarrow as pa  # type: ignore[import-untyped]

    info = folder / "dataset_info.json"
    content = read_json(info, _LARGEST_JSON) if info.is_file() else None
    features = content.get("features") if isinstance(content, Mapping) else None
    if not isinstance(features, Mapping):
        raise LecoError(f"{folder}: was not written by `save_to_disk`: no dataset_info.json with features")
    image = _column(folder, features, options.path_column, "Image", common=PATHS, option="--path-column")
    label = _column(folder, features, options.label_column, "ClassLabel", common=LABELS, option="--label-column")
    names = features[label].get("names") if isinstance(features[label], Mapping) else None
    if names is not None and not (isinstance(names, list) and all(isinstance(name, str) for name in names)):
        raise LecoError(f"{info}: the names of {label!r} must be a list of strings, not {short(names)}")
    for file in _data_files(folder):
        try:
            for batch in _batches(file):
                batch.validate(full=True)
                for column in (image, label):
                    if column not in batch.schema.names:
                        raise LecoError(f"{file}: has no column {column!r}{nearest(column, batch.schema.names)}")
                for stored, value in zip(batch.column(image), batch.column(label).to_pylist(), strict=True):
                    yield stored.as_py(), _label(value, names)
        except (pa.ArrowException, OSError) as error:
            problem = printable(first_line(error))
            raise LecoError(f"{file}: not a valid Arrow file: {problem}") from None


def _batches(file: Path) -> Iterator[Any]:
    """Yield the record batches of a file in Arrow's streaming format, which `datasets` writes, or file format."""
    import pyarrow as pa

    with pa.memory_map(str(file)) as source:
        if source.read(6) == b"ARROW1":
            reader = pa.ipc.open_file(source)
            yield from (reader.get_batch(number) for number in range(reader.num_record_batches))
        else:
            source.seek(0)
            yield from pa.ipc.open_stream(source)


def _column(
    folder: Path, features: Mapping[str, Any], chosen: str | None, kind: str, *, common: Sequence[str], option: str
) -> str:
    """Return the chosen column, the only one of a type, or the first with a common name."""
    if chosen is not None:
        if chosen not in features:
            raise LecoError(f"{folder}: has no column {chosen!r}{nearest(chosen, features)}")
        return chosen
    of_kind = [name for name, spec in features.items() if isinstance(spec, Mapping) and spec.get("_type") == kind]
    if len(of_kind) == 1:
        return of_kind[0]
    if found := next((name for name in common if name in (of_kind or features)), None):
        return found
    what = f"several columns of type {kind}" if of_kind else f"no column of type {kind}"
    raise LecoError(f"{folder}: {what}; choose one with {option}{nearest('', of_kind or features)}")


def _data_files(folder: Path) -> list[Path]:
    state = folder / "state.json"
    content = read_json(state, _LARGEST_JSON)
    files = entry(state, "", content, "_data_files", list)
    if content.get("_indices_data_files"):
        raise LecoError(f"{state}: the dataset has an indices mapping; save it again after `flatten_indices()`")
    names = [entry(state, f"_data_files[{number}]", file, "filename", str) for number, file in enumerate(files)]
    existing = {path.name for path in folder.iterdir() if path.is_file()}
    for name in names:
        if name not in existing:  # so that no path leads elsewhere
            raise LecoError(f"{state}: {short(name)} is not a file in {folder}")
    return [folder / name for name in names]


def _label(value: object, names: list[str] | None) -> str | Fault:
    """Return the class of a stored label: a string, or the index of a name; -1 and null mean no label."""
    if value is None or (names is not None and value == -1):
        return ""
    if isinstance(value, str):
        return value.strip()
    if isinstance(value, bool) or not isinstance(value, int) or (names is not None and not 0 <= value < len(names)):
        return Fault("bad label", "a label that is neither a string nor a class index")
    return names[value].strip() if names is not None else str(value)


def _file(stored: object, folder: Path, finder: Finder) -> tuple[Path, str] | Fault:
    """Return the folder of a stored image and its path in it; embedded images are written to files named by content."""
    content, path = (stored.get("bytes"), stored.get("path")) if isinstance(stored, Mapping) else (stored, stored)
    if isinstance(content, bytes) and content:
        suffix = next((s for start, s in _SIGNATURES.items() if content.startswith(start)), "")
        if content[:4] == b"RIFF" and content[8:12] == b"WEBP":
            suffix = ".webp"
        if not suffix:
            return Fault("not an image", "an embedded image of an unknown format")
        digest = hashlib.blake2b(content, digest_size=16).hexdigest()
        name = f"images/{digest[:2]}/{digest[2:]}{suffix}"
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)
        return folder, name
    if isinstance(path, str) and path:
        found = finder.find(path)
        return found if isinstance(found, Fault) else (finder.folder, found)
    return Fault("no image", "a row without an image")
