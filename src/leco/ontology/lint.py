"""What a careful reader would ask about an ontology that is valid."""

from leco.errors import closest
from leco.ontology.changes import Change
from leco.ontology.ontology import Ontology


def remarks(ontology: Ontology, changes_of_steps: list[list[Change]]) -> list[str]:
    """Things that are allowed but may not be meant, given the changes from each version to the next."""
    notes = []
    if not ontology.steps:
        notes.append(f"{ontology.newest.name}: is the only version; add the next one below it when labels change")
    for step, changes in zip(ontology.steps, changes_of_steps, strict=True):
        old, new = step.old, step.new
        added = [change.new[0] for change in changes if change.kind == "added"]
        removed = [change.old[0] for change in changes if change.kind == "removed"]
        if added:
            notes.append(
                f"{new.name}: brand-new, so no label of {old.name} can mean {_list(added)}; "
                "if its samples were labelled before, say `from`"
            )
        if removed:
            notes.append(
                f"{new.name}: nothing comes from {_list(removed)} of {old.name}, so samples with that label are "
                "refused; if they should say nothing instead, list it under `ignore`"
            )
        notes += [
            f"{new.name}: is {name!r} the old {close!r}? Then say `renamed: {close}`"
            for name in added[:20]
            if (close := closest(name, removed, 0.75))
        ]
        repeated = sorted({name for name in new.classes if new.lookup[name] < 0})
        if repeated:
            notes.append(f"{new.name}: several classes are named {_list(repeated)}; labels must use their ids")
    return notes


def _list(names: list[str]) -> str:
    shown = ", ".join(repr(name) for name in names[:5])
    return shown + (f" and {len(names) - 5} more" if len(names) > 5 else "")
