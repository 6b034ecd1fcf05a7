"""Build ontologies from lineages, such as order, family, genus, species."""

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

from leco.errors import LecoError
from leco.ontology.ontology import Ontology
from leco.ontology.schema import parse


def taxonomy(
    name: str, versions: Sequence[str], lineages: Iterable[Sequence[str]], ignored: Sequence[str] = ()
) -> Ontology:
    """Build a tree with one version per level; a class is its whole lineage, so names need not be unique."""
    levels: list[dict[tuple[str, ...], None]] = [{} for _ in versions]
    for number, lineage in enumerate(lineages):
        lineage = tuple(lineage) if isinstance(lineage, Iterable) else (lineage,)
        if len(lineage) != len(versions) or not all(isinstance(level, str) for level in lineage):
            raise LecoError(f"lineage {number} of {name}: {lineage} must have one name for each of {list(versions)}")
        for depth, level in enumerate(levels, start=1):
            level[lineage[:depth]] = None
    content: list[dict[str, Any]] = []
    parent_keys: dict[tuple[str, ...], str] = {}
    for version, level in zip(versions, levels, strict=True):
        keys = _keys(list(level))
        classes: dict[str, dict[str, str]] = {}
        for path, key in keys.items():
            classes[key] = {"name": path[-1]} if key != path[-1] else {}
            if parent_keys:
                classes[key]["from"] = parent_keys[path[:-1]]
        content.append({"name": version, "classes": classes, "ignore": list(ignored)})
        parent_keys = keys
    return parse({"name": name, "versions": content})


def _keys(paths: list[tuple[str, ...]]) -> dict[tuple[str, ...], str]:
    """Return the shortest end of each lineage that is unique."""
    keys: dict[tuple[str, ...], str] = {}
    for depth in range(1, len(paths[0]) + 1 if paths else 1):
        count = Counter(path[-depth:] for path in paths)
        for path in paths:
            if path not in keys and count[path[-depth:]] == 1:
                keys[path] = "/".join(path[-depth:])
    for key, uses in Counter(keys.values()).items():
        if uses > 1:
            raise LecoError(f"{key!r} would be the id of {uses} classes; do not use / in names that are not unique")
    return {path: keys[path] for path in paths}
