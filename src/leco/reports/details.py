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
from leco.records import METRICS_LINES, Line, VersionScores, read_lines, read_result
from leco.reports.sections import Section
from leco.reports.stored import Record

_MAIN = (FINETUNE, JOINT, LPL, BEST)


@dataclass(frozen=True)
class Point:
    """A point of a curve: a step, and the mean over seeds there."""

    step: int
    value: float


@dataclass(frozen=True)
class ClassScore:
    """A class: its number of test samples, and its score as a fraction."""

    name: str
    support: float
    value: float


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
def _tested(folder: Path) -> Mapping[str, VersionScores]:
    """The test scores at every version; none if they cannot be read."""
    try:
        return read_result(folder).test or {}
    except LecoError:
        return {}


def class_scores(section: Section, key: Key, version: str, metric: str | None = None) -> list[ClassScore]:
    """Every tested class of a version, in the ontology's order."""
    field = {"macc": "accuracy", "miou": "iou"}[metric or section.metric]
    values: dict[str, list[tuple[float, float]]] = {}
    for record in section.cells[key].values():
        tested = _tested(record.folder).get(version)
        for row in tested.per_class if tested else ():
            if (value := getattr(row, field)) is not None:
                values.setdefault(row.name, []).append((row.support, value))
    return [ClassScore(name, mean(s for s, _ in rows), mean(v for _, v in rows)) for name, rows in values.items()]


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
