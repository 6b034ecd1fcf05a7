"""Input files on the command line: files, folders and glob patterns."""

import glob
import os
import stat
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from leco.errors import LecoError


@dataclass(frozen=True)
class Given:
    """A file, and its path relative to the folder or pattern that it was found by."""

    path: Path
    name: str


def given_files(arguments: Sequence[str], suffixes: tuple[str, ...]) -> Iterator[Given | LecoError]:
    """Yield the files that arguments name, in a fixed order; an argument that matches nothing yields an error.

    Folders and patterns match files with one of the `suffixes`, but not hidden ones; a file named explicitly may have
    any suffix. What has such a suffix but is no readable file yields an error, as does a folder that is not entered.
    """
    for argument in arguments:
        path, nothing = Path(argument), True
        if not argument:  # which would be the current folder
            yield LecoError("an input is empty; is a shell variable unset?")
            continue
        for found in _below(path, suffixes) if path.is_dir() else _matches(argument, path, suffixes):
            nothing = False
            yield found
        if nothing:
            yield LecoError(f"{argument}: {_why_nothing(argument, path, suffixes)}")


def _below(folder: Path, suffixes: tuple[str, ...]) -> Iterator[Given | LecoError]:
    closed: list[LecoError] = []

    def note(error: OSError) -> None:
        closed.append(LecoError(f"{error.filename}: cannot be read: {error.strerror}"))

    for place, folders, names in os.walk(folder, onerror=note):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        for name in folders:
            path = Path(place, name)
            if path.is_symlink():
                if not Path(os.path.realpath(path)).is_relative_to(os.path.realpath(folder)):
                    yield LecoError(f"{path}: is a link to a folder, and is not followed; pass it as an input")
            elif name.lower().endswith(suffixes) and not any(isinstance(f, Given) for f in _below(path, suffixes)):
                yield _file(path, name)
        for name in sorted(names):
            path = Path(place, name)
            if not name.startswith(".") and name.lower().endswith(suffixes):
                yield _file(path, path.relative_to(folder).as_posix())
    yield from closed


def _matches(argument: str, path: Path, suffixes: tuple[str, ...]) -> Iterator[Given | LecoError]:
    if path.is_file():  # a pipe would never end
        yield Given(path, path.name)
    elif glob.has_magic(argument):
        first = next(place for place, part in enumerate(path.parts) if glob.has_magic(part))
        for found in map(Path, sorted(glob.iglob(argument, recursive=True))):  # noqa: PTH207
            if found.name.lower().endswith(suffixes):
                yield _file(found, Path(*found.parts[first:]).as_posix())


def _file(path: Path, name: str) -> Given | LecoError:
    """A file that was found by its suffix, or why it cannot be one."""
    try:
        kind = path.stat().st_mode
    except OSError as error:
        return LecoError(f"{path}: {'is a broken link' if path.is_symlink() else f'cannot be read: {error.strerror}'}")
    if stat.S_ISREG(kind):
        return Given(path, name)
    return LecoError(
        f"{path}: is {'a folder' if stat.S_ISDIR(kind) else 'not a regular file'}; rename it, or remove it"
    )


def _why_nothing(argument: str, path: Path, suffixes: tuple[str, ...]) -> str:
    kinds = f"files with the suffix {', '.join(suffixes)}"
    if path.is_dir():
        return f"has no {kinds}"
    if path.exists():
        return "not a regular file"
    return f"matches no {kinds}" if glob.has_magic(argument) else "no such file"
