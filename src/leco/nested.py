"""Settings as nested mappings."""

from collections.abc import Mapping
from typing import Any


def merge(base: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """Return nested settings with those of `given` in place of those of `base`.

    >>> merge({"batches": {"steps": 5, "size": 8}}, {"batches": {"steps": 7}})
    {'batches': {'steps': 7, 'size': 8}}
    """
    merged = dict(base)
    for name, value in given.items():
        old = merged.get(name)
        merged[name] = merge(old, value) if isinstance(old, Mapping) and isinstance(value, Mapping) else value
    return merged


def nest(flat: Mapping[str, Any]) -> dict[str, Any]:
    """Return dotted settings as nested ones.

    >>> nest({"batches.steps": 5, "batches.size": 8})
    {'batches': {'steps': 5, 'size': 8}}
    """
    nested: dict[str, Any] = {}
    for name, value in flat.items():
        *parts, last = name.split(".")
        inner = nested
        for part in parts:
            inner = inner.setdefault(part, {})
        inner[last] = value
    return nested
