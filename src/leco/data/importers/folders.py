"""Image folders: one folder per version, and in it one per class; `train`, `val` and `test` may come between."""

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
from leco.data.manifest.manifest import Manifest, build_manifest
from leco.data.manifest.problems import Problem, Problems
from leco.data.manifest.table import Table
from leco.data.vectors import Tick
from leco.errors import LecoError, nearest
from leco.ontology.ontology import Ontology


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


def image_folder(
    root: Path | str,
    ontology: Ontology,
    *,
    decode: bool = True,
    skip_bad: bool = False,
    tick: Tick = lambda done, total: None,
) -> tuple[Manifest, Problems]:
    """Read and check images that lie in a folder per version and, in it, a folder per class (torchvision's layout).

    What is below `test` is the test split, the rest is train. A file is a sample: one that was relabelled, and so lies
    in two versions, counts twice; a manifest can say that it is the same. Hidden files, and files beside the folders
    that are no images, are not looked at.
    """
    root = Path(root)
    if not root.is_dir():
        raise LecoError(f"{root}: there is no such folder")
    cells: list[tuple[str, str, str, str]] = []
    stray: list[Problem] = []
    for split, version, folder in _version_folders(root, ontology, stray):
        for inner in _folder_entries(folder):
            if not inner.is_dir():
                _refuse_image(root, inner, stray)
                continue
            for file in _folder_entries(inner):
                name = file.relative_to(root).as_posix()
                if file.suffix.lower() in SUFFIXES:
                    cells.append((name, inner.name, version, split))
                elif file.is_dir():
                    _refuse_all(root, file, "lies in a folder inside a class", "not an image", stray)
                else:
                    stray.append(Problem(None, name, f"is not one of {', '.join(SUFFIXES)}", "not an image"))
    columns = zip(*cells, strict=True) if cells else [()] * 4
    named = dict(zip(("image", "label", "version", "split"), (list(column) for column in columns), strict=True))
    return build_manifest(Table(root, named), stray, root, ontology, decode=decode, skip_bad=skip_bad, tick=tick)


def _version_folders(root: Path, ontology: Ontology, stray: list[Problem]) -> Iterator[tuple[str, str, Path]]:
    names = [version.name for version in ontology.versions]
    roots = [("train", root)]
    if (root / "test").is_dir() and "test" not in names:
        roots.append(("test", root / "test"))
    for split, folder in roots:
        for inner in _folder_entries(folder):
            if not inner.is_dir():
                _refuse_image(root, inner, stray)
            elif inner.name in names:
                yield split, inner.name, inner
            elif (split, inner.name) != ("train", "test"):
                message = f"lies in a folder not named after a version of {ontology.name}{nearest(inner.name, names)}"
                _refuse_all(root, inner, message, "unknown version", stray)


def _folder_entries(folder: Path) -> list[Path]:
    return sorted(path for path in folder.iterdir() if not path.name.startswith("."))


def _refuse_all(root: Path, folder: Path, message: str, kind: str, stray: list[Problem]) -> None:
    """Every image below a folder is left out, and counted; an empty folder counts itself."""
    below = [path for path in sorted(folder.rglob("*")) if path.suffix.lower() in SUFFIXES] or [folder]
    stray.extend(Problem(None, path.relative_to(root).as_posix(), message, kind) for path in below)


def _refuse_image(root: Path, file: Path, stray: list[Problem]) -> None:
    """An image beside the folders has no class; other files there (a licence, the ontology) are nobody's sample."""
    if file.is_symlink() and not file.exists():
        stray.append(Problem(None, file.relative_to(root).as_posix(), "is a link that leads nowhere", "missing file"))
    elif file.suffix.lower() in SUFFIXES:
        message = "lies outside the folders VERSION/CLASS, so it has no label"
        stray.append(Problem(None, file.relative_to(root).as_posix(), message, "no label"))
