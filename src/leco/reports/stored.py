"""Stages as they are stored, read without torch: ten thousand in about a second."""

import json
import math
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from leco.errors import LecoError
from leco.experiments.store import Store, summarise

# What reading a folder that is no stage can raise.
BROKEN = (OSError, ValueError, KeyError, TypeError, AttributeError, IndexError, RecursionError)


@dataclass(frozen=True, eq=False)
class Record:
    """One complete stage."""

    folder: Path
    material: str  # name and fingerprint of the data, as one seed deals them
    data: str | None  # the same for every seed; None in older stores, but for first periods
    version: str
    period: int
    method: str
    strategy: str
    annotation: str
    head_start: bool
    seed: int
    training: Mapping[str, Any]
    previous: tuple[str, ...]
    teacher: str | None
    metric: str
    validation: float | None
    test: Mapping[str, float]  # by version, as fractions
    best_step: int
    samples: int | None  # with labels of the period's version
    ontology: str | None  # its fingerprint
    seconds: float
    images_per_second: float
    device: str
    threads: int
    processes: int
    packages: Mapping[str, str]

    @property
    def fingerprint(self) -> str:
        """What the stage is called by others."""
        return self.folder.name

    @property
    def benchmark(self) -> str:
        """The name of the data."""
        return self.material.rpartition(" ")[0] or self.material

    @property
    def learning_rate(self) -> float:
        """The one it was trained with."""
        return float(self.training["learning_rate"][0])

    @property
    def score(self) -> float | None:
        """On test, at the period's version."""
        return self.test.get(self.version)

    def __str__(self) -> str:
        parts = [f"{self.benchmark} TP{self.period}", self.method]
        parts += [self.strategy, self.annotation] if self.period else []
        parts += ["head start"] if self.head_start else []
        return ", ".join([*parts, f"lr {self.learning_rate:g}", f"seed {self.seed}"])


@dataclass(frozen=True)
class Stored:
    """All complete stages of a store, and what is wrong with the folders that are none."""

    runs: Path
    records: tuple[Record, ...]
    problems: tuple[str, ...]


def read_store(runs: Path) -> Stored:
    """Read every complete stage; folders that cannot be read are told about, and left out."""
    records, problems = [], []
    for folder in stage_folders(runs):
        try:
            records.append(read_stage(folder))
        except BROKEN as error:
            problems.append(f"{folder}: {_why(error)}")
    return Stored(runs, tuple(records), tuple(problems))


def stage_folders(runs: Path) -> list[Path]:
    """The folders of complete stages, by name."""
    store = require_store(runs)
    if not store.stages.is_dir():
        return []
    with os.scandir(store.stages) as entries:
        return [store.stages / name for name in sorted(entry.name for entry in entries if entry.is_dir())]


def require_store(runs: Path) -> Store:
    """The store in a folder, which must be one."""
    store = Store(runs)
    if not any(folder.is_dir() for folder in (store.stages, store.partial, runs / "plans")):
        raise LecoError(f"{runs}: holds no runs: there is neither {store.stages} nor {store.partial}")
    return store


def read_stage(folder: Path) -> Record:
    """Read one stage: its summary, or what a summary would be made of."""
    try:
        summary = json.loads((folder / "summary.json").read_bytes())
    except FileNotFoundError:
        config, result = (json.loads((folder / name).read_bytes()) for name in ("config.json", "result.json"))
        summary = summarise(config, result)
    return _record(folder, summary)


def _record(folder: Path, summary: Mapping[str, Any]) -> Record:
    config = summary["config"]
    samples, ontology = summary.get("samples"), summary.get("ontology")
    return Record(
        folder=folder,
        material=str(config["material"]),
        data=summary.get("data"),
        version=str(config["version"]),
        period=int(config["period"]),
        method=str(config["method"]),
        strategy=str(config["strategy"]),
        annotation=str(config["annotation"]),
        head_start=bool(config["head_start"]),
        seed=int(config["seed"]),
        training=_training(config),
        previous=tuple(map(str, config["previous"])),
        teacher=config["teacher"],
        metric=str(summary["metric"]),
        validation=_number(summary["validation_score"]),
        test={name: float(value) for name, value in summary["test"].items() if _number(value) is not None},
        best_step=int(summary["best_step"]),
        samples=None if samples is None else int(samples),
        ontology=None if ontology is None else str(ontology),
        seconds=float(summary["seconds"]),
        images_per_second=float(summary["images_per_second"]),
        device=str(summary["device"]),
        threads=int(summary["threads"]),
        processes=int(summary["processes"]),
        packages={str(name): str(version) for name, version in summary["packages"].items()},
    )


def _training(config: Mapping[str, Any]) -> Mapping[str, Any]:
    """The settings, and the bundle that training started from, if there was one: others do not compare."""
    settings = config["training"]
    float(settings["learning_rate"][0])  # what everything else relies on
    return {**settings, "start": str(config["start"])} if "start" in config else settings


def _number(value: Any) -> float | None:
    return None if value is None or not math.isfinite(value) else float(value)


def _why(error: Exception) -> str:
    if isinstance(error, FileNotFoundError):
        return f"{Path(str(error.filename)).name} is missing"
    if isinstance(error, OSError):
        return str(error.strerror)
    if isinstance(error, json.JSONDecodeError | UnicodeDecodeError):
        return "is no JSON"
    if isinstance(error, KeyError):
        return f"{error} is missing"
    return f"is not as stages are ({error})"
