"""What is stored beside the scores of a cell: curves, pseudo-labels, classes, where mistakes go; means over seeds."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from statistics import mean
from typing import Any

from leco.errors import LecoError
from leco.ontology.ontology import Ontology
from leco.reports.sections import Key, Section
from leco.reports.stored import Record

MAIN = ("ce", "joint", "lpl", "lpl+st-hard/cond")


@dataclass(frozen=True)
class Point:
    """Of a curve: a step, and the mean over the seeds there."""

    step: int
    value: float


@dataclass(frozen=True)
class ClassScore:
    """A class: how often it is tested, and how well it is recognised (a fraction)."""

    name: str
    support: float
    value: float


@dataclass(frozen=True)
class Mistakes:
    """Shares of all tested samples, or pixels; the three sum to one."""

    right: float
    within: float  # wrong, but right at the older version: confused with a sibling
    outside: float

    @property
    def within_share(self) -> float | None:
        """The share of the mistakes that stay within the parent."""
        wrong = self.within + self.outside
        return self.within / wrong if wrong > 0 else None


def main_cells(section: Section) -> dict[str, Key]:
    """The few cells that figures show, by name: the paper's main ones, and the method that is best on validation."""
    last = section.last
    if not last:
        return {"TP0": next(iter(section.cells))} if section.cells else {}
    found = {name: Key(last, name) for name in MAIN if Key(last, name) in section.cells}
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


def metrics(record: Record) -> list[dict[str, Any]]:
    """The lines of `metrics.jsonl`; none if they cannot be read."""
    try:
        lines = (record.folder / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
        found = [json.loads(line) for line in lines]
        return [line for line in found if isinstance(line["step"], int) and isinstance(line["means"], dict)]
    except (OSError, ValueError, KeyError, TypeError):
        return []


def curve(section: Section, key: Key, quantity: str) -> list[Point]:
    """A quantity over steps: `score` (on validation), or one of the means, such as `kept`; at steps all seeds have."""
    by_seed = []
    for record in section.cells[key].values():
        values = {}
        for line in metrics(record):
            value = line.get("score") if quantity == "score" else line["means"].get(quantity)
            if isinstance(value, int | float):
                values[line["step"]] = float(value)
        if values:
            by_seed.append(values)
    if not by_seed:
        return []
    steps = sorted(set.intersection(*map(set, by_seed)))
    return [Point(step, mean(values[step] for values in by_seed)) for step in steps]


@lru_cache(maxsize=256)
def _tested(folder: Path) -> dict[str, Any]:
    """The test scores at every version; none if they cannot be read."""
    try:
        found = json.loads((folder / "result.json").read_bytes())["test"]
    except (OSError, ValueError, KeyError, TypeError):
        return {}
    return found if isinstance(found, dict) else {}


def class_scores(section: Section, key: Key, version: str, metric: str | None = None) -> list[ClassScore]:
    """Every tested class of a version, in the ontology's order."""
    field = {"macc": "accuracy", "miou": "iou"}[metric or section.metric]
    values: dict[str, list[tuple[float, float]]] = {}
    for record in section.cells[key].values():
        for row in _tested(record.folder).get(version, {}).get("per_class", []):
            if row.get(field) is not None:
                values.setdefault(str(row["class"]), []).append((row["support"], row[field]))
    return [ClassScore(name, mean(s for s, _ in rows), mean(v for _, v in rows)) for name, rows in values.items()]


def mistakes(section: Section, key: Key) -> Mistakes | None:
    """Where the mistakes go, by the accuracies at the newest and at the next older version.

    Both are over all samples (not classes). Classes of an older version are predicted by adding up probabilities, so
    what is right there and wrong at the newest version is counted net.
    """
    if not key.period:
        return None
    new, old = (_accuracy(class_scores(section, key, v, "macc")) for v in section.versions[key.period : None : -1][:2])
    if new is None or old is None:
        return None
    return Mistakes(new, max(0.0, old - new), min(1 - old, 1 - new))


def mistakes_by_parent(section: Section, key: Key, ontology: Ontology) -> dict[str, Mistakes]:
    """The same for every class of the next older version, from its own samples and those of its children."""
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
    """The ontology that the store keeps, or that of the embedded digits."""
    for name in dict.fromkeys(record.ontology for record in section.records if record.ontology):
        try:
            return Ontology.load(runs / "ontologies" / f"{name}.json")
        except LecoError:
            continue
    if section.benchmark == "digits-leco":
        from leco.data.benchmarks import digits

        return digits.ontology()
    return None


def overlay_of(section: Section) -> bytes | None:
    """The picture of a segmentation stage: of the method that is best on validation, first seed."""
    key = best_on_validation(section)
    for record in section.cells.get(key, {}).values() if key else ():
        path = record.folder / "overlays.png"
        if path.is_file():
            return path.read_bytes()
    return None
