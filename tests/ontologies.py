"""Random ontologies for property tests."""

from typing import Any

from hypothesis import strategies as st

from leco import Ontology


@st.composite
def ontologies(draw: st.DrawFn, trees: bool = False, every_class_has_a_past: bool = False, least: int = 2) -> Ontology:
    """Two (or `least`) to four versions with splits, merges, renames, new, removed and ignored classes (or trees)."""
    versions: list[dict[str, Any]] = [{"name": "v0", "classes": _names("a", draw(st.integers(1, 4)))}]
    before = list(versions[0]["classes"])
    for number in range(1, draw(st.integers(least, 4))):
        classes: dict[str, Any] = {}
        renamed: set[str] = set()
        if trees:
            for parent in before:
                children = draw(st.integers(1, 3))
                names = [parent] if children == 1 else [f"{parent}{letter}" for letter in "xyz"[:children]]
                classes |= {name: None if name == parent else {"from": parent} for name in names}
        else:
            for index in range(draw(st.integers(1, 5))):
                _add_class(draw, classes, before, renamed, f"c{number}{index}", every_class_has_a_past)
        ignore = [] if trees else draw(st.sampled_from([[], ["void"], [f"void{number}"]]))
        versions.append({"name": f"v{number}", "classes": classes, "ignore": ignore})
        before = list(classes)
    return Ontology.from_dict({"name": "random", "versions": versions})


def _names(letter: str, count: int) -> list[str]:
    return [f"{letter}{index}" for index in range(count)]


def _add_class(
    draw: st.DrawFn,
    classes: dict[str, Any],
    before: list[str],
    renamed: set[str],
    name: str,
    every_class_has_a_past: bool,
) -> None:
    free = [old for old in before if old not in renamed and old not in classes]
    kinds = ["split", "merge", "shares"] + (["kept", "renamed"] if free else [])
    kind = draw(st.sampled_from(kinds + ([] if every_class_has_a_past else ["added"])))
    if kind == "kept":
        old = draw(st.sampled_from(free))
        classes[old] = None
    elif kind == "renamed":
        old = draw(st.sampled_from(free))
        renamed.add(old)
        classes[name] = {"renamed": old}
    elif kind == "added":
        classes[name] = None
    elif kind == "split":
        classes[name] = {"from": draw(st.sampled_from(before))}
    else:
        parents = draw(st.lists(st.sampled_from(before), min_size=1, max_size=3, unique=True))
        if kind == "merge":
            classes[name] = {"from": parents}
        else:
            weights = [draw(st.integers(1, 9)) for _ in parents]
            classes[name] = {"from": {p: w / sum(weights) for p, w in zip(parents, weights, strict=True)}}


def two_versions(old: object, new: object) -> Ontology:
    """The history of two versions, v1 and v2, whose classes are given."""
    return Ontology.from_dict({"versions": [{"name": "v1", "classes": old}, {"name": "v2", "classes": new}]})
