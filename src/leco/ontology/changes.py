"""Changes of the classes between two versions, and differences between two histories."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from leco.errors import LecoError, and_more
from leco.ontology.transition import Transition
from leco.ontology.version import Version, canonical

if TYPE_CHECKING:
    from leco.ontology.ontology import Ontology

_SHOWN = 5  # differences in a message

Kind = Literal["kept", "renamed", "replaced", "split", "carved", "merged", "redrawn", "added", "removed", "ignored"]

# In the order of interest to a reader.
KINDS: tuple[Kind, ...] = (
    "split",
    "carved",
    "merged",
    "redrawn",
    "renamed",
    "replaced",
    "added",
    "removed",
    "ignored",
    "kept",
)

MEANING: dict[Kind, str] = {
    "split": "one class became several",
    "carved": "new classes were taken out of one that still exists",
    "merged": "several classes became one",
    "redrawn": "several classes became several others",
    "renamed": "the same class under another name",
    "replaced": "one class became one other",
    "added": "brand-new: no old label can mean it",
    "removed": "no new class comes from it",
    "ignored": "no longer a class: its labels are ignored",
    "kept": "unchanged",
}


@dataclass(frozen=True)
class Change:
    """A connected group of old and new classes, given by name, or by id if ambiguous."""

    kind: Kind
    old: tuple[str, ...]
    new: tuple[str, ...]


def changes(transition: Transition, ignored: NDArray[np.bool_], removed: NDArray[np.bool_]) -> list[Change]:
    """List the changes between two versions, sorted by `KINDS`, then by class.

    `ignored` and `removed` are masks of the old classes of which a part was ignored or removed on the way.
    """
    found = [
        Change(
            _kind(transition, old, new, ignored, removed),
            tuple(transition.old.handle(i) for i in old),
            tuple(transition.new.handle(i) for i in new),
        )
        for old, new in _components(transition)
    ]
    return sorted(found, key=lambda change: KINDS.index(change.kind))


def _components(transition: Transition) -> Iterator[tuple[list[int], list[int]]]:
    """Yield the connected components of the graph between old and new classes, as lists of indices."""
    edges = transition.sparse
    graph = sparse.block_array([[None, edges.T], [edges, None]], format="csr")
    count, part = sparse.csgraph.connected_components(graph, directed=False)
    order = np.argsort(part, kind="stable")
    num_old = len(transition.old)
    for nodes in np.split(order, np.cumsum(np.bincount(part, minlength=count))[:-1]):
        yield [int(n) for n in nodes if n < num_old], [int(n) - num_old for n in nodes if n >= num_old]


def _kind(
    transition: Transition, old: list[int], new: list[int], ignored: NDArray[np.bool_], removed: NDArray[np.bool_]
) -> Kind:
    if not old:
        return "added"
    if not new:
        return "ignored" if ignored[old[0]] else "removed"
    absorbed = transition.sparse[new].sum() < len(new) - 1e-6  # something without a label in the old version
    if len(old) > 1 or absorbed:
        return "merged" if len(new) == 1 else "redrawn"
    survives = any(transition.new.ids[index] == transition.old.ids[old[0]] for index in new)
    if len(new) > 1 or ignored[old[0]] or removed[old[0]]:
        return "carved" if survives else "split"
    if canonical(transition.new.classes[new[0]]) == canonical(transition.old.classes[old[0]]):
        return "kept"
    return "renamed" if survives else "replaced"


def differences(known: "Ontology", other: "Ontology") -> list[str]:
    """Describe how `other` differs from `known`; later versions of `other` do not count.

    >>> from leco import Ontology
    >>> v1 = {"name": "v1", "classes": ["road", "bus"]}
    >>> histories = [[v1, {"name": "v2", "classes": v2}] for v2 in (["road", "city-bus"], ["road", "tram", "bus"])]
    >>> differences(*(Ontology.from_dict({"versions": versions}) for versions in histories))
    ["v2: 'city-bus' was renamed to 'tram'", "v2: 'bus' was added"]
    """
    names = [version.name for version in known.versions]
    others = [version.name for version in other.versions]
    if others[: len(names)] == names and known.fingerprint == other.until(names[-1]).fingerprint:
        return []
    found = [f"version {name} is missing" for name in names if name not in others]
    shared = [name for name in others if name in names]
    last = others.index(shared[-1]) if shared else -1
    found += [f"version {name} was inserted" for name in others[:last] if name not in names]
    if shared != [name for name in names if name in shared]:
        found.append(f"the order of versions differs: {', '.join(shared)}")
    for name in shared:
        found += [f"{name}: {text}" for text in _class_differences(known[name], other[name])]
        if not found:
            found += [f"{name}: {text}" for text in _origin_differences(known, other, name)]
    return found


def require_same(known: "Ontology", other: "Ontology", who: str, whose: str) -> None:
    """Raise an error that lists the differences, if there are any."""
    if found := differences(known, other):
        raise LecoError(f"{who} does not match the ontology of {whose}: {'; '.join(and_more(found, _SHOWN))}")


def _class_differences(known: Version, other: Version) -> list[str]:
    """Classes with the same id are the same; one in the place of another is that one, renamed."""
    known_ids, other_ids = ([canonical(id_) for id_ in version.ids] for version in (known, other))
    mine, theirs = set(known_ids), set(other_ids)
    moved = {
        index
        for index, pair in enumerate(zip(known_ids, other_ids, strict=False))
        if pair[0] not in theirs and pair[1] not in mine
    }
    names = {id_: other.handle(index) for index, id_ in enumerate(other_ids)}
    found = []
    for index, id_ in enumerate(known_ids):
        now = other.handle(index) if index in moved else names.get(id_)
        if now is None:
            found.append(f"{known.handle(index)!r} is missing")
        elif canonical(now) != canonical(known.handle(index)):
            found.append(f"{known.handle(index)!r} was renamed to {now!r}")
    added = [index for index, id_ in enumerate(other_ids) if id_ not in mine and index not in moved]
    found += [f"{other.handle(index)!r} was added" for index in added]
    if not found and known_ids != other_ids:
        found.append("the order of classes differs")
    if list(map(canonical, known.ignored)) != list(map(canonical, other.ignored)):
        found.append(f"the ignored labels differ: {', '.join(map(repr, other.ignored)) or 'none'}")
    return found


def _origin_differences(known: "Ontology", other: "Ontology", name: str) -> list[str]:
    """Compare the origins of the classes of a version that has the same classes in both histories."""
    position = known.position(name)
    if not position or not other.position(name):
        return []
    steps = known.steps[position - 1], other.steps[other.position(name) - 1]
    found = []
    for index, handle in enumerate(known[name].handles):
        mine, theirs = (
            {canonical(step.old.handle(parent)): share for parent, share in step.origins(index).items()}
            for step in steps
        )
        if mine != theirs:
            found.append(f"{handle!r} comes from {_spell(theirs)}, not {_spell(mine)}")
    return found


def _spell(origins: dict[str, float]) -> str:
    whole = len(origins) == 1
    return (
        " and ".join(f"{name!r}" + ("" if whole else f" ({share:g})") for name, share in origins.items()) or "nothing"
    )
