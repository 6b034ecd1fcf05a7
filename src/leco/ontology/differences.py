"""What differs between two histories that should be one: a model's ontology and the one it meets."""

from leco.errors import LecoError
from leco.ontology.ontology import Ontology
from leco.ontology.version import Version

_SHOWN = 5


def differences(known: Ontology, other: Ontology) -> list[str]:
    """Say, in words, what is not in `other` as it is `known`; later versions of `other` do not count.

    >>> v1 = {"name": "v1", "classes": ["road", "bus"]}
    >>> histories = [[v1, {"name": "v2", "classes": v2}] for v2 in (["road", "city-bus"], ["road", "tram", "bus"])]
    >>> differences(*(Ontology.from_dict({"versions": versions}) for versions in histories))
    ["v2: 'city-bus' is called 'tram'", "v2: 'bus' was added"]
    """
    names = [version.name for version in known.versions]
    others = [version.name for version in other.versions]
    if others[: len(names)] == names and known.fingerprint == other.until(names[-1]).fingerprint:
        return []
    found = [f"there is no version {name}" for name in names if name not in others]
    shared = [name for name in others if name in names]
    last = others.index(shared[-1]) if shared else -1
    found += [f"the version {name} was put in" for name in others[:last] if name not in names]
    if shared != [name for name in names if name in shared]:
        found.append(f"the versions are in another order: {', '.join(shared)}")
    for name in shared:
        found += [f"{name}: {text}" for text in _of_classes(known[name], other[name])]
        if not found:
            found += [f"{name}: {text}" for text in _of_origins(known, other, name)]
    return found


def require_same(known: Ontology, other: Ontology, who: str, whose: str) -> None:
    """Refuse another history than the known one, and say what differs."""
    if found := differences(known, other):
        more = f"; and {len(found) - _SHOWN} more" if len(found) > _SHOWN else ""
        raise LecoError(f"{who} has another ontology than {whose}: {'; '.join(found[:_SHOWN])}{more}")


def _of_classes(known: Version, other: Version) -> list[str]:
    """Classes are the same by id; one that took another's place is that one, renamed."""
    mine, theirs = set(known.ids), set(other.ids)
    moved = {
        index
        for index, pair in enumerate(zip(known.ids, other.ids, strict=False))
        if pair[0] not in theirs and pair[1] not in mine
    }
    names = {id_: other.handle(index) for index, id_ in enumerate(other.ids)}
    found = []
    for index, id_ in enumerate(known.ids):
        now = other.handle(index) if index in moved else names.get(id_)
        if now is None:
            found.append(f"{known.handle(index)!r} is missing")
        elif now != known.handle(index):
            found.append(f"{known.handle(index)!r} is called {now!r}")
    added = [index for index, id_ in enumerate(other.ids) if id_ not in mine and index not in moved]
    found += [f"{other.handle(index)!r} was added" for index in added]
    if not found and known.ids != other.ids:
        found.append("the classes are in another order")
    if known.ignored != other.ignored:
        found.append(f"other labels are ignored: {', '.join(map(repr, other.ignored)) or 'none'}")
    return found


def _of_origins(known: Ontology, other: Ontology, name: str) -> list[str]:
    """Where the classes of a version come from, in the one before; its classes are the same in both."""
    position = known.position(name)
    if not position or not other.position(name):
        return []
    steps = known.steps[position - 1], other.steps[other.position(name) - 1]
    found = []
    for index, handle in enumerate(known[name].handles):
        mine, theirs = (
            {step.old.handle(parent): share for parent, share in step.origins(index).items()} for step in steps
        )
        if mine != theirs:
            found.append(f"{handle!r} comes from {_spell(theirs)}, not from {_spell(mine)}")
    return found


def _spell(origins: dict[str, float]) -> str:
    whole = len(origins) == 1
    return " and ".join(f"{name!r}" + ("" if whole else f" ({share:g})") for name, share in origins.items()) or "none"
