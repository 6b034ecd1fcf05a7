"""The stages of a store, as records and as a list; ten thousand are read in about a second, without torch."""

import json
import math
import os
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from leco.errors import LecoError
from leco.experiments.store import CHECKPOINTS, Store
from leco.io import checkpoint_step
from leco.paper import Key
from leco.reports.settings import flatten
from leco.text import percent

# Errors of reading files that are damaged, or that hold something else.
UNREADABLE = (OSError, ValueError, KeyError, TypeError, AttributeError, IndexError, RecursionError)
Status = Literal["running", "partial", "broken", "diverged", "complete"]
STATUSES: tuple[Status, ...] = ("running", "partial", "broken", "diverged", "complete")  # as they are listed


class DivergedError(ValueError):
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
        return float(self.training["optimiser.weight_decay"])

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
    """Read every complete stage; folders that cannot be read are left out."""
    records, problems = [], []
    for folder in _folders(require_store(runs).stages, follow_links=True):
        try:
            records.append(read_stage(folder))
        except UNREADABLE as error:
            problems.append(f"{folder}: {explain(error, 'stage')}")
    return Stored(runs, tuple(records), tuple(problems))


def require_store(runs: Path) -> Store:
    """The store in a folder; an error if it holds none."""
    store = Store(runs)
    if not any(folder.is_dir() for folder in (store.stages, store.partial, runs / "plans")):
        raise LecoError(f"{runs}: holds no runs: neither {store.stages} nor {store.partial} exists")
    return store


def read_stage(folder: Path) -> Record:
    """Read a complete stage from its summary."""
    try:
        summary = json.loads((folder / "summary.json").read_bytes())
    except FileNotFoundError:
        if (problem := _divergence(folder)) is not None:
            raise DivergedError(problem) from None
        raise
    return Record(
        **_configuration(folder, summary["config"]),
        data=str(summary["data"]),
        metric=str(summary["metric"]),
        validation=_finite(summary["validation_score"]),
        test={name: float(value) for name, value in summary["test"].items() if _finite(value) is not None},
        samples=int(summary["samples"]),
        ontology=str(summary["ontology"]),
        budget=str(summary["budget"]),
        seconds=float(summary["seconds"]),
        device=str(summary["device"]),
        threads=int(summary["threads"]),
        processes=int(summary["processes"]),
        packages={str(name): str(version) for name, version in summary["packages"].items()},
    )


def _configuration(folder: Path, config: Mapping[str, Any]) -> dict[str, Any]:
    training = flatten(config["training"])
    float(training["optimiser.learning_rate"][0])  # an error here, not where it is used
    if "start" in config:  # stages that started from another bundle do not compare
        training["start"] = str(config["start"])
    key = Key(int(config["period"]), *(str(config[name]) for name in ("method", "strategy", "annotation")))
    return {
        **{"folder": folder, "material": str(config["material"]), "version": str(config["version"]), "key": key},
        **{"head_start": bool(config["head_start"]), "seed": int(config["seed"]), "training": training},
        "previous": tuple(map(str, config["previous"])),
    }


def _divergence(folder: Path) -> str | None:
    """The reason why a stage is complete without a model; None if it is not."""
    try:
        problem = json.loads((folder / "result.json").read_bytes()).get("diverged")
    except UNREADABLE:
        return None
    return None if problem is None else str(problem)


def _finite(value: Any) -> float | None:
    return None if value is None or not math.isfinite(value) else float(value)


def explain(error: Exception, kind: str) -> str:
    """Say why a file or folder cannot be read as what it should be."""
    match error:
        case DivergedError():
            return f"diverged: {error}"
        case FileNotFoundError():
            return f"{Path(str(error.filename)).name} is missing"
        case OSError():
            return str(error.strerror)
        case json.JSONDecodeError() | UnicodeDecodeError():
            return "is not valid JSON"
        case KeyError():
            return f"{error} is missing"
    return f"is not a {kind} ({error})"


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
    except UNREADABLE as error:
        status: Status = "diverged" if isinstance(error, DivergedError) else "broken"
        return Line(folder, status, explain(error, "stage"), "", now - changed, size)
    score, split = (record.score, "") if record.score is not None else (record.validation, " val")
    text = "" if score is None else percent(score) + split
    return Line(folder, "complete", str(record), text, now - changed, size)


def _untrained(folder: Path, store: Store, now: float) -> Line:
    changed, size = _measure(folder)
    status: Status = "running" if store.is_running(folder.name) else "partial"
    description, steps = "not started", "?"
    try:
        stage = Configured(**_configuration(folder, json.loads((folder / "config.json").read_bytes())))
        description, steps = str(stage), f"{int(stage.training['batches.steps']):,}"
    except UNREADABLE:
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
