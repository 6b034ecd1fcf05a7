"""Registries of the components that settings refer to by name; users' modules can add to them."""

import importlib
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Generic, TypeVar

from leco.errors import LecoError, first_line, nearest

_Entry = TypeVar("_Entry")
IMPORTED: list[str] = []  # modules that the user imported, which other processes of the same run need, too


class Registry(Mapping[str, _Entry], Generic[_Entry]):
    """Entries by name. `register` is a decorator; for an unknown name, the error suggests the closest one.

    >>> schedules: Registry[Callable[[int, int], float]] = Registry("schedule")
    >>> @schedules.register("constant")
    ... def constant(step: int, steps: int) -> float:
    ...     return 1.0
    >>> schedules["constant"](3, 10)
    1.0
    >>> schedules["constnat"]
    Traceback (most recent call last):
    leco.errors.LecoError: 'constnat' is not a registered schedule; did you mean 'constant'?
    """

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self._entries: dict[str, _Entry] = {}
        self._modules: dict[str, str] = {}

    def register(self, name: str, module: str = "") -> Callable[[_Entry], _Entry]:
        """Register the decorated object under a name; refuse a name that another module registered.

        `module` is the module of the entry, by default the one in which it, or its class, is defined.
        """

        def add(entry: _Entry) -> _Entry:
            home = module or str(getattr(entry, "__module__", ""))
            if name in self._entries and self._modules[name] != home:
                raise LecoError(f"the {self.kind} {name!r} is already registered by {self._modules[name]}")
            self._entries[name], self._modules[name] = entry, home
            return entry

        return add

    def __getitem__(self, name: str) -> _Entry:
        if name not in self._entries:
            raise LecoError(f"{name!r} is not a registered {self.kind}{nearest(name, self._entries)}")
        return self._entries[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, name: object) -> bool:
        return name in self._entries

    def module(self, name: str) -> str:
        """Name of the module outside `leco` that registered a name; empty for `leco`'s own."""
        found = self._modules.get(name, "")
        return "" if found.split(".")[0] == "leco" else found


def import_modules(names: Iterable[str]) -> None:
    """Import modules that register something, from Python's path or the current folder.

    They are named on the command line only, never in a file: importing a module runs its code.
    """
    for name in names:
        sys.path.insert(0, "")
        try:
            importlib.import_module(name)
        except (Exception, SystemExit) as error:  # whatever a user's module raises
            raise LecoError(f"--import {name}: cannot be imported: {first_line(error)}") from None
        finally:
            sys.path.remove("")
        if name not in IMPORTED:
            IMPORTED.append(name)
