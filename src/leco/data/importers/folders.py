"""Image folders: a folder per version with a folder per class in it; `train`, `val` and `test` may come between."""

from collections.abc import Iterator, Sequence
from pathlib import Path

from leco.data.images import SUFFIXES
from leco.data.importers.importer import (
    SPLITS_BY_NAME,
    LeftOut,
    Options,
    Sample,
    Source,
    check_paths,
    common_root,
    version_names,
)
from leco.data.manifest.table import Table
from leco.errors import LecoError, nearest
from leco.ontology.ontology import Ontology

_EMPTY_CLASS = "a class without images"


def read_folders(paths: Sequence[Path], _: Options) -> Source:
    """Read one folder per version, in the layout of torchvision's `ImageFolder`."""
    check_paths(paths)
    for path in paths:
        if not path.is_dir():
            raise LecoError(f"{path}: is not a folder; give one per version, with a folder per class in it")
    root, versions, left_out = common_root(paths), version_names(paths), LeftOut()
    samples: list[Sample] = []
    for path, version in zip(paths, versions, strict=True):
        found = [sample._replace(version=version) for sample in _samples(root, path.resolve(), left_out)]
        if not found:
            raise LecoError(f"{path}: no images ({', '.join(SUFFIXES)}) in folders named after classes")
        samples += found
    return Source(root, versions, samples, left_out)


def image_folder(root: Path | str, ontology: Ontology) -> Table:
    """Read the folders VERSION/CLASS below a root, and test/VERSION/CLASS, as a table for `read_manifest`.

    Every file is a sample of its own: one that was relabelled, and so is in the folders of two versions, counts twice;
    use a manifest to say that it is the same. Hidden files, and files beside the folders that are not images, are
    ignored.
    """
    root = Path(root)
    if not root.is_dir():
        raise LecoError(f"{root}: no such folder")
    names, left_out = tuple(version.name for version in ontology.versions), LeftOut()
    folders = [("", folder) for folder in _folders(root, root, left_out)]
    if "test" not in names:
        folders = [(split, folder) for split, folder in folders if folder.name != "test"]
        folders += [("test", folder) for folder in _folders(root, root / "test", left_out)]
    samples: list[Sample] = []
    for split, folder in folders:
        if folder.name in names:
            found = _samples(root, folder, left_out)
            samples += [sample._replace(version=folder.name, split=split or sample.split) for sample in found]
        else:
            remedy = nearest(folder.name, names)
            _leave_out(root, folder, f"in a folder that is not a version of {ontology.name}{remedy}", left_out)
    left_out.items.pop(_EMPTY_CLASS, None)
    return Source(root, names, samples, left_out).table()


def _samples(root: Path, version: Path, left_out: LeftOut) -> Iterator[Sample]:
    """Yield the images in the class folders of a version."""
    for split, folder in _class_folders(root, version, left_out):
        empty = True
        for file in _entries(folder):
            if file.is_dir():
                _leave_out(root, file, "in a folder inside a class folder", left_out)
            elif file.suffix.lower() not in SUFFIXES:
                left_out.add("not an image", _below(root, file))
            else:
                empty = False
                yield Sample(_below(root, file), folder.name, "", split)
        if empty:
            left_out.add(_EMPTY_CLASS, _below(root, folder))


def _class_folders(root: Path, version: Path, left_out: LeftOut) -> Iterator[tuple[str, Path]]:
    """Yield the class folders and their split, which is known if all folders of the version are splits."""
    folders = _folders(root, version, left_out)
    splits = [SPLITS_BY_NAME.get(folder.name.lower(), "") for folder in folders]
    if folders and all(splits) and all(any(inner.is_dir() for inner in _entries(folder)) for folder in folders):
        for split, folder in zip(splits, folders, strict=True):
            yield from ((split, inner) for inner in _folders(root, folder, left_out))
    else:
        yield from (("", folder) for folder in folders)


def _folders(root: Path, folder: Path, left_out: LeftOut) -> list[Path]:
    """Return the folders in a folder; images beside them have no class, and symlinks may lead anywhere."""
    entries = _entries(folder) if folder.is_dir() else []
    for entry in entries:
        if entry.is_symlink() and not entry.exists():
            left_out.add("a broken symlink", _below(root, entry))
        elif entry.is_symlink() and entry.is_dir():
            left_out.add("a symlink to a folder, which is not followed", _below(root, entry))
        elif entry.suffix.lower() in SUFFIXES and not entry.is_dir():
            left_out.add("an image outside the class folders", _below(root, entry))
    return [entry for entry in entries if entry.is_dir() and not entry.is_symlink()]


def _leave_out(root: Path, folder: Path, reason: str, left_out: LeftOut) -> None:
    """Leave out every image below a folder, or the folder itself if it has none."""
    images = [path for path in sorted(folder.rglob("*")) if path.suffix.lower() in SUFFIXES]
    for path in images or [folder]:
        left_out.add(reason, _below(root, path))


def _entries(folder: Path) -> list[Path]:
    try:
        return sorted(path for path in folder.iterdir() if not path.name.startswith("."))
    except OSError as error:
        raise LecoError(f"{folder}: cannot be read: {error.strerror}") from None


def _below(root: Path, path: Path) -> str:
    return path.relative_to(root).as_posix()
