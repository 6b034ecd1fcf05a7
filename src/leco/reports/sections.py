"""Stored stages as cells of tables, in sections of the same data and settings."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

from leco.paper import Key
from leco.reports.comparison import Scores
from leco.reports.settings import common_settings, optional_settings, unusual_settings
from leco.reports.stored import Record
from leco.text import plural

UNTRAINED = "?"  # in place of the version of a period without stages


@dataclass(frozen=True)
class Section:
    """Cells that can be compared, since they share data and settings."""

    benchmark: str
    data: str
    metric: str
    settings: Mapping[str, Any]  # all but learning rates
    records: tuple[Record, ...]
    cells: Mapping[Key, Mapping[int, Record]]  # for each seed, the stage that is best on validation
    versions: tuple[str, ...]  # of each period
    remarks: tuple[str, ...]

    @property
    def last(self) -> int:
        """The newest period."""
        return len(self.versions) - 1

    @property
    def seeds(self) -> list[int]:
        """All seeds of the section."""
        return sorted({record.seed for record in self.records})

    @property
    def has_test(self) -> bool:
        """Whether scores are on test; otherwise they are on validation."""
        return any(record.score is not None for record in self.records)

    def setting(self, name: str) -> Any:
        """A setting by its dotted name, such as `batches.steps`."""
        return self.settings[name]

    def scores(self, key: Key) -> Scores | None:
        """The scores of a cell."""
        found = {}
        for seed, record in self.cells.get(key, {}).items():
            score = record.score if self.has_test else record.validation
            if score is not None:
                found[seed] = 100 * score
        return Scores(found) if found else None

    def further_settings(self, others: Iterable["Section"]) -> list[str]:
        """Names of the settings that are not at their usual defaults, or differ from those of other sections."""
        differing = {
            name
            for name, value in self.settings.items()
            if any(other.settings.get(name, value) != value for other in others)
        }
        return sorted(unusual_settings(self.settings) | differing)


def sections(records: Sequence[Record]) -> list[Section]:
    """Group stages by data and settings; within a section, method, strategy, annotation and seed differ."""
    by_name = {record.fingerprint: record for record in records}
    groups: dict[tuple[str, ...], list[Record]] = {}
    for record in records:
        common = json.dumps(common_settings(record.training), sort_keys=True)
        groups.setdefault((record.benchmark, record.data, record.metric, common), []).append(record)
    found = []
    for (benchmark, data, metric, common), group in groups.items():
        for optional, members in _variants(group, by_name):
            cells, versions, remarks = _cells(members, by_name)
            section = Section(
                benchmark=benchmark,
                data=data,
                metric=metric,
                settings=json.loads(common) | optional,
                records=tuple(members),
                cells=cells,
                versions=versions,
                remarks=(*_environments(members), *remarks),
            )
            found.append(section)
    return sorted(found, key=lambda s: (s.benchmark, -len(s.records), s.data, json.dumps(s.settings)))


def _variants(group: list[Record], by_name: Mapping[str, Record]) -> list[tuple[dict[str, Any], list[Record]]]:
    """Split a group where an optional setting has several values; stages that ignore it belong to every part."""
    used = {record.fingerprint: _optional(record, by_name) for record in group}
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

    def is_covered(index: int) -> bool:
        """Whether another part has all of these stages, and more, or comes first."""
        mine = names_of[index]
        return any(mine < other or (mine == other and j < index) for j, other in enumerate(names_of))

    return [part for index, part in enumerate(parts) if part[1] and not is_covered(index)]


def _optional(record: Record, by_name: Mapping[str, Record]) -> dict[str, Any]:
    """The optional settings that a stage, or one that it started from, uses."""
    found = optional_settings(record.training, record.key.method, record.key.strategy)
    if record.key.strategy not in ("scratch", "random"):
        found["head_start"] = record.head_start
    for name in record.previous:
        if name in by_name:
            found = _optional(by_name[name], by_name) | found
    return found


def _cells(
    members: list[Record], by_name: Mapping[str, Record]
) -> tuple[dict[Key, dict[int, Record]], tuple[str, ...], list[str]]:
    """The cells of a section, the versions of its periods, and remarks about stages that compete or are left out."""
    candidates: dict[Key, dict[int, list[Record]]] = {}
    versions: dict[int, str] = {}
    orphans = 0
    for record in members:
        versions[record.key.period] = record.version
        own = _is_cell(record, by_name)
        orphans += own is None
        if own:
            candidates.setdefault(record.key, {}).setdefault(record.seed, []).append(record)
    cells = {
        key: {seed: max(found, key=_chosen_by) for seed, found in seeds.items()} for key, seeds in candidates.items()
    }
    mixed = sum(
        len({(r.previous, r.material) for r in found}) > 1 for by in candidates.values() for found in by.values()
    )
    remarks = []
    if mixed:
        count = plural(mixed, "cell has", "cells have")
        remarks.append(f"{count} candidates with different starts; the best on validation counts.")
    if orphans:
        remarks.append(
            f"{plural(orphans, 'stage is', 'stages are')} left out: what they started from is not in the store."
        )
    return cells, tuple(versions.get(period, UNTRAINED) for period in range(max(versions, default=0) + 1)), remarks


def _is_cell(record: Record, by_name: Mapping[str, Record]) -> bool | None:
    """Whether a stage is a cell of its own, not just another stage's teacher; None if its previous stage is missing.

    From TP2 on, a teacher starts from the model of the method that it teaches.
    """
    if record.key.period < 2 or not record.previous:
        return True
    known = [by_name.get(name) for name in record.previous]
    if None in known:
        return None
    return all(p is not None and p.key[1:] == record.key[1:] and _is_cell(p, by_name) for p in known)


def _chosen_by(record: Record) -> tuple[float, str]:
    return (record.validation or 0.0, record.fingerprint)


def _environments(records: Sequence[Record]) -> Iterable[str]:
    """Remarks on a missing test set, and on stages that were trained in different environments."""
    if all(record.score is None for record in records):
        yield "There is no test set: all scores are on validation, by which models were also chosen."
    for package in sorted({name for record in records for name in record.packages}):
        versions = sorted({record.packages.get(package, "none") for record in records})
        if len(versions) > 1:
            yield f"Stages were trained with different versions of {package}: {', '.join(versions)}."
    for what in ("device", "threads", "processes"):
        values = sorted({str(getattr(record, what)) for record in records})
        if len(values) > 1:
            yield f"Stages were trained with different {what}: {', '.join(values)}."
