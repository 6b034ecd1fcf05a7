"""Folders of images in place of a manifest: `ROOT/VERSION/CLASS/*.png`, and `ROOT/test/VERSION/CLASS/*.png`."""

from collections.abc import Iterator
from pathlib import Path

from leco.data.feature_files import Tick
from leco.data.image_files import SUFFIXES
from leco.data.manifest import Manifest, build_manifest
from leco.data.problems import Problem, Problems
from leco.data.table import Table
from leco.errors import LecoError, nearest
from leco.ontology.ontology import Ontology


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
        for inner in _entries(folder):
            if not inner.is_dir():
                _refuse_image(root, inner, stray)
                continue
            for file in _entries(inner):
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
        for inner in _entries(folder):
            if not inner.is_dir():
                _refuse_image(root, inner, stray)
            elif inner.name in names:
                yield split, inner.name, inner
            elif (split, inner.name) != ("train", "test"):
                message = f"lies in a folder not named after a version of {ontology.name}{nearest(inner.name, names)}"
                _refuse_all(root, inner, message, "unknown version", stray)


def _entries(folder: Path) -> list[Path]:
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
