"""Files as people name them on a command line: files, folders with all that is below them, and patterns."""

import glob
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from leco.errors import LecoError


@dataclass(frozen=True)
class Given:
    """A file, and what it is called below the folder or the pattern that it was named by."""

    path: Path
    name: str


def given_files(arguments: Sequence[str], suffixes: tuple[str, ...]) -> Iterator[Given | LecoError]:
    """Find files, one at a time, in a fixed order; an argument that names none gives an error.

    Below a folder, or for a pattern, files with one of the `suffixes` count, and hidden ones do not; a file that is
    named counts anyhow.
    """
    for argument in arguments:
        path, nothing = Path(argument), True
        if not argument:  # which Python takes for the folder we are in
            yield LecoError("an input has no name; is a variable empty?")
            continue
        for found in _below(path, suffixes) if path.is_dir() else _matches(argument, path, suffixes):
            nothing = False
            yield found
        if nothing:
            yield LecoError(f"{argument}: {_why_nothing(argument, path, suffixes)}")


def _below(folder: Path, suffixes: tuple[str, ...]) -> Iterator[Given]:
    for place, folders, names in os.walk(folder):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        for name in sorted(names):
            path = Path(place, name)
            if not name.startswith(".") and name.lower().endswith(suffixes) and path.is_file():
                yield Given(path, path.relative_to(folder).as_posix())


def _matches(argument: str, path: Path, suffixes: tuple[str, ...]) -> Iterator[Given]:
    if path.is_file():  # a pipe would never end
        yield Given(path, path.name)
    elif glob.has_magic(argument):
        first = next(place for place, part in enumerate(path.parts) if glob.has_magic(part))
        for found in map(Path, sorted(glob.iglob(argument, recursive=True))):  # noqa: PTH207
            if found.name.lower().endswith(suffixes) and found.is_file():
                yield Given(found, Path(*found.parts[first:]).as_posix())


def _why_nothing(argument: str, path: Path, suffixes: tuple[str, ...]) -> str:
    kinds = f"files that end in {', '.join(suffixes)}"
    if path.is_dir():
        return f"holds no {kinds}"
    if path.exists():
        return "is not an ordinary file"
    return f"matches no {kinds}" if glob.has_magic(argument) else "there is no such file"
