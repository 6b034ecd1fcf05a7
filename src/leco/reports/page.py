"""A report as one HTML page, which loads nothing and runs no scripts."""

import base64
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from jinja2 import Environment, PackageLoader, select_autoescape

from leco.errors import LecoError
from leco.ontology.draw import to_svg
from leco.ontology.ontology import Ontology
from leco.paper import Key
from leco.reports import plots
from leco.reports.analyses import Analysis
from leco.reports.details import (
    ClassScore,
    Point,
    best_on_validation,
    class_scores,
    counts_labels,
    curve,
    group_by_frequency,
    group_means,
    main_cells,
    mistakes,
    mistakes_by_parent,
    ontology_of,
    overlay_of,
)
from leco.reports.formats import (
    LEGEND,
    TESTED,
    counts_text,
    interval_text,
    notes_on,
    p_text,
    paper_gain_text,
    problems_text,
    score_text,
)
from leco.reports.plans import PlanPart
from leco.reports.report import METRICS, Part, Report
from leco.reports.sections import Section
from leco.text import interval, percent, plural

_FEW_CLASSES = 40
_MOST_PARENTS = 16
_MOST_CHANGES = 8
_MARKS = {"confirmed": "✓", "contradicted": "✗", "undecided": "?"}  # for readers who see no colours


@dataclass(frozen=True)
class Figure:
    """A picture with its title and caption; `data` is the source of an `img`."""

    title: str
    caption: str
    data: str
    wide: bool = False  # shown in its own size, in a box that scrolls


@dataclass(frozen=True)
class Change:
    """The scores of a class with two methods, in percent."""

    name: str
    before: float
    after: float


@dataclass(frozen=True)
class Extras:
    """The figures and notes of a part, which only a page has."""

    figures: list[Figure]
    ontology: Figure | None
    changes: list[Change]
    compared: tuple[str, str]  # the methods of the changes
    notes: list[str]
    settings: str


def to_html(report: Report) -> str:
    """The page as text."""
    environment = Environment(
        loader=PackageLoader("leco.reports", "."), autoescape=select_autoescape(default=True), trim_blocks=True
    )
    environment.globals.update(score_text=score_text, counts_text=counts_text, notes_on=notes_on, plural=plural)
    environment.globals.update(percent=percent, interval=interval, paper_gain_text=paper_gain_text)
    environment.globals.update(interval_text=interval_text, p_text=p_text)
    environment.globals.update(legend=LEGEND, tested=TESTED, marks=_MARKS, problems=problems_text(report))
    shown = [(part, _extras(part, report.runs)) for part in report.parts]
    plans = [(plan, _cost_curve(plan)) for plan in report.plans]
    found = [(analysis, _analysis_figure(analysis)) for analysis in report.analyses]
    return environment.get_template("report.html").render(report=report, parts=shown, plans=plans, analyses=found)


def _analysis_figure(analysis: Analysis) -> Figure | None:
    lines = {name: points for name, points in analysis.lines.items() if len(points) > 1}
    return Figure(analysis.title, analysis.caption, _svg(plots.sizes(lines, *analysis.axes))) if lines else None


def _cost_curve(plan: PlanPart) -> Figure:
    caption = "best: the mixture with the highest expected accuracy at each cost; band: 90 % interval of one training."
    return Figure("Cost against expected accuracy", caption, _svg(plots.costs(plan.curve, plan.chosen)))


def _extras(part: Part, runs: Path) -> Extras:
    section = part.section
    cells, ontology, notes = main_cells(section), ontology_of(section, runs), list[str]()
    figures = [*_learning_curves(section, cells, notes), *_pseudo_labels(section, cells)]
    metric = f"{section.metric.replace('macc', 'accuracy').replace('miou', 'IoU')}, %"
    scores = {name: class_scores(section, key, section.versions[section.last]) for name, key in cells.items()}
    scores = {name: found for name, found in scores.items() if found}
    if scores:
        figures += [_classes(scores, metric), *_long_tail(scores, metric, notes)]
    figures += _siblings(section, cells, ontology)
    overlays = overlay_of(section)
    if overlays is not None:
        figures.append(Figure("Predictions", "Images, labels and predictions of test samples.", _uri(overlays, "png")))
    if ontology is None:
        notes.append("No drawing of the ontology: the store does not have it.")
    settings = json.dumps(section.settings, indent=1, sort_keys=True)
    return Extras(figures, _drawing(ontology), *_changes(section, scores), notes, settings)


