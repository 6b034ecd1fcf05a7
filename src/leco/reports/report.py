"""A report as data: for each section the facts, the paper's tables with our results, and its conclusions tested."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from leco.data import UNTESTED
from leco.paper import FIRST, TABLES, Cell, Key, cells, value_of
from leco.paper.claims import CLAIMS, Claim
from leco.paper.layout import Grid, Row, arrange
from leco.reports.analyses import Analysis, analyses, models
from leco.reports.comparison import Comparison, Kind, Scores, Verdict, average, compare, decide, gap_closed
from leco.reports.plans import PlanPart, read_plans
from leco.reports.sections import UNTRAINED, Section, sections
from leco.reports.settings import describe_budget
from leco.reports.stored import Record, Stored
from leco.text import duration, plural

METRICS = {"macc": "mean per-class accuracy", "miou": "mean intersection over union"}
SHOWN = {  # settings of every section, by label
    **{"model": "network.backbone", "steps": "batches.steps", "batch size": "batches.size"},
    **{"momentum": "optimiser.momentum", "schedule": "optimiser.schedule"},
    **{"average": "average.decay", "evaluate every": "batches.evaluate_every"},
}


@dataclass(frozen=True)
class Entry:
    """One cell: our scores, and the paper's figures."""

    key: Key
    scores: Scores | None
    paper: tuple[Cell, ...]
    share: float | None = None  # of the gap to all-fine that is closed
    best: bool = False

    @property
    def is_empty(self) -> bool:
        """Whether neither we nor the paper have a result."""
        return self.scores is None and not self.paper


@dataclass(frozen=True)
class Table:
    """A table of the paper with our results."""

    name: str
    caption: str
    grid: Grid[Entry]
    cells: int  # of the whole table, before rows and columns without results are dropped

    @property
    def entries(self) -> list[Entry]:
        """All entries, row by row."""
        return [entry for row in self.grid.rows for entry in row.entries if entry is not None]

    @property
    def trained(self) -> int:
        """The number of cells that were trained."""
        return sum(entry.scores is not None for entry in self.entries)

    @property
    def counts(self) -> list[int]:
        """The different numbers of seeds of its cells."""
        return sorted({len(entry.scores) for entry in self.entries if entry.scores is not None})


@dataclass(frozen=True)
class Finding:
    """A claim, and the verdict of our runs."""

    claim: Claim
    comparison: Comparison
    verdict: Verdict
    p: float | None  # corrected for the number of conclusions; None if there are too few seeds
    pairs: int  # of cells that were compared
    paper_gain: float | None  # None unless the paper has all of these cells


@dataclass(frozen=True)
class Part:
    """The part of a report on one section."""

    section: Section
    title: str
    facts: tuple[tuple[str, str], ...]
    tables: tuple[Table, ...]
    findings: tuple[Finding, ...]


@dataclass(frozen=True)
class Report:
    """The report on a store."""

    runs: Path
    stages: int
    parts: tuple[Part, ...]
    problems: tuple[str, ...]
    plans: tuple[PlanPart, ...] = ()
    models: tuple[Analysis, ...] = ()  # of your own data
    analyses: tuple[Analysis, ...] = ()


def make_report(stored: Stored) -> Report:
    """Make a report from stored stages alone."""
    records = reported(stored)
    by_benchmark: dict[str, list[Section]] = {}
    everything = sections(records)
    for section in everything:
        by_benchmark.setdefault(section.benchmark, []).append(section)
    parts = []
    for benchmark, found in by_benchmark.items():
        for number, section in enumerate(found, 1):
            title = benchmark if len(found) == 1 else f"{benchmark} ({number} of {len(found)})"
            tested = tuple(findings(section)) if section.last else ()
            parts.append(Part(section, title, tuple(_facts(section, found)), tuple(tables(section)), tested))
    plans, unread = read_plans(stored.runs)
    problems = (*stored.problems, *unread)
    shown = tuple(models(everything)), tuple(analyses(everything))
    return Report(stored.runs, len(records), tuple(parts), problems, plans, *shown)


def reported(stored: Stored) -> list[Record]:
    """The stages of a report: what `leco plan` trained was never tested, and is in its plan."""
    return [record for record in stored.records if not record.material.endswith(UNTESTED)]


