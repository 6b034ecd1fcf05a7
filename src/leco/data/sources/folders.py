"""Image folders: one folder per version, and in it one per class; `train`, `val` and `test` may come between."""

from collections.abc import Iterator, Sequence
from pathlib import Path

from leco.data.image_files import SUFFIXES
from leco.data.sources.source import (
    SPLITS_BY_NAME,
    LeftOut,
    Options,
    Sample,
    Source,
    check_paths,
    common_root,
    version_names,
)
from leco.errors import LecoError


def read_folders(paths: Sequence[Path], _: Options) -> Source:
    """Read the layout of torchvision's `ImageFolder`, one such folder per version."""
    check_paths(paths)
    for path in paths:
        if not path.is_dir():
            raise LecoError(f"{path}: is not a folder; give one per version, with a folder per class in it")
    root, versions, left_out = common_root(paths), version_names(paths), LeftOut()
    samples: list[Sample] = []
    for path, version in zip(paths, versions, strict=True):
        before = len(samples)
        for split, folder in _class_folders(root, path.resolve(), left_out):
            files = list(_images(root, folder, left_out))
            samples += [Sample(file, folder.name, version, split) for file in files]
            if not files:
                left_out.add("a class without images", folder.relative_to(root).as_posix())
        if len(samples) == before:
            raise LecoError(f"{path}: there are no images ({', '.join(SUFFIXES)}) in folders named after their classes")
    return Source(root, versions, samples, left_out)


def _class_folders(root: Path, version: Path, left_out: LeftOut) -> Iterator[tuple[str, Path]]:
    """The folders of classes, and the split they are in, if all folders of the version are splits."""
    folders = _folders(root, version, left_out)
    splits = [SPLITS_BY_NAME.get(folder.name.lower(), "") for folder in folders]
    if folders and all(splits) and all(any(inner.is_dir() for inner in _entries(folder)) for folder in folders):
        for split, folder in zip(splits, folders, strict=True):
            yield from ((split, inner) for inner in _folders(root, folder, left_out))
    else:
        yield from (("", folder) for folder in folders)


def _folders(root: Path, folder: Path, left_out: LeftOut) -> list[Path]:
    """The folders in one; an image beside them has no class, and links may lead anywhere."""
    entries = _entries(folder)
    for file in entries:
        if not file.is_dir() and file.suffix.lower() in SUFFIXES:
            left_out.add("an image outside the folders of classes", file.relative_to(root).as_posix())
        elif file.is_dir() and file.is_symlink():
            left_out.add("a link to a folder, which is not followed", file.relative_to(root).as_posix())
    return [inner for inner in entries if inner.is_dir() and not inner.is_symlink()]


def _images(root: Path, folder: Path, left_out: LeftOut) -> Iterator[str]:
    for file in _entries(folder):
        name = file.relative_to(root).as_posix()
        if file.is_dir():
            left_out.add("a folder inside a class", name)
        elif file.suffix.lower() not in SUFFIXES:
            left_out.add("not an image", name)
        else:
            yield name


def _entries(folder: Path) -> list[Path]:
    try:
        return sorted(path for path in folder.iterdir() if not path.name.startswith("."))
    except OSError as error:
        raise LecoError(f"{folder}: cannot be read: {error.strerror}") from None
