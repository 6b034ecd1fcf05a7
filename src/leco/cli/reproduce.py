"""`leco reproduce`: all trainings behind a table of the paper."""

from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from leco.cli.grid import Changes, Data, Device, Engine, Runs, Workers, seeds_of, train
from leco.cli.run import pairs
from leco.cli.terminal import print_table
from leco.errors import LecoError, nearest
from leco.text import size as in_bytes

if TYPE_CHECKING:
    from collections.abc import Sequence

    from leco.experiments.cost import Cost
    from leco.experiments.experiment import Experiment
    from leco.paper.trainings import Training


def reproduce(
    table: Annotated[
        str,
        typer.Argument(
            metavar="TABLE", help="A table of `leco paper`, by number or name, such as table-2.", show_default=False
        ),
    ],
    only: Annotated[
        list[str] | None, typer.Option("--only", metavar="BENCHMARK", help="One of the table's benchmarks; repeatable.")
    ] = None,
    seeds: Annotated[
        str | None,
        typer.Option(help="Such as 0-4, the default; 0 alone on Mapillary, as in the paper.", show_default=False),
    ] = None,
    budget: Annotated[
        str | None, typer.Option(help="paper (default), small, or features (CIFAR).", show_default=False)
    ] = None,
    size: Annotated[int | None, typer.Option(help="Samples per period, instead of each benchmark's own.")] = None,
    settings: Changes = None,
    engine: Engine = "local",
    jobs: Annotated[
        int | None,
        typer.Option(min=1, help="Stages to train in parallel, as in `leco grid`.", show_default=False),
    ] = None,
    workers: Workers = 0,
    data: Data = Path("data"),
    runs: Runs = "runs",
    device: Device = "auto",
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only print what is done, and estimate the rest from a few steps.")
    ] = False,
) -> None:
    """Train every cell of a table of the paper, at its budget.

    Existing stages are reused.

    `leco report` then prints the table beside the paper's. It can be interrupted at any time.
    """
    from leco.experiments.grid import Graph, engine_of, shared_periods
    from leco.experiments.memory import check_batches
    from leco.experiments.train import check_network
    from leco.paper import table as find
    from leco.paper.trainings import trainings

    found = find(table)
    run_all = engine_of(engine)
    wanted = _only(trainings(found.name), only or [])
    cells = [
        _experiment(training, seed, budget, size, pairs(settings or []))
        for training in wanted
        for seed in (seeds_of(seeds) if seeds else range(training.runs))
    ]
    try:
        graph = Graph.of(cells, data, runs, dry_run=dry_run)
    except LecoError as error:
        raise LecoError(f"{error}{_without(cells, data)}") from None
    for cell, plan in {cell.benchmark: (cell, plan) for cell, plan in zip(cells, graph.plans, strict=True)}.values():
        periods = shared_periods(cell, data, graph.memory)
        check_network(plan, periods)
        if engine == "local" and not dry_run:
            check_batches(plan, periods, device)
    missing = graph.missing(runs)
    typer.echo(f"{found.place}: {found.caption}")
    done = len(graph.stages) - len(missing)
    typer.echo(f"{len(cells):,} experiments: {len(graph.stages):,} stages, {done:,} done, {len(missing):,} to train")
    if dry_run:
        from leco.experiments.cost import costs

        _print_costs(costs(graph, missing, data, device, workers), device)
        return
    if missing:
        train(run_all(graph, data, runs, jobs, device, workers=workers), graph, len(missing), runs)
    typer.echo(f"`leco report {runs}` shows the table beside the paper's")


def _only(found: "list[Training]", benchmarks: "Sequence[str]") -> "list[Training]":
    known = {training.benchmark for training in found}
    for name in benchmarks:
        if name not in known:
            raise LecoError(f"--only {name}: is not a benchmark of this table{nearest(name, known)}")
    return [training for training in found if not benchmarks or training.benchmark in benchmarks]


def _without(cells: "Sequence[Experiment]", data: Path) -> str:
    """Return the end of an error message: how to train the benchmarks whose data are there, if any."""
    from leco.experiments.grid import Graph

    one_of_each = {cell.benchmark: cell for cell in cells}
    usable = []
    for name, cell in one_of_each.items():
        with suppress(LecoError):
            Graph.of([cell], data)
            usable.append(f"--only {name}")
    return f"; to go on without it: {' '.join(usable)}" if 0 < len(usable) < len(one_of_each) else ""


def _experiment(
    training: "Training", seed: int, budget: str | None, size: int | None, settings: dict[str, str]
) -> "Experiment":
    from leco.experiments.experiment import experiment

    cell = {"method": training.method, "strategy": training.strategy, "annotation": training.annotation, "seed": seed}
    return experiment(training.benchmark, {**cell, "budget": budget, "size": size}, settings)


def _print_costs(found: "list[Cost]", device: str) -> None:
    from leco.devices import make_fabric

    rows = [
        [
            cost.benchmark,
            *(f"{number:,}" for number in (cost.stages, cost.stages - cost.missing, cost.missing, cost.steps)),
            _hours(cost.seconds) if cost.missing else "-",
        ]
        for cost in found
    ]
    print_table(["benchmark", "stages", "done", "to train", "steps", "hours"], rows, right=(1, 2, 3, 4, 5))
    if not any(cost.missing for cost in found):
        return
    used = make_fabric(device, "32-true").device.type
    name = "GPU" if used == "cuda" else used.upper()
    typer.echo(
        f"{_hours(sum(cost.seconds for cost in found))} hours on one {name} like this one if stages run one after the "
        "other, estimated from a few steps"
    )
    stored, running = sum(cost.stored for cost in found), max(cost.running for cost in found)
    copies = max(cost.copies for cost in found)  # of one data set, which the benchmarks share
    scaled = f", {in_bytes(copies)} for scaled-down images" if copies else ""
    typer.echo(f"disk: {in_bytes(stored)} for weights{scaled}, and up to ", nl=False)
    typer.echo(f"{in_bytes(running)} of checkpoints for each stage that is running")
    memory = in_bytes(max(cost.memory for cost in found))
    typer.echo(f"GPU memory: {memory} for a step" if used == "cuda" else f"memory: {memory} for the measured steps")


def _hours(seconds: float) -> str:
    hours = max(seconds / 3600, 0.01)
    return f"{hours:,.0f}" if hours >= 100 else f"{hours:.1f}" if hours >= 1 else f"{hours:.2f}"