def _facts(section: Section, others: Sequence[Section]) -> Iterable[tuple[str, str]]:
    """Metric, data, budget, seeds, settings, machine and packages."""
    records = section.records
    where = "on test" if section.has_test else "on validation"
    yield "score", f"{METRICS.get(section.metric, section.metric)} in %, {where}, at each period's own version"
    samples = sorted({record.samples for record in records if record.key.annotation == "label-new"})
    sizes = f", {' or '.join(f'{size:,}' for size in samples)} new labels per period" if samples else ""
    yield "data", f"{section.benchmark}, fingerprint {section.data}{sizes}"
    periods = enumerate(section.versions)
    yield "periods", ", ".join(f"TP{period} {version}" for period, version in periods if version != UNTRAINED)
    yield "budget", describe_budget(section.records[0].budget)
    yield "seeds", ", ".join(map(str, section.seeds))
    for name, values in (
        ("learning rates", {record.learning_rate for record in records}),
        ("weight decay", {record.weight_decay for record in records}),
    ):
        several = "; in each period, the best on validation counts" if len(values) > 1 else ""
        yield name, ", ".join(f"{value:g}" for value in sorted(values, reverse=True)) + several
    yield "settings", ", ".join(f"{label} {section.setting(name)}" for label, name in SHOWN.items())
    if further := further_settings(section, others):
        yield "further settings", further
    steps = int(section.setting("batches.steps")) * len(records)
    samples_seen = steps * int(section.setting("batches.size"))
    took = duration(sum(record.seconds for record in records))
    yield "training", f"{plural(len(records), 'stage')}, {steps:,} steps, {samples_seen:,} samples seen, {took}"
    yield "machine", "; ".join(_machines(records))
    yield "packages", "; ".join(_packages(records))


def further_settings(section: Section, others: Iterable[Section]) -> str:
    """Settings worth a mention beyond the shown ones: not at their defaults, or different in other sections."""
    names = [name for name in section.further_settings(others) if name not in SHOWN.values()]
    return ", ".join(f"{name} {section.settings[name]}" for name in names)


def _machines(records: Iterable[Record]) -> list[str]:
    counted = Counter((record.device, record.threads, record.processes) for record in records)
    return [
        f"{device}, {plural(processes, 'process', 'processes')} of {plural(threads, 'thread')}: "
        f"{plural(count, 'stage')}"
        for (device, threads, processes), count in counted.most_common()
    ]


def _packages(records: Iterable[Record]) -> list[str]:
    counted = Counter(", ".join(f"{name} {version}" for name, version in r.packages.items()) for r in records)
    if len(counted) == 1:
        return list(counted)
    return [f"{text} ({plural(count, 'stage')})" for text, count in counted.most_common()]


def tables(section: Section) -> list[Table]:
    """The paper's tables with the results of a section, unless nothing of their own was trained."""
    if not section.last:
        return [Table("first", "The first period.", Grid((), ("TP0",), (Row((), (entry(section, FIRST),)),)), 1)]
    two = ("baseline", "ssl-joint", "hierarchy", "combinations")
    names = two if section.last == 1 else ("baseline-4tp", "losses-4tp", "combinations")
    found = [_compact(table) for name in names if _adds_something(table := _fill(section, name))]
    is_own = not section.records[0].budget
    return [table for table in found if table.trained > 1 or not is_own]  # own data have a table of models


def _fill(section: Section, name: str) -> Table:
    entries = _mark_best([entry(section, key) for key in _keys(section, name)])
    caption = f"{TABLES[name].caption.rstrip('.')} ({TABLES[name].place})."
    return Table(name, caption, arrange(((found.key, found) for found in entries), name), len(entries))


def _keys(section: Section, name: str) -> list[Key]:
    """The cells of a table, in the paper's order, then those of ours that belong there, such as other strategies."""
    of_periods, is_baseline = name.endswith("-4tp"), name.startswith("baseline")
    periods = range(1, section.last + 1) if of_periods else [section.last]
    keys = dict.fromkeys(cell.key._replace(period=min(cell.period, 1)) for cell in cells(name))
    for key in sorted(section.cells):
        belongs = key.method == "ce" if is_baseline else key.strategy == "finetune" and key.annotation == "label-new"
        if (is_baseline or of_periods) and belongs and key.period:
            keys.setdefault(key._replace(period=1))
    return [FIRST] * (FIRST in keys) + [key._replace(period=p) for key in keys if key.period for p in periods]


