"""An `Ontology` as the plain data of its file; the inverse of `schema.parse`."""

from typing import Any

from leco.ontology.ontology import Ontology
from leco.ontology.transition import Transition
from leco.ontology.version import NO_LABEL, Version


def unparse(ontology: Ontology) -> dict[str, Any]:
    """Return plain data that `parse` turns into an equal ontology."""
    versions = []
    used_ids: set[str] = set()
    for number, version in enumerate(ontology.versions):
        step = ontology.steps[number - 1] if number else None
        # A class is called by its name, or, where that is not unique, by its id.
        classes = {version.handle(i): _class(version, i, step, used_ids) for i in range(len(version))}
        content: dict[str, Any] = {"name": version.name, "classes": classes if any(classes.values()) else list(classes)}
        if version.ignored:
            content["ignore"] = list(version.ignored)
        versions.append(content)
        used_ids.update(version.ids)
    return {"name": ontology.name, "versions": versions}


def _class(version: Version, index: int, step: Transition | None, used_ids: set[str]) -> dict[str, Any] | None:
    """Write down what `parse` would not suppose from the key alone."""
    key, name, id_ = version.handle(index), version.classes[index], version.ids[index]
    parents = step.origins(index) if step else {}
    before = step.old if step else None
    spec: dict[str, Any] = {}
    supposed_name, supposed_id = key, key if key not in used_ids else None
    same = before.lookup.get(key) if before else None
    if before and len(parents) == 1 and same not in parents and before.ids[next(iter(parents))] == id_:
        spec["renamed"] = before.handle(next(iter(parents)))
        supposed_id = id_
    elif before and same in parents:
        supposed_name, supposed_id = before.classes[same], before.ids[same]
        if len(parents) > 1:
            spec["from"] = _shares(before, parents)
    elif before and (parents or (same is not None and same != NO_LABEL)):
        spec["from"] = _shares(before, parents)
    if name != supposed_name:
        spec["name"] = name
    if id_ != supposed_id:
        spec["id"] = id_
    return spec or None


def _shares(before: Version, parents: dict[int, float]) -> str | list[str] | dict[str, float]:
    shares = {before.handle(parent): share for parent, share in parents.items()}
    if len(shares) == 1:
        return next(iter(shares))
    equal = all(abs(share - 1 / len(shares)) < 1e-12 for share in shares.values())
    return list(shares) if equal else shares