def _learning_curves(section: Section, cells: Mapping[str, Key], notes: list[str]) -> Iterable[Figure]:
    lines = {name: curve(section, key, "score") for name, key in cells.items()}
    lines = {name: points for name, points in lines.items() if len(points) > 1}
    if not lines:
        notes.append("No learning curves: stages were validated only once.")
        return
    caption = f"TP{section.last}: {METRICS.get(section.metric, section.metric)} on validation; means over seeds."
    yield Figure("Learning curves", caption, _svg(plots.curves(lines, "validation, %")))


def _pseudo_labels(section: Section, cells: Mapping[str, Key]) -> Iterable[Figure]:
    main = [key for name, key in cells.items() if "+" in name]
    others = [key for key in section.cells if key.period == section.last and "+" in key.method]
    lines: dict[str, list[Point]] = {}
    for key in list(dict.fromkeys([*main, *sorted(others, key=lambda key: key.method)]))[:4]:
        for quantity in ("kept", "agreement"):
            points = curve(section, key, quantity)
            if len(points) > 1 and len(lines) < 6:
                lines[f"{key.method}: {quantity}"] = points
    if lines:
        caption = (
            "kept: the share of pseudo-labels that pass filter and threshold; agreement: the share whose likeliest "
            "class agrees with the old label, before refinement. Means over seeds, and over the steps since the last "
            "validation."
        )
        yield Figure("Pseudo-labels over time", caption, _svg(plots.curves(lines, "% of pseudo-labels")))


def _classes(scores: Mapping[str, Sequence[ClassScore]], metric: str) -> Figure:
    count = len(next(iter(scores.values())))
    if count <= _FEW_CLASSES:
        caption = "Scores of each class on test; means over seeds."
        return Figure("Classes", caption, _svg(plots.classes_dots(scores, metric)))
    caption = f"All {count} tested classes, sorted for each method; means over seeds."
    return Figure("Classes", caption, _svg(plots.classes_sorted(scores, metric)))


def _long_tail(scores: Mapping[str, Sequence[ClassScore]], metric: str, notes: list[str]) -> Iterable[Figure]:
    first = next(iter(scores.values()))
    groups = group_by_frequency(first)
    if len(groups) < 3:
        notes.append("No figure of rare and frequent classes: they are few, or most are equally frequent.")
        return
    counted = "labels" if counts_labels(first) else "test samples"
    lines = {name: group_means(groups, found) for name, found in scores.items()}
    caption = f"Means over groups of about a fifth of the classes each, by their number of {counted}, rarest first."
    yield Figure("Rare and frequent classes", caption, _svg(plots.by_frequency(lines, metric, counted)))


def _siblings(section: Section, cells: Mapping[str, Key], ontology: Ontology | None) -> Iterable[Figure]:
    rows = {name: found for name, key in cells.items() if (found := mistakes(section, key)) is not None}
    if not rows:
        return
    older = section.versions[section.last - 1]
    shares = [f"{name} {found.within_share:.0%}" for name, found in rows.items() if found.within_share is not None]
    caption = (
        f"Samples that are wrong at {section.versions[section.last]} but right at {older} are confused with a "
        f"sibling. Their share of all mistakes, (acc_old - acc_new) / (1 - acc_new): {', '.join(shares)}. Accuracy is "
        "over samples here, not classes; the share is net, since older versions are predicted by adding up "
        "probabilities."
    )
    yield Figure("Kinds of mistakes", caption, _svg(plots.stacked_mistakes(rows, older)))
    best = best_on_validation(section)
    if ontology is None or best is None:
        return
    parents = mistakes_by_parent(section, best, ontology)
    worst = sorted(parents, key=lambda name: parents[name].within, reverse=True)[:_MOST_PARENTS]
    if worst:
        title = f"Most confused siblings, by their parent in {older}"
        caption = f"{best.method}, the best method on validation; {len(worst)} of {len(parents)} parents."
        yield Figure(title, caption, _svg(plots.stacked_mistakes({name: parents[name] for name in worst}, older)))


def _changes(section: Section, scores: Mapping[str, Sequence[ClassScore]]) -> tuple[list[Change], tuple[str, str]]:
    """The classes that gain and lose most between `ce` and the best method on validation."""
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
