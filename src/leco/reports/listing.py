"""A store as a list: every stage with its status, score, age and size; read without torch."""

import json
import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from leco.experiments.store import CHECKPOINTS
from leco.reports.stored import BROKEN, read_stage, require_store, stage_folders

Status = Literal["complete", "running", "partial", "broken"]


@dataclass(frozen=True)
class Line:
    """One stage of a list."""

    folder: Path
    status: Status
    what: str
    score: str  # on test, or how far it is
    age: float  # seconds since it last changed
    size: int  # bytes


def list_stages(runs: Path) -> list[Line]:
    """Every stage, those that are not complete first, then the newest first."""
    now = time.time()
    store = require_store(runs)
    lines = [_complete(folder, now) for folder in stage_folders(runs)]
    for folder in partial_folders(runs):
        running = store.is_running(folder.name)
        lines.append(_partial(folder, "running" if running else "partial", now))
    order: dict[Status, int] = {"running": 0, "partial": 1, "broken": 2, "complete": 3}
    return sorted(lines, key=lambda line: (order[line.status], line.age, line.folder.name))


def partial_folders(runs: Path) -> list[Path]:
    """The folders of stages that are not complete, by name; links are none."""
    partial = require_store(runs).partial
    if not partial.is_dir():
        return []
    with os.scandir(partial) as entries:
        names = sorted(entry.name for entry in entries if entry.is_dir(follow_symlinks=False))
    return [partial / name for name in names]


def _complete(folder: Path, now: float) -> Line:
    changed, size = _measure(folder)
    try:
        record = read_stage(folder)
    except BROKEN:
        return Line(folder, "broken", "cannot be read", "", now - changed, size)
    score = record.score if record.score is not None else record.validation
    text = "" if score is None else f"{100 * score:.1f}" + ("" if record.score is not None else " val")
    return Line(folder, "complete", str(record), text, now - changed, size)


def _partial(folder: Path, status: Status, now: float) -> Line:
    changed, size = _measure(folder)
    what, steps = "not started", "?"
    try:
        config = json.loads((folder / "config.json").read_bytes())
        name = str(config["material"]).rpartition(" ")[0]
        what = f"{name} TP{config['period']}, {config['method']}, {config['strategy']}, {config['annotation']}, "
        what += f"seed {config['seed']}"
        steps = f"{int(config['training']['steps']):,}"
    except BROKEN:
        pass
    step = max((checkpoint_step(folder / name) for name in CHECKPOINTS), default=-1)
    return Line(folder, status, what, f"step {step:,} of {steps}" if step >= 0 else "", now - changed, size)


def checkpoint_step(path: Path) -> int:
    """The step that a checkpoint was saved at; -1 if there is none that can be read."""
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, framework="numpy") as file:
            return int(json.loads(file.metadata()["leco"])["step"])
    except (SafetensorError, *BROKEN):
        return -1


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
