"""What `leco grid` shows while it runs: a bar, and a line for each stage that is being trained."""

import json
import time
from collections.abc import Iterator
from typing import Any

import typer
from rich import progress as bars
from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from leco.experiments.engine import Progress
from leco.experiments.remote import is_url, local_path
from leco.experiments.stages import Stage
from leco.experiments.store import Store

_MOST_LINES = 16  # of stages that run


def watch(states: Iterator[Progress], total: int, runs: str) -> Progress:
    """Show how far a grid is, and how much longer it takes, until it ends."""
    console = Console(stderr=True)
    state = next(states)
    if not console.is_terminal:
        for state in states:
            if (count := ended(state)) % max(1, total // 20) == 0 or count == total:
                typer.echo(f"{count:,} of {total:,} ended{_failed(state)}", err=True)
        return state
    columns = (bars.BarColumn(), bars.MofNCompleteColumn(), bars.TimeElapsedColumn(), bars.TimeRemainingColumn())
    bar = bars.Progress(*columns, bars.TextColumn("{task.description}"), console=console)
    task = bar.add_task("", total=total)
    store = None if is_url(runs) else Store(local_path(runs))

    def screen() -> Group:
        counts = f"{len(state.running)} running, {len(state.waiting)} waiting{_failed(state)}"
        bar.update(task, completed=ended(state), description=counts)
        return Group(bar, running_table(state, store))

    with Live(get_renderable=screen, console=console, refresh_per_second=2, transient=True):
        for _ in states:  # the same object, as it changes
            pass
    return state


def ended(state: Progress) -> int:
    """Stages that are done, failed or cannot be tried."""
    return len(state.done) + len(state.failed) + len(state.skipped)


def running_table(state: Progress, store: Store | None) -> Table:
    """The stages that are being trained: what they are, for how long, how far they are, and how good."""
    table = Table("stage", "seed", "step", "val, %", "time", box=None, header_style="dim")
    for name, since in list(state.running.items())[:_MOST_LINES]:
        stage = state.graph.stages[name]
        step, score = _last_line(stage, store)
        table.add_row(Text(str(stage)), str(stage.seed), step, score, f"{time.monotonic() - since:.0f} s")
    return table


def _last_line(stage: Stage, store: Store | None) -> tuple[str, str]:
    """The step and score of the last evaluation, if there was one."""
    line: dict[str, Any] = {}
    if store is not None:
        try:
            path = store.partial / stage.fingerprint / "metrics.jsonl"
            line = json.loads(path.read_text().splitlines()[-1])
        except (OSError, ValueError, IndexError):
            pass  # not begun, or just completed
    score = line.get("score")
    return f"{line.get('step', 0)}/{stage.training.steps}", "" if score is None else f"{100 * score:.1f}"


def _failed(state: Progress) -> str:
    return f", {len(state.failed)} failed" if state.failed else ""
