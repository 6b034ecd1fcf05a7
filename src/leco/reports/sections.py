"""Stored stages as cells of tables: only what was trained on the same data, with the same settings, stands together."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from itertools import product
from typing import Any, NamedTuple

from leco.experiments.relevance import USUAL, unused
from leco.reports.comparison import Scores
from leco.reports.stored import Record

# Settings that only some stages use: plain fine-tuning uses none of them.
_PARTICULAR = unused("ce", "none", "finetune")
_RATES = ("learning_rate", "finetune_learning_rate")


class Key(NamedTuple):
    """A cell of a table."""

    period: int
    method: str = "ce"
    strategy: str = "finetune"
    annotation: str = "label-new"


FIRST = Key(0, "ce", "scratch", "label-new")


@dataclass(frozen=True)
class Section:
    """Cells that may be compared: the same data, the same settings."""

    benchmark: str
    data: str
    metric: str
    settings: Mapping[str, Any]  # all but learning rates
    records: tuple[Record, ...]
    cells: Mapping[Key, Mapping[int, Record]]  # for each seed, the one that is best on validation
    versions: tuple[str, ...]  # of each period
    remarks: list[str] = field(default_factory=list)

    @property
    def last(self) -> int:
        """The newest period."""
        return len(self.versions) - 1

    @property
    def seeds(self) -> list[int]:
        """All that occur."""
        return sorted({record.seed for record in self.records})

    @property
    def has_test(self) -> bool:
        """Whether scores are on test; otherwise they are on validation."""
        return any(record.score is not None for record in self.records)

    def scores(self, key: Key) -> Scores | None:
        """What a cell reached, in percent."""
        found = {}
        for seed, record in self.cells.get(key, {}).items():
            score = record.score if self.has_test else record.validation
            if score is not None:
                found[seed] = 100 * score
        return Scores(found) if found else None


def sections(records: Sequence[Record]) -> list[Section]:
    """Group stages by data and settings; a section holds all that differ in method, strategy, annotation and seed."""
    by_name = {record.fingerprint: record for record in records}
    data = _data_of(records)
    names = frozenset(name for record in records for name in record.training)
    groups: dict[tuple[str, ...], list[Record]] = {}
    for record in records:
        key = (record.benchmark, data[record.material], record.metric, _common(record, names))
        groups.setdefault(key, []).append(record)
    found = []
    for (benchmark, fingerprint, metric, common), group in groups.items():
        for chosen, members in _variants(group, by_name):
            settings = json.loads(common) | chosen
            found.append(_section(benchmark, fingerprint, metric, settings, members, by_name))
    return sorted(found, key=lambda s: (s.benchmark, -len(s.records), s.data, json.dumps(s.settings)))


def _data_of(records: Iterable[Record]) -> dict[str, str]:
    """What data a material is, whatever the seed; older stores say so of first periods only."""
    found: dict[str, str] = {}
    for record in records:
        if record.data is not None:
            found[record.material] = record.data
        else:
            found.setdefault(record.material, record.material.rpartition(" ")[2])
    return found


def _common(record: Record, names: frozenset[str]) -> str:
    """The settings that every stage uses, with defaults for those that an older package did not have."""
    missing = names - record.training.keys()
    settings = {name: value for name, value in _defaults().items() if name in missing} if missing else {}
    settings |= record.training
    return json.dumps({k: v for k, v in settings.items() if k not in (*_PARTICULAR, *_RATES)}, sort_keys=True)


@cache
def _defaults() -> dict[str, Any]:
    from leco.experiments.experiment import Training

    return dict(json.loads(Training().model_dump_json()))


def further_settings(section: "Section", others: Iterable["Section"]) -> dict[str, Any]:
    """What is worth telling beyond the usual settings: what is no default, or sets sections of a benchmark apart."""
    usual = USUAL | {"head_start": False}
    unusual = {name for name, value in usual.items() if section.settings.get(name, value) != value}
    apart = {
        name
        for name, value in section.settings.items()
        if any(other.settings.get(name, value) != value for other in others)
    }
    return {name: section.settings[name] for name in sorted(unusual | apart)}


def _used(record: Record, by_name: Mapping[str, Record]) -> dict[str, Any]:
    """The particular settings that a stage, or one that it started from, uses."""
    coarse, _, rest = record.method.partition("+")
    idle = unused(coarse, rest.partition("/")[0] or "none", record.strategy)
    found = {name: record.training.get(name, USUAL[name]) for name in _PARTICULAR if name not in idle}
    if record.strategy != "scratch":
        found["head_start"] = record.head_start
    for name in record.previous:
        if name in by_name:
            found = _used(by_name[name], by_name) | found
    return found


def _variants(group: list[Record], by_name: Mapping[str, Record]) -> list[tuple[dict[str, Any], list[Record]]]:
    """Split a group where a particular setting has several values; what does not use it belongs to each part."""
    used = {record.fingerprint: _used(record, by_name) for record in group}
    values: dict[str, dict[str, Any]] = {}
    for settings in used.values():
        for name, value in settings.items():
            values.setdefault(name, {})[json.dumps(value)] = value
    names = sorted(values)
    parts = []
    for combination in product(*(values[name].values() for name in names)):
        chosen = dict(zip(names, combination, strict=True))
        members = [r for r in group if all(chosen[n] == v for n, v in used[r.fingerprint].items())]
        parts.append(({n: v for n, v in chosen.items() if any(n in used[r.fingerprint] for r in members)}, members))
    names_of = [{record.fingerprint for record in members} for _, members in parts]
    return [
        part
        for i, part in enumerate(parts)
        if part[1]
        and not any(names_of[i] < other or (names_of[i] == other and j < i) for j, other in _others(names_of, i))
    ]


def _others(sets: list[set[str]], index: int) -> list[tuple[int, set[str]]]:
    return [(j, other) for j, other in enumerate(sets) if j != index]


def _section(
    benchmark: str,
    data: str,
    metric: str,
    settings: dict[str, Any],
    members: list[Record],
    by_name: Mapping[str, Record],
) -> Section:
    candidates: dict[Key, dict[int, list[Record]]] = {}
    versions: dict[int, str] = {}
    orphans = 0
    for record in members:
        versions[record.period] = record.version
        kin = _lineage(record, by_name)
        orphans += kin is None
        if kin:
            key = Key(record.period, record.method, record.strategy, record.annotation)
            candidates.setdefault(key, {}).setdefault(record.seed, []).append(record)
    cells = {
        key: {seed: max(found, key=_chosen_by) for seed, found in seeds.items()} for key, seeds in candidates.items()
    }
    last = max(versions, default=0)
    section = Section(
        *(benchmark, data, metric, settings, tuple(members), cells),
        tuple(versions.get(period, "?") for period in range(last + 1)),
    )
    section.remarks.extend(_remarks(section, candidates, orphans))
    return section


def _lineage(record: Record, by_name: Mapping[str, Record]) -> bool | None:
    """Whether the stage is a cell of its own, not only a teacher of another; None if that cannot be told.

    From the second step on, a teacher starts from the model of the method that it teaches.
    """
    if record.period < 2 or not record.previous:
        return True
    known = [by_name.get(name) for name in record.previous]
    if None in known:
        return None
    mine = (record.method, record.strategy, record.annotation)
    return all(p is not None and (p.method, p.strategy, p.annotation) == mine and _lineage(p, by_name) for p in known)


def _chosen_by(record: Record) -> tuple[float, str]:
    return (record.validation or 0.0, record.fingerprint)


def _remarks(section: Section, candidates: Mapping[Key, Mapping[int, list[Record]]], orphans: int) -> list[str]:
    remarks = []
    if not section.has_test:
        remarks.append("There is no test set: all scores are on validation, which models were also chosen by.")
    for package in sorted({name for record in section.records for name in record.packages}):
        versions = sorted({record.packages.get(package, "none") for record in section.records})
        if len(versions) > 1:
            remarks.append(f"Stages of several versions of {package} stand together: {', '.join(versions)}.")
    for what in ("device", "threads", "processes"):
        values = sorted({str(getattr(record, what)) for record in section.records})
        if len(values) > 1:
            remarks.append(f"Stages ran with different {what}: {', '.join(values)}.")
    mixed = sum(
        len({(r.previous, r.material) for r in found}) > 1 for by in candidates.values() for found in by.values()
    )
    if mixed:
        remarks.append(f"{mixed} cells have candidates with different starts; the best on validation counts.")
    if orphans:
        remarks.append(f"{orphans} stages are left out: the stage they started from is not in the store.")
    return remarks
