"""Analyses across parts of a report: accuracy against annotation cost, the gap to all-fine by size, and classes."""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from leco.data import RELABELLED
from leco.paper import Key, value_of
from leco.reports.comparison import Scores, compare, gap_closed, gap_error
from leco.reports.details import class_scores, counts_labels, group_by_frequency, group_means, main_cells
from leco.reports.sections import Section
from leco.reports.settings import common_settings
from leco.reports.stored import Record
from leco.text import GAP, duration, plural

Family = Sequence[Section]  # the same in all but the number of samples, smallest first
_LENGTH = ("batches.steps", "batches.evaluate_every")  # more samples may be trained on for longer
_WITHOUT_SIZE = re.compile(r"-[0-9.]+k$")


@dataclass(frozen=True)
class Analysis:
    """A table of texts, and the lines of its figure."""

    title: str
    caption: str
    labels: tuple[str, ...]  # headings of the columns that name a row
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    lines: Mapping[str, Sequence[tuple[float, float]]] = field(default_factory=dict)
    axes: tuple[str, str] = ("", "")


def families(sections: Iterable[Section]) -> list[Family]:
    """Group sections that share ontology, test set and settings, and differ in the number of samples a period.

    The number of steps may differ, too.
    """
    found: list[list[Section]] = []
    for section in sections:
        for family in found if section.last and section.cells else []:
            if all(_comparable(section, other) for other in family):
                family.append(section)
                break
        else:
            found.append([section] if section.last and section.cells else [])
    return [sorted(family, key=size_of) for family in found if family]


def _comparable(one: Section, other: Section) -> bool:
    agree = all(one.settings.get(name, value) == value for name, value in other.settings.items() if name not in _LENGTH)
    return agree and size_of(one) != size_of(other) and _but_for_size(one) == _but_for_size(other)


def _but_for_size(section: Section) -> tuple[object, ...]:
    newest = max(section.cells, key=lambda key: key.period)
    tested = class_scores(section, newest, section.versions[newest.period])
    return (
        _WITHOUT_SIZE.sub("", section.benchmark),
        section.records[0].ontology,
        section.metric,
        section.versions,
        json.dumps({k: v for k, v in common_settings(section.settings).items() if k not in _LENGTH}, sort_keys=True),
        tuple((found.name, found.support) for found in tested),
    )


def size_of(section: Section) -> int:
    """The number of samples of a period."""
    return max((r.samples for r in section.records if r.key.annotation == "label-new"), default=0)


def costs(family: Family, relabel: float = 1.0) -> Analysis | None:
    """Accuracy against the cost of annotation, for strategies and mixtures; None if only one strategy was trained.

    Labelling a new sample costs one, relabelling an old one `relabel`.
    """
    keys = [key for key in _newest_keys(family) if key.strategy == "finetune"]
    several = {key.method for key in keys if key.annotation != "label-new"}
    order = list(RELABELLED)
    keys = sorted(
        (key for key in keys if key.method in several and key.annotation in order),
        key=lambda key: (key.method.count("+"), key.method, order.index(key.annotation)),
    )
    if not keys:
        return None
    rows, lines = [], dict[str, list[tuple[float, float]]]()
    for key in keys:
        cost, entries = cost_of(key, relabel), []
        for section in family:
            scores, alone = section.scores(key), section.scores(key._replace(annotation="label-new"))
            entries.append(GAP if scores is None else str(scores))
            if scores is not None and alone is not None and key.annotation != "label-new":
                entries[-1] += f" ({compare(scores, alone)})"
            if scores is not None and key.annotation != "with-unlabelled":
                lines.setdefault(f"{key.method}, {key.annotation}", []).append((cost * size_of(section), scores.mean))
        rows.append((key.method, key.annotation, f"{cost:g}", *entries))
    return Analysis(
        f"Accuracy against annotation cost: {_title(family)}",
        f"{family[-1].versions[-1]}, finetune; mean ± standard deviation over seeds, and in parentheses the difference "
        "to label-new with the same method, paired by seed. The cost is that of the newest labels, for each sample of "
        f"a period: a new label costs 1, relabelling {relabel:g}. with-unlabelled has the samples of no period as "
        "unlabelled history. Not tested.",
        ("method", "annotation", "cost"),
        _sizes(family),
        tuple(rows),
        lines if len(family) > 1 else {},
        ("cost of the newest labels", "score, %"),
    )


