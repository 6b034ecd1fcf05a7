"""`leco run`: train a benchmark over its periods."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from leco.cli.tables import print_table
from leco.errors import LecoError

if TYPE_CHECKING:
    from leco.experiments.stages import Stage
    from leco.experiments.store import Store


def run(
    benchmark: Annotated[str, typer.Argument(help="A benchmark of `leco data list`.", show_default=False)],
    method: Annotated[str, typer.Option(help="Such as ce, lpl, joint+pl, lpl+st-hard/cond.")] = "lpl+st-hard/cond",
    strategy: Annotated[str, typer.Option(help="finetune, freeze, scratch or lp-ft.")] = "finetune",
    annotation: Annotated[str, typer.Option(help="label-new, relabel-old or all-fine.")] = "label-new",
    seed: Annotated[int, typer.Option(min=0, max=2**31 - 1)] = 0,
    budget: Annotated[str, typer.Option(help="paper, or small: scaled down for two CPU cores.")] = "small",
    size: Annotated[int | None, typer.Option(min=1, help="Samples per period, if not the benchmark's own.")] = None,
    head_start: Annotated[
        bool, typer.Option("--head-start", help="Classes begin as the class they came from.")
    ] = False,
    settings: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Such as training.steps=500.")
    ] = None,
    data: Annotated[Path, typer.Option("--data", help="Folder that holds the datasets.")] = Path("data"),
    runs: Annotated[Path, typer.Option("--runs", help="Folder that keeps what was trained.")] = Path("runs"),
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would be trained.")] = False,
) -> None:
    """Train a benchmark over its periods; what was trained before is taken from the store."""
    from leco.data.benchmarks import load
    from leco.experiments.config import experiment
    from leco.experiments.stages import plan
    from leco.experiments.store import Store

    changes: dict[str, Any] = {
        "method": method,
        "strategy": strategy,
        "annotation": annotation,
        "seed": seed,
        "size": size,
        "head_start": head_start,
    }
    wanted = experiment(benchmark, budget, changes, _pairs(settings or []))  # type: ignore[arg-type]
    loaded = load(benchmark, data, size)
    split = loaded.split(seed)
    stages, store = plan(wanted, loaded, split), Store(runs)
    typer.echo(f"{loaded.name}: {wanted.method}, {strategy}, {annotation}, seed {seed}; {budget} budget: ", nl=False)
    typer.echo(f"{wanted.training.model}, {wanted.training.steps:,} steps of {wanted.training.batch_size} a stage")
    for stage in stages:
        state = "there" if store.result(stage.fingerprint) else "to do"
        typer.echo(f"  {stage.fingerprint}  {state}  {stage}")
    if dry_run:
        return
    try:
        _train(stages, store, wanted, loaded, split)
    except KeyboardInterrupt:
        typer.echo("\nstopped; the same command goes on from the last checkpoint", err=True)
        raise
    _print_results(stages, store)


def _pairs(settings: list[str]) -> dict[str, str]:
    pairs = [setting.partition("=") for setting in settings]
    for key, equals, value in pairs:
        if not (key and equals and value):
            raise LecoError(f"--set {key}{equals}{value}: say KEY=VALUE, such as training.steps=500")
    return {key: value for key, _, value in pairs}


def _train(stages: "list[Stage]", store: "Store", wanted: Any, loaded: Any, split: Any) -> None:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    from leco.experiments.stages import run_stage

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    console = Console(stderr=True)
    with Progress(*columns, console=console, disable=not console.is_terminal) as progress:
        for stage in stages:
            if store.result(stage.fingerprint) is not None:
                continue
            task = progress.add_task(str(stage), total=wanted.training.steps)

            def watch(stage: "Stage", report: Any, task: Any = task) -> None:
                losses = " ".join(f"{name} {loss:.2f}" for name, loss in report.losses.items())
                text = f"{stage}: {losses}, {report.images_per_second:,.0f} images/s"
                progress.update(task, completed=report.step, description=text)

            run_stage(stage, wanted, loaded, split, store, watch)


def _print_results(stages: "list[Stage]", store: "Store") -> None:
    rows = []
    for stage in stages:
        result = store.result(stage.fingerprint)
        assert result is not None
        version = result["version"]
        older = ", ".join(f"{name} {100 * s['macc']:.1f}" for name, s in result["test"].items() if name != version)
        score = [f"{100 * result[part][version]['macc']:.1f}" for part in ("validation", "test")]
        rows.append([str(stage), version, *score, older or "-", f"{result['seconds']:.0f} s"])
    print_table(["stage", "version", "val", "test", "at older", "time"], rows, right=(2, 3, 5))
    typer.echo(
        "val, test: mean per-class accuracy in %, of the model that was best on val; at older: test, at older versions"
    )
    typer.echo(f"kept in {store.stages}")
