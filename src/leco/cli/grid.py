"""`leco grid`: many experiments over one store."""

import re
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from leco.cli.run import Backbone, pairs
from leco.cli.terminal import print_table
from leco.errors import LecoError
from leco.records import METRICS_LINES, read_lines

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rich.table import Table

    from leco.experiments.experiment import Experiment
    from leco.experiments.grid import Graph, Progress
    from leco.experiments.stages import Stage
    from leco.experiments.store import Store


_MOST_FAILURES = 10  # to list

# Options of all commands that train many stages.
Changes = Annotated[
    list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Such as training.batches.steps=500.")
]
Engine = Annotated[
    str, typer.Option(help="local, or ray: a running cluster (RAY_ADDRESS), or a new one on this machine.")
]
Workers = Annotated[int, typer.Option(min=0, help="Processes of each stage that read files ahead.")]
Data = Annotated[Path, typer.Option("--data", help="Folder with the datasets.")]
Runs = Annotated[
    str, typer.Option("--runs", help="Folder, or address such as s3://bucket/runs, for all trained stages.")
]
Device = Annotated[
    str, typer.Option(help="auto (a GPU if there is one), cpu, cuda, cuda:1, mps or another that torch knows.")
]


def grid(
    source: Annotated[
        str,
        typer.Argument(metavar="BENCHMARK|FILE", help="As in `leco run`; the options vary it.", show_default=False),
    ],
    methods: Annotated[str, typer.Option(help="all (39), or a list such as ce,lpl,lpl+st-hard/cond.")] = "ce,joint,lpl",
    strategies: Annotated[str, typer.Option(help="A list of finetune, freeze, scratch, random, lp-ft.")] = "finetune",
    annotations: Annotated[
        str,
        typer.Option(
            help="A list of label-new, relabel-25, relabel-50, relabel-75, relabel-old, all-fine, with-unlabelled."
        ),
    ] = "label-new",
    seeds: Annotated[str, typer.Option(help="Such as 0-4, or 0,3,7.")] = "0-4",
    budget: Annotated[str | None, typer.Option(help="paper (default), small, or features.", show_default=False)] = None,
    backbone: Backbone = None,
    size: Annotated[int | None, typer.Option(help="Samples per period, instead of the benchmark's own.")] = None,
    transition: Annotated[str | None, typer.Option(help="As in `leco run`: tree or soft.", show_default=False)] = None,
    head_start: Annotated[
        bool, typer.Option("--head-start", help="Initialise each class with the weights of its parents.")
    ] = False,
    settings: Changes = None,
    engine: Engine = "local",
    jobs: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Stages to train in parallel; by default one per GPU (more if they are small), or per core.",
            show_default=False,
        ),
    ] = None,
    workers: Workers = 0,
    data: Data = Path("data"),
    runs: Runs = "runs",
    device: Device = "auto",
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only count the stages to train.")] = False,
) -> None:
    """Train all combinations of methods, annotations and seeds.

    It can be interrupted at any time; the same command continues.

    `relabel-old` and `all-fine` leave no history to pseudo-label, so they are combined with `ce`, `joint` and `lpl`
    only; the latter two also learn the older classes that a label implies.
    """
    from leco.experiments.grid import Graph, engine_of, shared_periods
    from leco.experiments.memory import check_batches
    from leco.experiments.train import check_network

    cells = _cells(methods, strategies, annotations)
    run_all = engine_of(engine)
    common = {"budget": budget, "size": size, "transition": transition, "head_start": head_start or None}
    wanted = _experiments(source, cells, seeds_of(seeds), common, pairs(settings or [], backbone))
    graph = Graph.of(wanted, data, runs, dry_run=dry_run)
    periods = shared_periods(wanted[0], data, graph.memory)
    check_network(graph.plans[0], periods)
    if engine == "local" and not dry_run:  # nodes of a cluster have other devices and memory than this machine
        check_batches(graph.plans[0], periods, device)
    missing = graph.missing(runs)
    typer.echo(
        f"{len(wanted)} experiments ({len(cells)} cells): {graph.wanted:,} stages needed, "
        f"{len(graph.stages):,} distinct, {len(graph.stages) - len(missing):,} done, {len(missing):,} to train"
    )
    if not dry_run and missing:
        train(run_all(graph, data, runs, jobs, device, workers=workers), graph, len(missing), runs)


