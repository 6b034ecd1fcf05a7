"""Images below a folder, found by what an export calls them: it may know them by another machine's paths."""

import os
from collections import defaultdict
from functools import cached_property
from pathlib import Path

from leco.data.paths import normalise
from leco.data.problems import Fault

MISSING = "there is no such file"
AMBIGUOUS = "several files have that name"


class Finder:
    """Finds files below a folder, by their path or else by their name."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder.resolve()

    def at(self, reference: str) -> str | Fault:
        """The path of a reference that is one, relative to the folder or absolute, if it stays below the folder."""
        path = reference.replace("\\", "/") if "/" not in reference else reference  # as Windows writes them
        if path.startswith(f"{self.folder.as_posix().rstrip('/')}/"):
            path = path[len(self.folder.as_posix().rstrip("/")) + 1 :]
        return normalise(path)

    def find(self, *references: str) -> str | Fault:
        """The file that one of some ways to call it leads to; of several with its name, the one whose folders fit."""
        for reference in references:
            path = self.at(reference)
            if isinstance(path, str) and self._is_there(path):
                return path
        for reference in references:
            parts = [part for part in reference.replace("\\", "/").split("/") if part]
            candidates = self._by_name.get(parts[-1], []) if parts else []
            for depth in range(2, len(parts) + 1):
                fitting = [c for c in candidates if c.split("/")[-depth:] == parts[-depth:]]
                candidates = fitting or candidates
            if len(candidates) == 1:
                return candidates[0]
            if candidates:
                return Fault("ambiguous", AMBIGUOUS)
        return Fault("missing file", MISSING)

    def _is_there(self, path: str) -> bool:
        try:
            return (self.folder / path).is_file()
        except (OSError, ValueError):  # a name too long, or with a NUL character
            return False

    @cached_property
    def _by_name(self) -> dict[str, list[str]]:
        found: dict[str, list[str]] = defaultdict(list)
        for folder, inner, files in os.walk(self.folder):
            inner[:] = sorted(name for name in inner if not name.startswith("."))
            below = os.path.relpath(folder, self.folder)
            for name in files:
                found[name].append(name if below == "." else f"{below}/{name}")
        return found
