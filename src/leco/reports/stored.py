"""The stages of a store, as records and as a list; ten thousand are read in about a second, without torch."""

import os
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from leco.errors import LecoError, printable
from leco.experiments.store import CHECKPOINTS, Store
from leco.io import SUMS
from leco.paper import Key
from leco.records import (
    CONFIG,
    METRICS_LINES,
    RESULT,
    SUMMARY,
    Config,
    checked_stage,
    checkpoint_step,
    read_config,
    read_lines,
    read_result,
    read_summary,
)
from leco.reports.settings import flatten
from leco.settings import Settings
from leco.text import percent

Status = Literal["running", "partial", "broken", "diverged", "complete"]
_USUAL = flatten(Settings().model_dump(mode="json"))  # of settings that a stage did not know yet
_MOST_BEFORE = 200  # stages that lead to one, a period each
STATUSES: tuple[Status, ...] = ("running", "partial", "broken", "diverged", "complete")  # as they are listed


class DivergedError(LecoError):
    """A stage that is complete without a model, since its loss diverged."""


@dataclass(frozen=True, eq=False)
class Configured:
    """A stage, trained or not, by its `config.json`."""

    folder: Path
    material: str  # name and fingerprint of the data that its seed draws
    version: str
    key: Key
    head_start: bool
    seed: int
    training: Mapping[str, Any]  # flattened
    previous: tuple[str, ...]

    @property
    def fingerprint(self) -> str:
        """The name by which other stages refer to it."""
        return self.folder.name

    @property
    def benchmark(self) -> str:
        """The name of the data."""
        return self.material.rpartition(" ")[0] or self.material

    @property
    def learning_rate(self) -> float:
        """The learning rate."""
        return float(self.training["optimiser.learning_rate"][0])

    @property
    def weight_decay(self) -> float:
        """The weight decay."""
        decay = self.training["optimiser.weight_decay"]
        return float(decay[0] if isinstance(decay, list) else decay)

    def __str__(self) -> str:
        choices = [self.key.strategy, self.key.annotation] if self.key.period else []
        choices += ["head start"] if self.head_start else []
        rate = f"lr {self.learning_rate:g}"
        return ", ".join(
            [f"{self.benchmark} TP{self.key.period}", self.key.method, *choices, rate, f"seed {self.seed}"]
        )


@dataclass(frozen=True, eq=False)
class Record(Configured):
    """A stage that was trained, with the results of its `summary.json`."""

    data: str  # fingerprint of the data, whatever the seed
    metric: str
    validation: float | None
    test: Mapping[str, float]  # by version, as fractions
    samples: int  # with labels of the period's version
    ontology: str  # fingerprint
    budget: str  # paper, small, other, demo, or empty for own data
    seconds: float
    device: str
    threads: int
    processes: int
    packages: Mapping[str, str]

    @property
    def score(self) -> float | None:
        """The score on test, at the period's version."""
        return self.test.get(self.version)


@dataclass(frozen=True)
class Stored:
    """All complete stages of a store, and a message for each folder that is left out."""

    runs: Path
    records: tuple[Record, ...]
    problems: tuple[str, ...]


@dataclass(frozen=True)
class Line:
    """A stage in a list."""

    folder: Path
    status: Status
    description: str
    score: str  # on test, or how far it is
    age: float  # seconds since it last changed
    size: int  # bytes


def read_store(runs: Path) -> Stored:
    """Read every complete stage; those that cannot be read are left out."""
    records, problems = [], []
    for folder in _folders(require_store(runs).stages, follow_links=True):
        try:
            record = read_stage(folder)
            read_result(folder)
            if (folder / METRICS_LINES).is_file():
                read_lines(folder / METRICS_LINES)
            checked_stage(folder, RESULT, CONFIG, METRICS_LINES)
            records.append(record)
        except LecoError as error:
            problems.append(_explained(folder, error))
    endless = _endless({record.fingerprint: record.previous for record in records})
    problem = f"is damaged: it starts from itself, or follows on {_MOST_BEFORE} others"
    problems += [f"{runs / 'stages' / name}: {problem}" for name in sorted(endless)]
    return Stored(runs, tuple(r for r in records if r.fingerprint not in endless), tuple(map(printable, problems)))


def _explained(folder: Path, error: LecoError) -> str:
    if isinstance(error, DivergedError):
        return f"{folder}: diverged: {error}"
    text = str(error)
    return text if text.startswith(str(folder)) else f"{folder}: {text}"