def _adds_something(table: Table) -> bool:
    """Whether anything was trained that is not in the baseline anyway."""
    trained = [entry.key for entry in table.entries if entry.scores is not None and entry.key.period]
    return any(key.method != "ce" or table.name.startswith("baseline") for key in trained)


def _compact(table: Table) -> Table:
    """Drop the rows and columns in which neither we nor the paper have a result."""
    rows = [row for row in table.grid.rows if any(found and not found.is_empty for found in row.entries)]
    columns = zip(*(row.entries for row in rows), strict=True)
    used = [any(found and not found.is_empty for found in column) for column in columns]
    names = tuple(name for name, keep in zip(table.grid.columns, used, strict=True) if keep)
    kept = [
        Row(row.labels, tuple(found for found, keep in zip(row.entries, used, strict=True) if keep)) for row in rows
    ]
    return replace(table, grid=Grid(table.grid.labels, names, tuple(kept)))


def entry(section: Section, key: Key) -> Entry:
    """Our scores and the paper's figures for one cell."""
    return Entry(key, section.scores(key), tuple(value_of(section.benchmark, key)), _share_closed(section, key))


def _share_closed(section: Section, key: Key) -> float | None:
    """The share of the gap between `ce` and all-fine that a method closes."""
    if key.period == 0 or key.method == "ce":
        return None
    ours, bottom, top = map(section.scores, (key, Key(key.period), Key(key.period, annotation="all-fine")))
    return gap_closed(ours, bottom, top) if ours and bottom and top else None


def _mark_best(entries: Iterable[Entry]) -> list[Entry]:
    """Mark the best cell of each period and annotation, and those less than its standard deviation below it.

    So all-fine, the upper bound, does not compete with the methods.
    """
    entries = list(entries)
    pools: dict[tuple[int, str], list[Scores]] = {}
    for found in entries:
        if found.scores is not None and found.key.period:
            pools.setdefault((found.key.period, found.key.annotation), []).append(found.scores)
    best = {pool: max(rivals, key=lambda s: s.mean) for pool, rivals in pools.items() if len(rivals) > 1}
    marked = []
    for found in entries:
        top = best.get((found.key.period, found.key.annotation))
        is_best = top is not None and found.scores is not None and found.scores.mean >= top.mean - (top.std or 0)
        marked.append(replace(found, best=is_best))
    return marked


def findings(section: Section) -> list[Finding]:
    """The paper's claims, tested in the newest period; those for which nothing was trained are left out."""
    compared = [(claim, found) for claim in CLAIMS if (found := _compare(claim, section)) is not None]
    kinds: list[Kind] = ["similar" if claim.kind == "similar" else "better" for claim, _ in compared]
    decided = decide([(comparison, kind) for (_, (comparison, *_)), kind in zip(compared, kinds, strict=True)])
    return [
        Finding(claim, comparison, verdict, p, pairs, paper_gain)
        for (claim, (comparison, pairs, paper_gain)), (p, verdict) in zip(compared, decided, strict=True)
    ]


def _compare(claim: Claim, section: Section) -> tuple[Comparison, int, float | None] | None:
    """Compare the cells of a claim: the result, the number of pairs that were trained, and the paper's gain."""
    pairs = [tuple(key._replace(period=section.last) for key in pair) for pair in claim.pairs]
    trained = []
    for better, worse in pairs:
        ours, theirs = section.scores(better), section.scores(worse)
        if ours is not None and theirs is not None:
            trained.append((better, worse, ours, theirs))
    if not trained or (claim.kind == "better than the mean" and len(trained) < len(pairs)):
        return None
    result = compare(average([ours for _, _, ours, _ in trained]), average([theirs for _, _, _, theirs in trained]))
    gains = [_paper_gain(section.benchmark, better, worse) for better, worse, _, _ in trained]
    known = [gain for gain in gains if gain is not None]
    return result, len(trained), sum(known) / len(known) if len(known) == len(gains) else None


def _paper_gain(benchmark: str, better: Key, worse: Key) -> float | None:
    ours, theirs = value_of(benchmark, better), value_of(benchmark, worse)
    return ours[0].value - theirs[0].value if ours and theirs else None
