"""Details of cells, as means over seeds: learning curves, pseudo-labels, classes, kinds of mistakes."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from statistics import mean

from leco.errors import LecoError
from leco.ontology.ontology import Ontology
from leco.paper import Key
from leco.paper.claims import BEST, FINETUNE, JOINT, LPL
from leco.records import METRICS_LINES, Line, Result, read_lines, read_result
from leco.reports.sections import Section
from leco.reports.stored import Record

_GROUPS = 5  # of classes, from rare to frequent
_MAIN = (FINETUNE, JOINT, LPL, BEST)


@dataclass(frozen=True)
class Point:
    """A point of a curve: a step, and the mean over seeds there."""

    step: int
    value: float


@dataclass(frozen=True)
class ClassScore:
    """A class: its number of test samples, its score as a fraction, and its number of labels, if that is known."""

    name: str
    support: float
    value: float
    labels: float | None = None


@dataclass(frozen=True)
class Mistakes:
    """Shares of all test samples, or pixels; the three sum to one."""

    right: float
    within: float  # wrong, but right at the older version: confused with a sibling
    outside: float

    @property
    def within_share(self) -> float | None:
        """The share of mistakes within the parent; None without mistakes."""
        wrong = self.within + self.outside
        return self.within / wrong if wrong > 0 else None


def main_cells(section: Section) -> dict[str, Key]:
    """The cells that figures show, by name: the paper's main methods, the best on validation, and all-fine."""
    last = section.last
    if not last:
        return {"TP0": next(iter(section.cells))} if section.cells else {}
    found = {key.method: key for key in (key._replace(period=last) for key in _MAIN) if key in section.cells}
    best = best_on_validation(section)
    if best is not None:
        found.setdefault(best.method, best)
    top = Key(last, annotation="all-fine")
    return found | ({"all-fine": top} if top in section.cells else {})


def best_on_validation(section: Section) -> Key | None:
    """The label-new cell of the newest period with the best mean on validation, of those with the most seeds."""
    found = {}
    for key, seeds in section.cells.items():
        values = [record.validation for record in seeds.values() if record.validation is not None]
        if key.period == section.last and key.annotation == "label-new" and key.strategy == "finetune" and values:
            found[key] = (len(values), mean(values))
    return max(found, key=lambda key: found[key], default=None)


def metrics(record: Record) -> list[Line]:
    """The lines of `metrics.jsonl`; an empty list if it cannot be read."""
    try:
        return read_lines(record.folder / METRICS_LINES)
    except LecoError:
        return []


def curve(section: Section, key: Key, quantity: str) -> list[Point]:
    """A quantity at the steps that all seeds have: `score` (on validation), or one of the means, such as `kept`."""
    by_seed = []
    for record in section.cells[key].values():
        values = {}
        for line in metrics(record):
            value = line.score if quantity == "score" else line.means.get(quantity)
            if value is not None:
                values[line.step] = value
        if values:
            by_seed.append(values)
    if not by_seed:
        return []
    steps = sorted(set.intersection(*map(set, by_seed)))
    return [Point(step, mean(values[step] for values in by_seed)) for step in steps]


@lru_cache(maxsize=256)
def _result(folder: Path) -> Result | None:
    """The result of a stage; None if it cannot be read."""
    try:
        return read_result(folder)
    except LecoError:
        return None


def class_scores(section: Section, key: Key, version: str, metric: str | None = None) -> list[ClassScore]:
    """Every tested class of a version, in the ontology's order."""
    field = {"macc": "accuracy", "miou": "iou"}[metric or section.metric]
    values: dict[str, list[tuple[float, float]]] = {}
    labels: dict[str, list[float]] = {}
    for record in section.cells[key].values():
        result = _result(record.folder)
        tested = (result.test or {}).get(version) if result else None
        for row in tested.per_class if tested else ():
            if (value := getattr(row, field)) is not None:
                values.setdefault(row.name, []).append((row.support, value))
        for name, count in result.labels.items() if result and version == record.version else ():
            labels.setdefault(name, []).append(count)
    counts = {name: mean(found) for name, found in labels.items()}
    return [
        ClassScore(name, mean(s for s, _ in rows), mean(v for _, v in rows), counts.get(name))
        for name, rows in values.items()
    ]


