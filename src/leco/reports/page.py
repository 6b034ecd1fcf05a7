"""A report as one page: everything is in the file, and it needs neither a network nor scripts."""

import base64
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from jinja2 import Environment, PackageLoader, select_autoescape

from leco.errors import LecoError
from leco.ontology.draw import to_svg
from leco.ontology.ontology import Ontology
from leco.reports import plots
from leco.reports.details import (
    ClassScore,
    Point,
    best_on_validation,
    class_scores,
    curve,
    main_cells,
    mistakes,
    mistakes_by_parent,
    ontology_of,
    overlay_of,
)
from leco.reports.formats import LEGEND, SHARE, TESTED, cell_text, count_text, gain_text, more
from leco.reports.plans import PlanPart
from leco.reports.report import METRICS, Part, Report
from leco.reports.sections import Key, Section

_FEW_CLASSES = 40
_GROUPS = 5
_MOST_PARENTS = 16
_MOST_CHANGES = 8
_MARKS = {"confirmed": "✓", "contradicted": "✗", "undecided": "?"}  # told apart without colour


@dataclass(frozen=True)
class Figure:
    """A picture with its words; `data` is what an `img` shows."""

    title: str
    caption: str
    data: str
    wide: bool = False  # shown in its own size, and scrolled


@dataclass(frozen=True)
class Change:
    """A class, and how well it is recognised by two methods, in percent."""

    name: str
    before: float
    after: float


@dataclass(frozen=True)
class Extras:
    """What only a page shows of a part."""

    figures: list[Figure] = field(default_factory=list)
    ontology: Figure | None = None
    changes: list[Change] = field(default_factory=list)
    compared: tuple[str, str] = ("", "")
    notes: list[str] = field(default_factory=list)
    settings: str = ""


def to_html(report: Report) -> str:
    """The whole page."""
    environment = Environment(
        loader=PackageLoader("leco.reports", "."), autoescape=select_autoescape(default=True), trim_blocks=True
    )
    environment.globals.update(cell_text=cell_text, count_text=count_text, gain_text=gain_text, more=more)
    environment.globals.update(legend=LEGEND, share=SHARE, tested=TESTED, marks=_MARKS)
    shown = [(part, _extras(part, report.runs)) for part in report.parts]
    plans = [(plan, _cost_curve(plan)) for plan in report.plans]
    return environment.get_template("report.html").render(report=report, parts=shown, plans=plans)


def _cost_curve(plan: PlanPart) -> Figure:
    caption = (
        "best: the mixture with the highest expected accuracy at each cost; band: its 90 % interval, of one training."
    )
    return Figure("Cost against expected accuracy", caption, _svg(plots.costs(plan.curve, plan.chosen)))


def _extras(part: Part, runs: Path) -> Extras:
    section = part.section
    extras = Extras(settings=json.dumps(section.settings, indent=1, sort_keys=True))
    cells = main_cells(section)
    metric = f"{section.metric.replace('macc', 'accuracy').replace('miou', 'IoU')}, %"
    extras.figures.extend(_curves(section, cells))
    if not extras.figures:
        extras.notes.append("Nothing was validated more than once while it was trained: there are no curves.")
    scores = {name: class_scores(section, key, section.versions[section.last]) for name, key in cells.items()}
    scores = {name: found for name, found in scores.items() if found}
    if scores:
        extras.figures.extend(_classes(scores, metric))
        extras.figures.extend(_long_tail(scores, metric, extras.notes))
    ontology = ontology_of(section, runs)
    extras.figures.extend(_siblings(section, cells, ontology))
    picture = overlay_of(section)
    if picture is not None:
        extras.figures.append(
            Figure("What the network sees", "Images, labels and predictions of a test sample.", _uri(picture, "png"))
        )
    made = Extras(extras.figures, _drawing(ontology), *_changes(section, scores), extras.notes, extras.settings)
    if ontology is None:
        made.notes.append("The store holds no ontology of these runs, so none is drawn.")
    return made


def _curves(section: Section, cells: Mapping[str, Key]) -> Iterable[Figure]:
    lines = {name: curve(section, key, "score") for name, key in cells.items()}
    lines = {name: points for name, points in lines.items() if len(points) > 1}
    if lines:
        caption = f"{METRICS.get(section.metric, section.metric)} on validation; means over seeds"
        yield Figure("Learning curves", f"TP{section.last}: {caption}.", _svg(plots.curves(lines, "validation, %")))
    others = [key for key in section.cells if key.period == section.last and "+" in key.method]
    healthy = sorted(others, key=lambda key: key.method)
    wanted = [key for name, key in cells.items() if "+" in name]
    chosen = list(dict.fromkeys([*wanted, *healthy]))[:4]
    quality: dict[str, list[Point]] = {}
    for key in chosen:
        for quantity in ("kept", "agreement"):
            points = curve(section, key, quantity)
            if len(points) > 1 and len(quality) < 6:
                quality[f"{key.method}: {quantity}"] = points
    if quality:
        caption = (
            "kept: the share of pseudo-labels that passed filter and threshold; agreement: the share whose likeliest "
            "class fits the old label, before any refinement. Means over seeds, and over the steps since the last "
            "validation."
        )
        yield Figure("Pseudo-labels over time", caption, _svg(plots.curves(quality, "% of pseudo-labels")))


