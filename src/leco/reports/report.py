"""A report as data: what was run, the paper's tables, its conclusions; formats are elsewhere."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from leco.data import UNTESTED
from leco.reports.conclusions import Finding, findings
from leco.reports.plans import PlanPart, read_plans
from leco.reports.sections import Section, further_settings, sections
from leco.reports.stored import Record, Stored
from leco.reports.tables import Table, tables

METRICS = {"macc": "mean per-class accuracy", "miou": "mean intersection over union"}
_SHOWN = ("model", "steps", "batch_size", "weight_decay", "momentum", "schedule", "average", "evaluate_every")

_TASKS = {
    **{"cifar": "classification", "inat": "classification", "digits": "classification"},
    **{"cub": "features", "camvid": "segmentation", "mapillary": "segmentation"},
}


@dataclass(frozen=True)
class Part:
    """A section with all that is told about it."""

    section: Section
    title: str
    facts: tuple[tuple[str, str], ...]
    tables: tuple[Table, ...]
    findings: tuple[Finding, ...]


@dataclass(frozen=True)
class Report:
    """All sections of a store."""

    runs: Path
    stages: int
    parts: tuple[Part, ...]
    problems: tuple[str, ...]
    plans: tuple[PlanPart, ...] = ()


def make_report(stored: Stored) -> Report:
    """Everything a report says, from stored stages alone."""
    # What `leco plan` trained was never tested, and stands in its plan.
    records = [record for record in stored.records if not record.material.endswith(UNTESTED)]
    found = sections(records)
    names = Counter(section.benchmark for section in found)
    seen = Counter[str]()
    parts = []
    for section in found:
        seen[section.benchmark] += 1
        several = f" ({seen[section.benchmark]} of {names[section.benchmark]})" if names[section.benchmark] > 1 else ""
        others = [other for other in found if other.benchmark == section.benchmark]
        parts.append(
            Part(
                section,
                section.benchmark + several,
                tuple(_facts(section, others)),
                tuple(tables(section)),
                tuple(findings(section)) if section.last else (),
            )
        )
    plans, unread = read_plans(stored.runs)
    return Report(stored.runs, len(records), tuple(parts), (*stored.problems, *unread), plans)


def _facts(section: Section, others: Iterable[Section]) -> Iterable[tuple[str, str]]:
    """Which data, budget, seeds, machine and packages."""
    records = section.records
    where = "on test" if section.has_test else "on validation"
    yield "score", f"{METRICS.get(section.metric, section.metric)} in %, {where}, at each period's own version"
    samples = sorted({r.samples for r in records if r.samples is not None and r.annotation == "label-new"})
    sizes = f", {' or '.join(f'{size:,}' for size in samples)} new labels a period" if samples else ""
    yield "data", f"{section.benchmark}, fingerprint {section.data}{sizes}"
    yield "periods", ", ".join(f"TP{period} {version}" for period, version in enumerate(section.versions))
    yield "budget", budget(section)
    yield "seeds", ", ".join(map(str, section.seeds))
    rates = sorted({record.learning_rate for record in records}, reverse=True)
    several = "; of several in a period, the best on validation counts" if len(rates) > 1 else ""
    yield "learning rates", ", ".join(f"{rate:g}" for rate in rates) + several
    yield "settings", ", ".join(f"{name} {section.settings[name]}" for name in _SHOWN if name in section.settings)
    further = {name: value for name, value in further_settings(section, others).items() if name not in _SHOWN}
    if further:
        yield "further settings", ", ".join(f"{name} {value}" for name, value in further.items())
    seconds = sum(record.seconds for record in records)
    steps = int(section.settings["steps"]) * len(records)
    images = steps * int(section.settings["batch_size"])
    yield "training", f"{len(records):,} stages, {steps:,} steps, {images:,} samples seen, {duration(seconds)} in all"
    yield "machine", "; ".join(_machines(records))
    yield "packages", "; ".join(_packages(records))


def budget(section: Section) -> str:
    """Whether this is the paper's budget, or one that was scaled down or changed."""
    from leco.experiments.recipes import Budget, defaults

    if section.benchmark == "digits-leco":
        return "a demonstration; the paper has no such benchmark"
    task = task_of(section.benchmark)
    if task is None:
        return "own data"
    named: tuple[Budget, ...] = ("paper", "small")
    for name in named:
        wanted = defaults(section.benchmark, task, name)
        fixed = {key: wanted[key] for key in ("model", "steps", "batch_size") if key in wanted}
        if all(section.settings.get(key) == value for key, value in fixed.items()):
            return "the paper's" if name == "paper" else "scaled down (small): fewer steps or a smaller network"
    return "neither the paper's nor the small one: see settings"


def task_of(benchmark: str) -> str | None:
    """The task of a benchmark, by its name alone; None of own data."""
    return next((task for start, task in _TASKS.items() if benchmark.startswith(f"{start}-")), None)


def _machines(records: Iterable[Record]) -> list[str]:
    counted = Counter((r.device, r.threads, r.processes) for r in records)
    return [
        f"{device}, {processes} process{'es' * (processes > 1)} of {threads} thread{'s' * (threads > 1)}: {count:,} "
        "stages"
        for (device, threads, processes), count in counted.most_common()
    ]


def _packages(records: Iterable[Record]) -> list[str]:
    counted = Counter(", ".join(f"{name} {version}" for name, version in r.packages.items()) for r in records)
    if len(counted) == 1:
        return list(counted)
    return [f"{text} ({count:,} stages)" for text, count in counted.most_common()]


def duration(seconds: float) -> str:
    """Seconds as a person would say them.

    >>> duration(42), duration(150), duration(9000)
    ('42 s', '2.5 min', '2.5 h')
    """
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.1f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"