def cost_of(key: Key, relabel: float = 1.0) -> float:
    """Cost of the newest labels for each sample of a period.

    >>> cost_of(Key(1)), cost_of(Key(1, annotation="relabel-25"), 0.5), cost_of(Key(2, annotation="all-fine"), 0.5)
    (1.0, 0.875, 2.0)
    """
    if key.annotation == "all-fine":
        return 1 + key.period * relabel
    share = RELABELLED[key.annotation]
    return 1 - share + share * relabel


def gaps(family: Family) -> Analysis | None:
    """The share of the gap between `ce` and all-fine that each method closes; None without both."""
    bottom = Key(family[-1].last)
    top = bottom._replace(annotation="all-fine")
    whole = [(section.scores(bottom), section.scores(top)) for section in family]
    if not any(low is not None and high is not None for low, high in whole):
        return None
    differences = [str(compare(high, low)) if low and high else GAP for low, high in whole]
    rows = [("all-fine - ce, points", *differences)]
    found: list[tuple[float, tuple[str, ...]]] = []
    lines: dict[str, list[tuple[float, float]]] = {}
    shown = {key.method for key in main_cells(family[-1]).values()}
    for key in _newest_keys(family):
        if key.strategy != "finetune" or key in (bottom, top) or key.annotation not in ("label-new", "all-fine"):
            continue
        name = key.method if key.annotation == "label-new" else f"{key.method}, {key.annotation}"
        shares = [_share(section.scores(key), low, high) for section, (low, high) in zip(family, whole, strict=True)]
        known = [share for share in shares if share is not None]
        if not known:
            continue
        texts = []
        for section, share in zip(family, shares, strict=True):
            paper = _paper_share(section.benchmark, key, bottom, top)
            text = GAP if share is None else _percents(*share)
            texts.append(text + (f" (paper {round(100 * paper)} %)" if paper is not None else ""))
            if share is not None and (key.method in shown or key.annotation == "all-fine"):
                lines.setdefault(name, []).append((size_of(section), 100 * share[0]))
        found.append((sum(share for share, _ in known) / len(known), (name, *texts)))
    rows += [row for _, row in sorted(found, reverse=True)]
    return Analysis(
        f"How the gap closes: {_title(family)}",
        f"{family[-1].versions[-1]}, finetune: (method - ce) / (all-fine - ce), ± jackknife standard error over seeds, "
        "the best on average first. all-fine with a method also learns the older classes that its labels imply.",
        ("method",),
        _sizes(family),
        tuple(rows),
        lines if len(family) > 1 else {},
        ("samples a period", "gap closed, %"),
    )


def _share(scores: Scores | None, bottom: Scores | None, top: Scores | None) -> tuple[float, float | None] | None:
    if scores is None or bottom is None or top is None:
        return None
    share = gap_closed(scores, bottom, top)
    return None if share is None else (share, gap_error(scores, bottom, top))


def _paper_share(benchmark: str, *keys: Key) -> float | None:
    figures = [value_of(benchmark, key) for key in keys]
    if not all(figures):
        return None
    ours, bottom, top = (found[0].value for found in figures)
    return (ours - bottom) / (top - bottom) if top > bottom else None


def classes(section: Section) -> list[Analysis]:
    """Scores of rare and frequent classes, and of each, with the main methods; means over seeds."""
    version = section.versions[section.last]
    scores = {name: class_scores(section, key, version) for name, key in main_cells(section).items()}
    scores = {name: found for name, found in scores.items() if found}
    if not scores:
        return []
    metric = section.metric.replace("macc", "accuracy").replace("miou", "IoU")
    first = next(iter(scores.values()))
    groups, counted = group_by_frequency(first), "labels" if counts_labels(first) else "test samples"
    means = {name: dict(group_means(groups, found)) for name, found in scores.items()}
    rare = [(group, *(_of(found, group) for found in means.values())) for group in groups]
    values = {name: {row.name: row.value for row in found} for name, found in scores.items()}
    every = [
        (
            *(row.name, GAP if row.labels is None else f"{row.labels:g}", f"{row.support:g}"),
            *(_of(found, row.name) for found in values.values()),
        )
        for row in first
    ]
    title = f"{section.benchmark}, {version}"
    caption = f"{metric} on test in %, means over {plural(len(section.seeds), 'seed')}"
    labels = f"labels: those of {next(iter(scores))}"
    single = Analysis(
        f"Classes: {title}", f"{caption}; {labels}.", ("class",), ("labels", "test samples", *scores), tuple(every)
    )
    if len(groups) == 1:
        return [single]
    caption += f", of about a fifth of the classes each, by their number of {counted}, rarest first"
    return [
        Analysis(f"Rare and frequent classes: {title}", f"{caption}.", (counted,), tuple(scores), tuple(rare)),
        single,
    ]