def _classes(scores: Mapping[str, Sequence[ClassScore]], metric: str) -> Iterable[Figure]:
    count = len(next(iter(scores.values())))
    if count <= _FEW_CLASSES:
        yield Figure("Classes", "Each class on test; means over seeds.", _svg(plots.classes_dots(scores, metric)))
    else:
        caption = f"All {count} tested classes, sorted for each method; means over seeds."
        yield Figure("Classes", caption, _svg(plots.classes_sorted(scores, metric)))


def _long_tail(scores: Mapping[str, Sequence[ClassScore]], metric: str, notes: list[str]) -> Iterable[Figure]:
    supports = [found.support for found in next(iter(scores.values()))]
    grouped = {name: group_by_support(found) for name, found in scores.items()}
    if len(next(iter(grouped.values()))) < 3 or max(supports) < 1.5 * min(supports):
        notes.append("Most classes are tested equally often, or they are few: there is no long tail to draw.")
        return
    caption = "Means over the classes of a group, rarest first; groups are about a fifth of the classes each."
    yield Figure("Rare and frequent classes", caption, _svg(plots.by_support(grouped, metric)))


def group_by_support(classes: Sequence[ClassScore], groups: int = _GROUPS) -> list[tuple[str, float]]:
    """Mean score of about equally large groups of classes, rarest first; equally frequent ones stand together.

    >>> group_by_support([ClassScore("a", 9, 1.0), ClassScore("b", 1, 0.5), ClassScore("c", 9, 0.0)], 3)
    [('1', 0.5), ('9', 0.5)]
    """
    ordered = sorted(classes, key=lambda found: found.support)
    by_rank: dict[float, int] = {}
    for rank, found in enumerate(ordered):
        by_rank.setdefault(found.support, rank * groups // len(ordered))
    grouped: dict[int, list[ClassScore]] = {}
    for found in ordered:
        grouped.setdefault(by_rank[found.support], []).append(found)
    result = []
    for group in grouped.values():
        low, high = group[0].support, group[-1].support
        name = _count(low) if low == high else f"{_count(low)} to {_count(high)}"
        result.append((name, sum(found.value for found in group) / len(group)))
    return result


def _count(number: float) -> str:
    """A number short enough for an axis."""
    for unit, size in (("M", 1e6), ("k", 1e3)):
        if number >= size:
            return f"{number / size:.2g}{unit}" if number < 100 * size else f"{number / size:.0f}{unit}"
    return f"{number:.0f}"


def _siblings(section: Section, cells: Mapping[str, Key], ontology: Ontology | None) -> Iterable[Figure]:
    rows = {name: found for name, key in cells.items() if (found := mistakes(section, key)) is not None}
    if not rows:
        return
    older = section.versions[section.last - 1]
    shares = [f"{name} {found.within_share:.0%}" for name, found in rows.items() if found.within_share is not None]
    caption = (
        f"Confusion between siblings: what is wrong at {section.versions[section.last]} but right at {older} stays "
        f"within its parent, (acc_old - acc_new) / (1 - acc_new) of all mistakes: {', '.join(shares)}. Accuracy is "
        "over samples here, not over classes; older versions are predicted by adding up probabilities, so the count is "
        "net."
    )
    yield Figure("Where mistakes go", caption, _svg(plots.stacked_mistakes(rows, older)))
    best = best_on_validation(section)
    if ontology is None or best is None:
        return
    parents = mistakes_by_parent(section, best, ontology)
    worst = sorted(parents, key=lambda name: parents[name].within, reverse=True)[:_MOST_PARENTS]
    if worst:
        title = f"Siblings that are confused most, by their parent in {older}"
        caption = f"Of {best.method}, the method that is best on validation; {len(worst)} of {len(parents)} parents."
        yield Figure(title, caption, _svg(plots.stacked_mistakes({name: parents[name] for name in worst}, older)))


def _changes(section: Section, scores: Mapping[str, Sequence[ClassScore]]) -> tuple[list[Change], tuple[str, str]]:
    """The classes that gain and lose most between `ce` and the method that is best on validation."""
    best = best_on_validation(section)
    after = best.method if best else ""
    if "ce" not in scores or after not in scores or after == "ce":
        return [], ("", "")
    before = {found.name: found.value for found in scores["ce"]}
    found = [Change(c.name, 100 * before[c.name], 100 * c.value) for c in scores[after] if c.name in before]
    ordered = sorted(found, key=lambda change: change.before - change.after)
    if len(ordered) <= 2 * _MOST_CHANGES:
        return ordered, ("ce", after)
    return [*ordered[:_MOST_CHANGES], *ordered[-_MOST_CHANGES:]], ("ce", after)


def _drawing(ontology: Ontology | None) -> Figure | None:
    if ontology is None:
        return None
    history = " → ".join(f"{version.name} ({len(version)} classes)" for version in ontology.versions)
    try:
        return Figure(f"Ontology {ontology.name}", f"{history}.", _svg(to_svg(ontology)), wide=True)
    except LecoError:  # too many classes for a picture
        return None


def _svg(text: str) -> str:
    return _uri(text.encode(), "svg+xml")


def _uri(content: bytes, kind: str) -> str:
    return f"data:image/{kind};base64,{base64.b64encode(content).decode()}"
