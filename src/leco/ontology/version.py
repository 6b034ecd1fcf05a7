"""A version of an ontology: its classes, in the order of a model's outputs."""

import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from leco.errors import LecoError, nearest

NO_LABEL = -1
_AMBIGUOUS = -2


def canonical(name: str) -> str:
    """The one spelling of a name whose accents may be written as characters of their own, as macOS does.

    >>> canonical("cafe\\u0301") == "caf\\u00e9"
    True
    """
    return name if name.isascii() else unicodedata.normalize("NFC", name)


class _ByName(dict[str, int]):
    """Names are compared in their canonical spelling, and kept in it."""

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and super().__contains__(canonical(name))

    def __getitem__(self, name: str) -> int:
        return super().__getitem__(canonical(name))

    def __setitem__(self, name: str, index: int) -> None:
        super().__setitem__(canonical(name), index)

    def get(self, name: str, default: Any = None) -> Any:
        return super().get(canonical(name), default)

    def setdefault(self, name: str, default: Any = None) -> Any:
        return super().setdefault(canonical(name), default)


@dataclass(frozen=True, repr=False)
class Version:
    """The classes of one ontology version.

    A class has a name, which people read and write, and an id, which survives renames and is unique where names are
    not (the genus *Satyrium* is a butterfly and an orchid). Labels in `ignored` (void pixels) are valid, but are not
    classes and count as unlabelled.
    """

    name: str
    classes: tuple[str, ...]
    ids: tuple[str, ...] = ()
    ignored: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not self.ids:
            object.__setattr__(self, "ids", self.classes)
        if len(self.ids) != len(self.classes) or len(set(map(canonical, self.ids))) < len(self.ids):
            raise LecoError(f"version {self.name}: every class needs a unique id; set `ids`")

    def __len__(self) -> int:
        return len(self.classes)

    def __repr__(self) -> str:
        return f"Version({self.name!r}, {len(self)} classes)"

    @cached_property
    def lookup(self) -> dict[str, int]:
        """Index of every label: by name if that is unique, else by id."""
        table = _ByName()
        for name in self.ignored:
            table[name] = NO_LABEL
        for index, name in enumerate(self.classes):
            table[name] = _AMBIGUOUS if name in table else index
        for index, id_ in enumerate(self.ids):
            table.setdefault(id_, index)
        return table

    def index(self, label: str) -> int:
        """Return the index of a class by name or id; -1 for an ignored label.

        >>> Version("v1", ("road", "bus"), ignored=("void",)).index("bus")
        1
        """
        found = self.lookup.get(label)
        if found is None:
            raise LecoError(f"{label!r} is not a class of {self.name}{nearest(label, self.lookup)}")
        if found == _AMBIGUOUS:
            named = [canonical(name) == canonical(label) for name in self.classes]
            ids = " or ".join(repr(i) for i, same in zip(self.ids, named, strict=True) if same)
            raise LecoError(f"{label!r} is the name of several classes of {self.name}; use an id: {ids}")
        return found

    @cached_property
    def handles(self) -> tuple[str, ...]:
        """The name of each class, or its id if the name is not unique."""
        return tuple(self.handle(index) for index in range(len(self)))

    def handle(self, index: int) -> str:
        """Return the name of a class, or its id if the name is not unique; `index` is the inverse."""
        name = self.classes[index]
        return name if self.lookup[name] == index else self.ids[index]

    def encode(self, labels: Sequence[Any] | NDArray[Any]) -> NDArray[np.int64]:
        """Return the indices of labels (indices, names or ids; -1, None, NaN or "" for none).

        >>> Version("v1", ("road", "bus")).encode(["bus", "", "road"])
        array([ 1, -1,  0])
        """
        if isinstance(labels, np.ma.MaskedArray):
            masked, labels = np.ma.getmaskarray(labels), labels.data.astype(object)
            labels[masked] = None
        array = labels if isinstance(labels, np.ndarray) else np.asarray(labels, dtype=object)
        if array.ndim == 0:
            raise LecoError(f"labels of {self.name} must be a sequence, not {labels!r}")
        if array.dtype.kind in "iu":
            outside = (array < NO_LABEL) | (array >= len(self))
            if outside.any():
                place = tuple(np.argwhere(outside)[0].tolist())
                raise self._no_index(array[place], place)
            return array.astype(np.int64)
        flat = [self._encode_one(label, place, array.shape) for place, label in enumerate(array.ravel().tolist())]
        return np.array(flat, dtype=np.int64).reshape(array.shape)

    def _encode_one(self, label: object, place: int, shape: tuple[int, ...]) -> int:
        # pandas reads an empty cell as NaN or NA, and an integer column with empty cells as floats.
        if label is None or type(label).__name__ == "NAType" or (isinstance(label, str) and not label):
            return NO_LABEL
        if isinstance(label, float | np.floating) and (label != label or label == label // 1):
            label = NO_LABEL if label != label else int(label)
        where = tuple(int(i) for i in np.unravel_index(place, shape))
        if isinstance(label, int | np.integer) and not isinstance(label, bool):
            if not NO_LABEL <= label < len(self):
                raise self._no_index(label, where)
            return int(label)
        if not isinstance(label, str):
            raise LecoError(f"label {label!r} at {_place(where)} is neither a class name of {self.name} nor an index")
        try:
            return self.index(label)
        except LecoError as error:
            raise LecoError(f"label at {_place(where)}: {error}") from None

    def _no_index(self, label: object, where: tuple[int, ...]) -> LecoError:
        valid = f"valid are 0 to {len(self) - 1}, and -1 for no label"
        return LecoError(f"label {label} at {_place(where)} is not a class index of {self.name}: {valid}")


def _place(where: tuple[int, ...]) -> str:
    return f"position {where[0] if len(where) == 1 else where}"