def group_by_frequency(classes: Sequence[ClassScore], groups: int = _GROUPS) -> dict[str, list[str]]:
    """Names of classes in about equally large groups, rarest first; equally frequent classes share a group.

    Frequent are classes with many labels or, where these were not stored, with many test samples.

    >>> group_by_frequency([ClassScore("a", 9, 1.0), ClassScore("b", 1, 0.5), ClassScore("c", 9, 0.0)], 3)
    {'1': ['b'], '9': ['a', 'c']}
    """
    known = counts_labels(classes)
    frequency = {found.name: round((found.labels or 0.0) if known else found.support) for found in classes}
    ordered = sorted(frequency, key=lambda name: frequency[name])
    by_rank: dict[int, int] = {}
    for rank, name in enumerate(ordered):
        by_rank.setdefault(frequency[name], rank * groups // len(ordered))
    grouped: dict[int, list[str]] = {}
    for name in ordered:
        grouped.setdefault(by_rank[frequency[name]], []).append(name)
    result: dict[str, list[str]] = {}
    for names in grouped.values():
        low, high = frequency[names[0]], frequency[names[-1]]
        result.setdefault(_count(low) if low == high else f"{_count(low)} to {_count(high)}", []).extend(names)
    return result


def counts_labels(classes: Sequence[ClassScore]) -> bool:
    """Whether the number of labels of every class was stored."""
    return all(found.labels is not None for found in classes)


def group_means(groups: Mapping[str, Sequence[str]], classes: Sequence[ClassScore]) -> list[tuple[str, float]]:
    """The mean score of each group of classes."""
    values = {found.name: found.value for found in classes}
    known = {group: [values[name] for name in names if name in values] for group, names in groups.items()}
    return [(group, mean(found)) for group, found in known.items() if found]


def _count(number: float) -> str:
    """A number with at most three digits, for an axis."""
    for unit, size in (("M", 1e6), ("k", 1e3)):
        if number >= size:
            return f"{number / size:.2g}{unit}" if number < 100 * size else f"{number / size:.0f}{unit}"
    return f"{number:.0f}"


def mistakes(section: Section, key: Key) -> Mistakes | None:
    """Kinds of mistakes, from the accuracies at the newest and the next older version.

    Both are over samples, not classes. Older versions are predicted by adding up probabilities, so samples that are
    right at the older version and wrong at the newest one are counted net of the reverse.
    """
    if not key.period:
        return None
    new, old = (_accuracy(class_scores(section, key, v, "macc")) for v in section.versions[key.period : None : -1][:2])
    if new is None or old is None:
        return None
    return Mistakes(new, max(0.0, old - new), min(1 - old, 1 - new))


def mistakes_by_parent(section: Section, key: Key, ontology: Ontology) -> dict[str, Mistakes]:
    """Kinds of mistakes for every class of the next older version that has several children."""
    if not key.period:
        return {}
    new, old = section.versions[key.period], section.versions[key.period - 1]
    try:
        transition = ontology.transition(new, old)
    except LecoError:
        return {}
    children: dict[str, list[ClassScore]] = {}
    known = dict(zip(transition.new.handles, transition.parents, strict=True))
    for found in class_scores(section, key, new, "macc"):
        parent = int(known.get(found.name, -1))
        if parent >= 0:
            children.setdefault(transition.old.handles[parent], []).append(found)
    result = {}
    for parent_score in class_scores(section, key, old, "macc"):
        mine = children.get(parent_score.name, [])
        right = _accuracy(mine)
        if right is not None and len(mine) > 1:
            above = parent_score.value
            result[parent_score.name] = Mistakes(right, max(0.0, above - right), min(1 - above, 1 - right))
    return result


def _accuracy(classes: Sequence[ClassScore]) -> float | None:
    total = sum(found.support for found in classes)
    return sum(found.support * found.value for found in classes) / total if total else None


def ontology_of(section: Section, runs: Path) -> Ontology | None:
    """The ontology that the store keeps for a section; None if it cannot be read."""
    for name in dict.fromkeys(record.ontology for record in section.records):
        try:
            return Ontology.load(runs / "ontologies" / f"{name}.json")
        except LecoError:
            continue
    return None


def overlay_of(section: Section) -> bytes | None:
    """The overlays of a segmentation stage, of the method that is best on validation."""
    key = best_on_validation(section)
    for record in section.cells.get(key, {}).values() if key else ():
        path = record.folder / "overlays.png"
        if path.is_file():
            return path.read_bytes()
    return None
