"""Remarks on valid ontologies that may contain a mistake."""

from leco.errors import and_more, closest
from leco.ontology.changes import Change
from leco.ontology.ontology import Ontology

_SHOWN = 5  # classes in a remark


def remarks(ontology: Ontology, changes_of_steps: list[list[Change]]) -> list[str]:
    """Return remarks on what is valid but may be a mistake, given the changes from each version to the next."""
    notes = []
    if not ontology.steps:
        notes.append(f"{ontology.newest.name}: is the only version; append the next one when the labels change")
    for step, changes in zip(ontology.steps, changes_of_steps, strict=True):
        old, new = step.old, step.new
        added = [change.new[0] for change in changes if change.kind == "added"]
        removed = [change.old[0] for change in changes if change.kind == "removed"]
        if added:
            notes.append(
                f"{new.name}: brand-new, so no label of {old.name} can mean {_list(added)}; add `from` if such samples "
                "were labelled before"
            )
        if removed:
            notes.append(
                f"{new.name}: nothing comes from {_list(removed)} of {old.name}, so samples with this label are "
                "refused; to ignore the label instead, list it under `ignore`"
            )
        notes += [
            f"{new.name}: is {name!r} the old {close!r}? Then write `renamed: {close}`"
            for name in added[:20]
            if (close := closest(name, removed, 0.75))
        ]
        repeated = sorted({name for name in new.classes if new.lookup[name] < 0})
        if repeated:
            notes.append(f"{new.name}: several classes are named {_list(repeated)}; use their ids in labels")
    return notes


def _list(names: list[str]) -> str:
    return ", ".join(and_more([repr(name) for name in names], _SHOWN))
