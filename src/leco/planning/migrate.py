"""Labels carried over to a newer version: what needs nobody, and what needs an annotator."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from leco.data.cells import check_versions, encode_labels
from leco.data.paths import sample_path
from leco.data.problems import Problems
from leco.data.table import Table, check_columns
from leco.ontology.ontology import Ontology
from leco.ontology.version import NO_LABEL

MEANING = {
    "kept": "the same class",
    "renamed": "the same class under another name",
    "replaced": "one class became one other",
    "merged": "several classes became one",
    "split": "one of several classes: an annotator must say which",
    "carved": "the class itself, or one taken out of it: an annotator must say which",
    "redrawn": "several classes became several others: an annotator must say which",
    "partly ended": "part of the class is no class any more: an annotator must say whether this is",
    "contradicting": "labels of two older versions lead to different classes",
    "ignored": "no longer a class: its labels now say nothing",
    "removed": "no class is left for this label",
    "there already": "the sample has a label of that version",
    "newer": "the label is of a later version",
    "unlabelled": "there is no label",
}
WITHOUT_HUMAN = ("kept", "renamed", "replaced", "merged")
WITH_HUMAN = ("split", "carved", "redrawn", "partly ended", "contradicting")


Questions = dict[tuple[str, str], tuple[int, tuple[str, ...]]]  # version and class: how often, and the choices


@dataclass(frozen=True)
class Fate:
    """What became of one class of one version."""

    kind: str
    choices: tuple[str, ...]  # classes that it can be now


@dataclass
class Migration:
    """What can be carried over, row by row."""

    to: str
    table: Table
    kinds: list[str]  # of each row
    fates: list[Fate | None]  # of each row that has an older label
    added: dict[str, str] = field(default_factory=dict)  # sample -> its class now, found without an annotator

    @property
    def counts(self) -> dict[str, int]:
        """Rows of each kind, those that need nobody first."""
        found = Counter(self.kinds)
        return {kind: found[kind] for kind in (*WITHOUT_HUMAN, *WITH_HUMAN, *MEANING) if found[kind]}

    def questions(self) -> Questions:
        """Old classes that need an annotator: how many rows, and what has to be offered; most rows first."""
        found: Questions = {}
        for place, (kind, fate) in enumerate(zip(self.kinds, self.fates, strict=True)):
            if kind in WITH_HUMAN and fate is not None:
                key = (self.table["version"][place], self.table["label"][place])
                found[key] = (found.get(key, (0,))[0] + 1, fate.choices)
        return dict(sorted(found.items(), key=lambda item: -item[1][0]))

    def migrated(self) -> Table:
        """All rows, and one more for every sample that is carried over; old labels stay."""
        return with_rows(self.table, self.added, self.to)


def with_rows(table: Table, added: Mapping[str, str], version: str) -> Table:
    """The table with one more row for each sample: its label, or its mask, under a version."""
    columns = {name: list(values) for name, values in table.columns.items()}
    for sample, label in added.items():
        row = {table.kind: sample, table.target: label, "version": version}
        for name, values in columns.items():
            values.append(row.get(name, ""))
    return Table(table.source, columns)


def migrate(table: Table, ontology: Ontology, to: str) -> Migration:
    """Look at every label of a manifest."""
    check_rows(table, ontology)
    last = ontology.position(to)
    fates = {
        (version.name, index): fate
        for version in ontology.versions[:last]
        for index, fate in enumerate(fates_of(ontology, version.name, to))
    }
    codes = [  # also of classes that were removed
        ontology[version].index(label) if label else NO_LABEL
        for version, label in zip(table["version"], table["label"], strict=True)
    ]
    samples, versions = [sample_path(sample, table.kind) for sample in table[table.kind]], table["version"]
    there = {
        sample for sample, version, code in zip(samples, versions, codes, strict=True) if version == to and code >= 0
    }
    found = Migration(to, table, [], [])
    classes: dict[str, set[str]] = {}
    for sample, version, label, code in zip(samples, versions, table["label"], codes, strict=True):
        fate = fates.get((version, code))
        found.fates.append(fate)
        if not label:
            found.kinds.append("unlabelled")
        elif sample in there:
            found.kinds.append("there already")
        elif ontology.position(version) > last:
            found.kinds.append("newer")
        elif fate is None:  # a label that was ignored from the start
            found.kinds.append("ignored")
        else:
            found.kinds.append(fate.kind)
            if fate.kind in WITHOUT_HUMAN:
                classes.setdefault(sample, set()).update(fate.choices)
    found.added = {sample: next(iter(names)) for sample, names in classes.items() if len(names) == 1}
    for place, (sample, kind) in enumerate(zip(samples, found.kinds, strict=True)):
        if kind in WITHOUT_HUMAN and sample not in found.added:
            found.kinds[place] = "contradicting"
    return found


def check_rows(table: Table, ontology: Ontology) -> None:
    """Refuse a manifest with unknown columns, versions or labels."""
    problems = Problems(Path(table.source), rows=len(table))
    problems.extend(check_columns(table))
    problems.raise_any()
    problems.extend(check_versions(table, ontology))
    wrong = encode_labels(table, ontology)[1]
    problems.extend(problem for problem in wrong if problem.kind != "impossible label")  # counted as removed
    problems.raise_any()


def fates_of(ontology: Ontology, old: str, new: str) -> Iterable[Fate]:
    """What became of each class of a version, in order."""
    transition = ontology.transition(new, old)
    children = transition.sparse.tocsc()
    ignored, removed = ontology.ended(old, new)
    kinds = {name: change.kind for change in ontology.changes(old, new) for name in change.old}
    for index, name in enumerate(ontology[old].handles):
        found = np.sort(children.indices[children.indptr[index] : children.indptr[index + 1]])
        choices = tuple(ontology[new].handle(int(child)) for child in found)
        if not choices:
            yield Fate("ignored" if ignored[index] else "removed", ())
        elif len(choices) == 1 and (ignored[index] or removed[index]):
            yield Fate("partly ended", choices)
        elif len(choices) == 1:
            # In a redrawn group, a class may still have become one class only.
            yield Fate(kinds[name] if kinds[name] in WITHOUT_HUMAN else "merged", choices)
        else:
            yield Fate(kinds[name] if kinds[name] in WITH_HUMAN else "redrawn", choices)