def train(states: "Iterator[Progress]", graph: "Graph", missing: int, runs: str) -> None:
    """Train the missing stages of a grid, with progress; raise an error if some failed."""
    started = time.monotonic()
    try:
        final = watch(states, missing, runs)
    except KeyboardInterrupt:
        typer.echo("\nstopped; the same command continues with the missing stages", err=True)
        raise
    typer.echo(f"{len(final.done):,} trainings in {time.monotonic() - started:.0f} s, stored in {runs}/stages")
    if final.failed:
        rows = [[name, str(graph.stages[name]), why] for name, why in list(final.failed.items())[:_MOST_FAILURES]]
        print_table(["stage", "what", "problem"], rows)
        skipped = f"; {len(final.skipped):,} that depend on them were skipped" if final.skipped else ""
        raise LecoError(
            f"{len(final.failed):,} trainings failed{skipped}; fix the cause and run the same command again"
        )


def _cells(methods: str, strategies: str, annotations: str) -> list[tuple[str, str, str]]:
    from leco.data.periods import WITHOUT_HISTORY
    from leco.methods.method import ALL_METHODS, Method

    if "auto" in _listed(methods):
        raise LecoError("--methods: auto compares methods itself and chooses one; use `leco run`")
    chosen = ALL_METHODS if methods == "all" else [Method.parse(name) for name in _listed(methods)]
    found = []
    for annotation in _listed(annotations):
        usable = [m for m in chosen if m.pseudo == "none"] if annotation in WITHOUT_HISTORY else chosen
        found += [(str(method), strategy, annotation) for strategy in _listed(strategies) for method in usable]
    if not found:
        raise LecoError("--methods, --strategies and --annotations: pass at least one of each")
    return list(dict.fromkeys(found))


def _listed(text: str) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()]


def seeds_of(text: str) -> list[int]:
    """Parse seeds such as 0-4 or 0,3,7."""
    found: list[int] = []
    for part in _listed(text):
        if not (match := re.fullmatch(r"(\d{1,9})(?:-(\d{1,9}))?", part)):
            raise LecoError(f"--seeds {text}: {part!r} is not a seed; use a range such as 0-4, or a list such as 0,3,7")
        first, last = int(match[1]), int(match[2] or match[1])
        if not first <= last < first + 1_000:
            raise LecoError(f"--seeds {text}: {part!r} must be an ascending range of fewer than 1,000 seeds")
        found += range(first, last + 1)
    if not found:
        raise LecoError("--seeds: is empty; use a range such as 0-4, or a list such as 0,3,7")
    return list(dict.fromkeys(found))


def _experiments(
    source: str, cells: list[tuple[str, str, str]], seeds: list[int], common: dict[str, Any], settings: dict[str, str]
) -> "list[Experiment]":
    from leco.experiments.experiment import experiment

    return [
        experiment(
            source, {**common, "method": method, "strategy": strategy, "annotation": annotation, "seed": seed}, settings
        )
        for seed in seeds
        for method, strategy, annotation in cells
    ]


_MOST_LINES = 16  # for running stages


def watch(states: "Iterator[Progress]", total: int, runs: str) -> "Progress":
    """Show the progress of a grid, and the time left, until it ends."""
    from rich import progress as bars
    from rich.console import Console, Group
    from rich.live import Live

    from leco.experiments.remote import is_url, local_path
    from leco.experiments.store import Store

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
        for _ in states:  # the same object each time, modified in place
            pass
    return state


def ended(state: "Progress") -> int:
    """Number of stages that are done, failed or skipped."""
    return len(state.done) + len(state.failed) + len(state.skipped)


def running_table(state: "Progress", store: "Store | None") -> "Table":
    """Table of the running stages: seed, step, score and time."""
    from rich.table import Table
    from rich.text import Text

    from leco.experiments.stages import stage_names

    names = stage_names(state.graph.stages.values())
    table = Table("stage", "seed", "step", "val, %", "time", box=None, header_style="dim")
    for name, since in list(state.running.items())[:_MOST_LINES]:
        stage = state.graph.stages[name]
        step, score = _last_line(stage, store)
        table.add_row(Text(names[stage]), str(stage.seed), step, score, f"{time.monotonic() - since:.0f} s")
    return table


def _last_line(stage: "Stage", store: "Store | None") -> tuple[str, str]:
    """Step and score of the last evaluation, if there was one."""
    step, score = 0, None
    if store is not None:
        with suppress(LecoError, IndexError):  # not started yet, or just completed
            last = read_lines(store.partial / stage.fingerprint / METRICS_LINES)[-1]
            step, score = last.step, last.score
    return f"{step}/{stage.training.batches.steps}", "" if score is None else f"{100 * score:.1f}"


def _failed(state: "Progress") -> str:
    return f", {len(state.failed)} failed" if state.failed else ""