def _of(values: Mapping[str, float], name: str) -> str:
    return f"{100 * values[name]:.1f}" if name in values else GAP


def models(sections: Iterable[Section]) -> list[Analysis]:
    """All models of the newest version of own data, whatever their settings: a table for each dataset and version.

    Models that are chosen by another metric, since they predict masks, have a table of their own.
    """
    found: dict[tuple[str, str, str, str], dict[tuple[str, ...], dict[int, Record]]] = {}
    for section in sections:
        for record in section.records if not section.records[0].budget else ():
            if record.key.period == section.last:
                table = found.setdefault((section.benchmark, record.version, record.ontology, record.metric), {})
                by_seed = table.setdefault((_model(record), record.key.method, f"{record.samples:,}"), {})
                by_seed[record.seed] = max(by_seed.get(record.seed, record), record, key=lambda r: r.validation or 0.0)
    return [_models(name, version, rows) for (name, version, *_), rows in found.items()]


def _model(record: Record) -> str:
    backbone, head = record.training["network.backbone"], record.training["finish.head"]
    if record.training["network.embed"]:
        return f"{head} head on features of {backbone}"
    return f"{backbone}, {head} head" if head != "trained" else str(backbone)


def _models(name: str, version: str, rows: Mapping[tuple[str, ...], Mapping[int, Record]]) -> Analysis:
    """A table of models, those with the best scores last."""
    groups = sorted(((labels, list(by_seed.values())) for labels, by_seed in rows.items()), key=lambda g: _score(g[1]))
    every = [record for _, group in groups for record in group]
    versions = [version, *dict.fromkeys(v for record in every for v in record.test if v != version)]
    metric = every[0].metric.replace("macc", "mAcc").replace("miou", "mIoU")
    return Analysis(
        f"Models: {name}, {version}",
        f"{metric} in %, means over seeds, on validation at {version}, and on test. With auto, the chosen model is "
        "trained again on all labels, those of validation included. Time is that of one training.",
        ("model", "method", f"labels of {version}"),
        ("validation", *(f"test, {v}" for v in versions), "time", "seeds"),
        tuple(
            (
                *labels,
                _mean(record.validation for record in group),
                *(_mean(record.test.get(v) for record in group) for v in versions),
                duration(sum(record.seconds for record in group) / len(group)),
                str(len(group)),
            )
            for labels, group in groups
        ),
    )


def _score(group: Iterable[Record]) -> float:
    """The best score on test or, without a test set, on validation."""
    return max((record.validation if record.score is None else record.score) or 0.0 for record in group)


def _mean(fractions: Iterable[float | None]) -> str:
    known = {number: 100 * value for number, value in enumerate(fractions) if value is not None}
    return str(Scores(known)) if known else GAP


def analyses(sections: Sequence[Section]) -> list[Analysis]:
    """The analyses that a report shows: costs and gaps of each family, rare and frequent classes of each part."""
    shown = [made for family in families(sections) for made in (costs(family), gaps(family)) if made is not None]
    return shown + [made for section in sections if section.last for made in classes(section)[:-1]]


def _newest_keys(family: Family) -> list[Key]:
    """All cells of the newest period, in the order of the largest section."""
    return list(dict.fromkeys(key for s in reversed(family) for key in s.cells if key.period == s.last))


def _sizes(family: Family) -> tuple[str, ...]:
    """Headings: samples a period and, where they differ, steps."""
    steps = [section.setting("batches.steps") for section in family]
    return tuple(
        f"{size_of(section):,}" + (f" ({count:,} steps)" if len(set(steps)) > 1 else "")
        for section, count in zip(family, steps, strict=True)
    )


def _title(family: Family) -> str:
    return ", ".join(dict.fromkeys(section.benchmark for section in family))


def _percents(share: float, error: float | None) -> str:
    return f"{round(100 * share)} {'' if error is None else f'± {100 * error:.0f} '}%"  # never -0
