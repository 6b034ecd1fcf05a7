"""Paths of a manifest: below its root, and what is there."""

import os
import posixpath
import stat
from collections.abc import Iterable
from functools import partial
from pathlib import Path

from leco.data.problems import Fault
from leco.errors import nearest

LEAVES = "leaves the root"


def normalise(value: str) -> str | Fault:
    """Write a relative path in one way only, so that a sample is recognised.

    >>> normalise("./photos//../a.png")
    'a.png'
    >>> normalise("../a.png").kind
    'leaves the root'
    """
    path = posixpath.normpath(value)
    if path.startswith(("/", "../")) or path == ".." or value[1:3] in (":\\", ":/"):
        return Fault(LEAVES, "leaves the root folder; paths are relative to it and stay below it")
    return path


def sample_path(sample: str, kind: str) -> str:
    """A sample in the one way of writing it, by which samples are told apart; as it stands if there is none.

    >>> sample_path("./a.npy#3", "features")
    'a.npy#3'
    """
    file, mark, row = sample.partition("#") if kind == "features" else (sample, "", "")
    found = normalise(file)
    return sample if isinstance(found, Fault) else f"{found}{mark}{row}"


def look(root: Path, paths: Iterable[str]) -> tuple[dict[str, int], dict[str, Fault]]:
    """Sizes of the ordinary files among normalised paths, and what is wrong with the others.

    Sizes are needed of every file, so listing folders would save no system call over one `lstat` each.
    """
    real_root = os.path.realpath(root)
    outside: dict[str, bool] = {}  # by folder
    sizes: dict[str, int] = {}
    faults: dict[str, Fault] = {}
    for path in paths:
        folder = posixpath.dirname(path)
        full = f"{real_root}/{path}"
        try:
            if folder not in outside:
                outside[folder] = not _is_inside(f"{real_root}/{folder}", real_root)
            found = os.lstat(full)
            leaves = outside[folder]
            if stat.S_ISLNK(found.st_mode):
                leaves |= not _is_inside(full, real_root)
                found = os.stat(full)  # noqa: PTH116  (a Path for each of 100,000 files costs more than the call)
        except (OSError, ValueError) as error:  # ValueError: a NUL character
            faults[path] = _unreadable(real_root, path, error)
            continue
        if leaves:
            message = "is a link that leaves the root folder; copy it there, or give the folder that holds both as root"
            faults[path] = Fault(LEAVES, message)
        elif not stat.S_ISREG(found.st_mode):
            what = "a folder" if stat.S_ISDIR(found.st_mode) else "not an ordinary file"
            faults[path] = Fault("not a file", f"is {what}")
        elif not found.st_size:
            faults[path] = Fault("empty file", "is empty (0 bytes)")
        else:
            sizes[path] = found.st_size
    return sizes, faults


def _is_inside(path: str, real_root: str) -> bool:
    return os.path.commonpath([os.path.realpath(path), real_root]) == real_root


def _unreadable(root: str, path: str, error: OSError | ValueError) -> Fault:
    if isinstance(error, FileNotFoundError | NotADirectoryError | ValueError):
        return Fault("missing file", "there is no such file", partial(_nearest_file, root, path))
    return Fault("missing file", f"cannot be read: {error.strerror}")


def _nearest_file(root: str, path: str) -> str:
    if "\\" in path:
        return "; write / between folders, not \\"
    folder, name = posixpath.split(path)
    try:
        names = sorted(os.listdir(f"{root}/{folder}"))  # noqa: PTH208
        return "; it is a link to nothing" if name in names else nearest(name, names)
    except (OSError, ValueError):
        return f"; there is no folder {folder!r}"