def _endless(previous: Mapping[str, tuple[str, ...]]) -> set[str]:
    """Stages that start from themselves, directly or through others, or come after too many others."""
    left = {name: {other for other in others if other in previous} for name, others in previous.items()}
    for _ in range(_MOST_BEFORE):
        for name in [name for name, others in left.items() if not others & left.keys()]:
            del left[name]
    return set(left)


def require_store(runs: Path) -> Store:
    """The store in a folder; an error if it holds none."""
    store = Store(runs)
    if not any(folder.is_dir() for folder in (store.stages, store.partial, runs / "plans")):
        raise LecoError(f"{runs}: holds no runs: neither {store.stages} nor {store.partial} exists")
    return store


def read_stage(folder: Path) -> Record:
    """Read a complete stage from its summary."""
    if not os.path.lexists(folder / SUMMARY):
        result = read_result(folder)
        if result.diverged is not None:
            raise DivergedError(result.diverged)
    found = read_summary(folder)
    for name in (RESULT, SUMS) if found.format > 1 else ():
        if not (folder / name).is_file():
            raise LecoError(f"{folder / name}: no such file: the stage is not complete")
    checked_stage(folder, SUMMARY)
    shared = {name: getattr(found, name) for name in Record.__annotations__ if name in type(found).model_fields}
    test = {name: score for name, score in found.test.items() if score is not None}
    return Record(**_configuration(folder, found.config), **shared | {"test": test}, validation=found.validation_score)


def _configuration(folder: Path, config: Config) -> dict[str, Any]:
    training = _USUAL | flatten(config.model_dump(mode="json", include={"training"})["training"])
    if config.start:  # stages that started from another bundle do not compare
        training["start"] = config.start
    shared = {name: getattr(config, name) for name in ("material", "version", "head_start", "seed", "previous")}
    key = Key(config.period, config.method, config.strategy, config.annotation)
    return {"folder": folder, "key": key, "training": training, **shared}


def list_stages(runs: Path) -> list[Line]:
    """Every stage: those that are not complete first, then the newest first."""
    now = time.time()
    store = require_store(runs)
    lines = [_trained(folder, now) for folder in _folders(store.stages, follow_links=True)]
    lines += [_untrained(folder, store, now) for folder in _folders(store.partial, follow_links=False)]
    return sorted(lines, key=lambda line: (STATUSES.index(line.status), line.age, line.folder.name))


def _folders(parent: Path, follow_links: bool) -> list[Path]:
    """The folders in a folder, by name."""
    if not parent.is_dir():
        return []
    with os.scandir(parent) as entries:
        return [parent / name for name in sorted(e.name for e in entries if e.is_dir(follow_symlinks=follow_links))]


def _trained(folder: Path, now: float) -> Line:
    changed, size = _measure(folder)
    try:
        record = read_stage(folder)
    except LecoError as error:
        status: Status = "diverged" if isinstance(error, DivergedError) else "broken"
        text = _explained(folder, error).removeprefix(str(folder)).lstrip(":/ ")
        return Line(folder, status, printable(text), "", now - changed, size)
    score, split = (record.score, "") if record.score is not None else (record.validation, " val")
    text = "" if score is None else percent(score) + split
    return Line(folder, "complete", printable(str(record)), text, now - changed, size)


def _untrained(folder: Path, store: Store, now: float) -> Line:
    changed, size = _measure(folder)
    status: Status = "running" if store.is_running(folder.name) else "partial"
    description, steps = "not started", "?"
    try:
        stage = Configured(**_configuration(folder, read_config(folder / CONFIG)))
        description, steps = printable(str(stage)), f"{stage.training['batches.steps']:,}"
    except LecoError:
        pass
    step = max((checkpoint_step(folder / name) for name in CHECKPOINTS), default=-1)
    progress = f"step {step:,} of {steps}" if step >= 0 else ""
    return Line(folder, status, description, progress, now - changed, size)


def _measure(folder: Path) -> tuple[float, int]:
    """When a folder last changed, and how many bytes its files have."""
    changed, size = 0.0, 0
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                status = entry.stat(follow_symlinks=False)
                changed, size = max(changed, status.st_mtime), size + status.st_size
    except OSError:  # it was moved or removed meanwhile
        pass
    return changed or time.time(), size
