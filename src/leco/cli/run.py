"""`leco run`: train a benchmark, or what an experiment.yaml says, over its periods."""

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from leco.cli.terminal import print_table
from leco.errors import LecoError

if TYPE_CHECKING:
    from leco.dataset import Material
    from leco.experiments.run import Machine
    from leco.experiments.stages import Plan, Stage
    from leco.experiments.store import Store
    from leco.training.loop import Report


def run(
    source: Annotated[
        str,
        typer.Argument(
            metavar="BENCHMARK|FILE", help="A benchmark of `leco data list`, or an experiment.yaml.", show_default=False
        ),
    ],
    method: Annotated[
        str | None, typer.Option(help="Such as ce, lpl, joint+pl; lpl+st-hard/cond if not given.", show_default=False)
    ] = None,
    strategy: Annotated[
        str | None, typer.Option(help="finetune (if not given), freeze, scratch or lp-ft.", show_default=False)
    ] = None,
    annotation: Annotated[
        str | None, typer.Option(help="label-new (if not given), relabel-old or all-fine.", show_default=False)
    ] = None,
    seed: Annotated[int | None, typer.Option(help="0 if not given.", show_default=False)] = None,
    budget: Annotated[
        str | None,
        typer.Option(help="paper (if not given), or small: scaled down for two CPU cores.", show_default=False),
    ] = None,
    size: Annotated[int | None, typer.Option(help="Samples per period, if not the benchmark's own.")] = None,
    transition: Annotated[
        str | None,
        typer.Option(help="Of Mapillary: tree (majority parent) or soft (measured shares).", show_default=False),
    ] = None,
    head_start: Annotated[
        bool, typer.Option("--head-start", help="Classes begin as the class they came from.")
    ] = False,
    settings: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Such as training.steps=500.")
    ] = None,
    start: Annotated[
        Path | None, typer.Option(help="A bundle to start from: the model of an older version.", show_default=False)
    ] = None,
    bundle: Annotated[
        Path | None,
        typer.Option(
            help="Where to put the last period's model; in the folder of runs, if not given.", show_default=False
        ),
    ] = None,
    data: Annotated[Path, typer.Option("--data", help="Folder that holds the datasets.")] = Path("data"),
    runs_folder: Annotated[str, typer.Option("--runs", help="Folder that keeps what was trained.")] = "runs",
    device: Annotated[str, typer.Option(help="cpu, cuda, or auto: a GPU if there is one.")] = "auto",
    workers: Annotated[int, typer.Option(min=0, help="Processes that read files ahead.")] = 0,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would be trained.")] = False,
) -> None:
    """Train over the periods of a benchmark or of own data; what was trained before is taken from the store.

    On several devices or cores: torchrun --nproc_per_node=2 -m leco run …
    """
    from leco.dataset import make_material
    from leco.devices import check_shares
    from leco.experiments.bundling import bundle_place, bundle_stage
    from leco.experiments.experiment import experiment
    from leco.experiments.networks import build_network
    from leco.experiments.remote import is_url, local_path
    from leco.experiments.run import Machine, Stopped, stoppable
    from leco.experiments.stages import choose, plan
    from leco.experiments.store import Store
    from leco.model.bundle import check_target

    if is_url(runs_folder):
        raise LecoError(f"--runs {runs_folder}: is an address, which `leco grid` can use; say a folder")
    runs = local_path(runs_folder)

    changes: dict[str, Any] = {
        **{"method": method, "strategy": strategy, "annotation": annotation, "seed": seed, "budget": budget},
        **{"size": size, "head_start": head_start or None, "transition": transition, "start": start},
    }
    wanted = experiment(source, changes, pairs(settings or []))
    material = make_material(wanted, data)
    stages, store = plan(wanted, material), Store(runs)
    build_network(stages.stages[0], material, pretrained=False)  # refuses a model that will not do, before any training
    check_shares(wanted.training.batch_size)
    target = bundle or bundle_place(runs, stages.periods[-1][0])
    check_target(target, material.task, wanted.start)
    to_do = [stage for stage in stages.stages if store.result(stage.fingerprint) is None]
    if _leads():
        _print_plan(wanted, material, stages, to_do)
    if dry_run:
        return
    try:
        with stoppable() as stop:
            _train(stages, material, store, Machine(device, workers, stop, _say))
    except KeyboardInterrupt as reason:
        saved = " and saved" if isinstance(reason, Stopped) else ""
        if _leads():
            typer.echo(f"\nstopped{saved}; the same command goes on from the last checkpoint", err=True)
        raise
    if _leads():
        _print_results(stages, store, material.metric)
        bundle_stage(store, choose(stages.periods[-1], store).fingerprint, target)
        typer.echo(f"bundle: {target}")


