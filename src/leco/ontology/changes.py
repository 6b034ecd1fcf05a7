"""What happened to the classes between two versions."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from leco.ontology.transition import Transition

Kind = Literal["kept", "renamed", "replaced", "split", "carved", "merged", "redrawn", "added", "removed", "ignored"]

# The order in which a reader wants to see them; "kept" is no news.
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
    "carved": "new classes were taken out of one that lives on",
    "merged": "several classes became one",
    "redrawn": "several classes became several others",
    "renamed": "the same class under another name",
    "replaced": "one class became one other",
    "added": "brand-new: no old label can mean it",
    "removed": "no new class is left for this label",
    "ignored": "no longer a class: its labels now say nothing",
    "kept": "unchanged",
}


@dataclass(frozen=True)
class Change:
    """A smallest group of old and new classes that hang together. Classes are given by name, or id if ambiguous."""

    kind: Kind
    old: tuple[str, ...]
    new: tuple[str, ...]


def changes(transition: Transition, ignored: NDArray[np.bool_], removed: NDArray[np.bool_]) -> list[Change]:
    """List every change between two versions, in the order of `KINDS`, then of the classes.

    `ignored` and `removed` tell which old classes have a part that met that end on the way.
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
    """Yield the connected parts of the graph between old and new classes, as lists of indices."""
    edges = transition.sparse
    graph = sparse.block_array([[None, edges.T], [edges, None]], format="csr")
    count, part = sparse.csgraph.connected_components(graph, directed=False)
    order = np.argsort(part, kind="stable")
    num_old = len(transition.old)
    for nodes in np.split(order, np.cumsum(np.bincount(part, minlength=count))[:-1]):
        yield [int(n) for n in nodes if n < num_old], [int(n) - num_old for n in nodes if n >= num_old]


def _kind(
    transition: Transition,
    old: list[int],
    new: list[int],
    ignored: NDArray[np.bool_],
    removed: NDArray[np.bool_],
) -> Kind:
    if not old:
        return "added"
    if not new:
        return "ignored" if ignored[old[0]] else "removed"
    absorbed = transition.sparse[new].sum() < len(new) - 1e-6  # something that had no label in the old version
    if len(old) > 1 or absorbed:
        return "merged" if len(new) == 1 else "redrawn"
    survives = any(transition.new.ids[index] == transition.old.ids[old[0]] for index in new)
    if len(new) > 1 or ignored[old[0]] or removed[old[0]]:
        return "carved" if survives else "split"
    if transition.new.classes[new[0]] == transition.old.classes[old[0]]:
        return "kept"
    return "renamed" if survives else "replaced"