def _leads() -> bool:
    """Whether this is the one process of `torchrun` that prints."""
    return int(os.environ.get("RANK", "0")) == 0


def pairs(settings: list[str]) -> dict[str, str]:
    """Read KEY=VALUE texts."""
    found = [setting.partition("=") for setting in settings]
    for key, equals, value in found:
        if not (key and equals and value):
            raise LecoError(f"--set {key}{equals}{value}: say KEY=VALUE, such as training.steps=500")
    keys = [key for key, _, _ in found]
    for key in keys:
        if keys.count(key) > 1:
            raise LecoError(f"--set {key}: is given {keys.count(key)} times; say it once")
    return {key: value for key, _, value in found}


def _print_plan(wanted: Any, material: "Material", stages: "Plan", to_do: "list[Stage]") -> None:
    training = wanted.training
    typer.echo(f"{material.name}: {wanted.method}, {wanted.strategy}, {wanted.annotation}, seed {wanted.seed}")
    budget = {"small": "small budget, scaled down: ", "paper": ""}[wanted.budget]
    typer.echo(f"{budget}{training.model}, {training.steps:,} steps of {training.batch_size} a stage")
    if wanted.data is not None and material.task == "classification" and wanted.start is None:
        typer.echo(f"{training.model} begins with {_beginning(training.model, training.pretrained)}")
    last = stages.periods[-1][0]
    if str(last.method) != wanted.method:
        typer.echo(f"trained as {last.method}: there is no history to pseudo-label")
    for stage in stages.stages:
        typer.echo(f"  {stage.fingerprint}  {'to do' if stage in to_do else 'there'}  {stage}")
    steps = training.steps * len(to_do)
    typer.echo(
        f"{len(to_do)} of {len(stages.stages)} to train: {steps:,} steps, {steps * training.batch_size:,} images"
    )


def _beginning(model: str, pretrained: bool) -> str:
    from leco.models.backbones import cached_weights, has_weights

    if pretrained:
        return "its pretrained weights" + ("" if cached_weights(model) else ", which are fetched")
    fetch = (
        "; `--set training.pretrained=true` fetches pretrained ones, which is far better" if has_weights(model) else ""
    )
    return f"random weights{fetch}"


def _say(problem: str) -> None:
    typer.echo(problem, err=True)


def _train(stages: "Plan", material: "Material", store: "Store", machine: "Machine") -> None:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    from leco.experiments.run import run_stage

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    console = Console(stderr=True)
    with Progress(*columns, console=console, disable=not (console.is_terminal and _leads())) as progress:
        for stage in stages.stages:  # all of them: every process must ask for the same
            task = progress.add_task(str(stage), total=stage.training.steps)

            def watch(stage: "Stage", report: "Report", task: Any = task) -> None:
                losses = " ".join(f"{name} {loss:.2f}" for name, loss in report.losses.items())
                speed = f"lr {report.learning_rate:.2g}, {report.images_per_second:,.0f} images/s"
                progress.update(task, completed=report.step, description=f"{stage}: {losses}, {speed}")
                if report.means and not console.is_terminal:
                    score = "" if report.score is None else f", val {100 * report.score:.1f} %"
                    typer.echo(f"{stage}: step {report.step:,} of {stage.training.steps:,}: {losses}{score}", err=True)

            run_stage(stage, material, store, machine, watch, stages.may_diverge(stage))
            progress.update(task, completed=stage.training.steps)


def _print_results(stages: "Plan", store: "Store", metric: str) -> None:
    from leco.experiments.stages import choose

    chosen = {choose(candidates, store) for candidates in stages.periods}
    asked_for = {stage for candidates in stages.periods for stage in candidates}
    rows = []
    for stage in stages.stages:
        result = store.require(stage.fingerprint)
        scores = [result[part] or {} for part in ("validation", "test")]
        values = [f"{100 * s[stage.version][metric]:.1f}" if s else "-" for s in scores]
        older = "\n".join(f"{100 * s[metric]:.1f} {name}" for name, s in scores[1].items() if name != stage.version)
        several = len(stages.stages) > len(chosen) and stage in chosen
        name = f"{'' if stage in asked_for else 'teacher: '}{stage}{' *' * several}"
        took = "diverged" if result.get("diverged") else f"{result['seconds']:.0f} s"
        rows.append([name, stage.version, *values, older or "-", took])
    print_table(["stage", "version", "val", "test", "at older", "time"], rows, right=(2, 3, 5))
    meaning = {"macc": "mean per-class accuracy", "miou": "mean intersection over union"}[metric]
    typer.echo(f"val, test: {meaning} in %, of the step that was best on val; at older: test, there")
    if any(row[0].endswith("*") for row in rows):
        typer.echo("*: what was asked for, in each period; of several learning rates, the best on val")
    typer.echo(f"kept in {store.stages}")
