"""`leco run`: train on a benchmark or an experiment.yaml, over its periods."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from leco.cli.terminal import print_table
from leco.errors import LecoError

if TYPE_CHECKING:
    from leco.experiments.experiment import Experiment
    from leco.experiments.train import Run
    from leco.records import Result


Backbone = Annotated[
    str | None,
    typer.Option(
        help="Short for --set training.network.backbone=…; with --budget features, such as resnet18+mlp.",
        show_default=False,
    ),
]


def run(
    source: Annotated[
        str,
        typer.Argument(
            metavar="BENCHMARK|FILE", help="A benchmark (`leco data list`) or an experiment.yaml.", show_default=False
        ),
    ],
    method: Annotated[
        str | None,
        typer.Option(
            help="auto, the default for your own data: train with and without old labels, and keep the model that is "
            "best on validation. Or a loss for coarse labels ({coarse}), plus one for history ({pseudo}) and its "
            "refinement (filter or cond), such as ce, lpl or lpl+st-hard/cond, the default for benchmarks.",
            show_default=False,
        ),
    ] = None,
    strategy: Annotated[
        str | None, typer.Option(help="finetune (default), freeze, scratch, random or lp-ft.", show_default=False)
    ] = None,
    annotation: Annotated[
        str | None,
        typer.Option(
            help="label-new (default), relabel-25, relabel-50, relabel-75, relabel-old, all-fine or with-unlabelled.",
            show_default=False,
        ),
    ] = None,
    seed: Annotated[int | None, typer.Option(help="0 by default.", show_default=False)] = None,
    time: Annotated[
        str | None,
        typer.Option(
            help="For auto: duration of the whole run, such as 30m; the number of steps follows from measured speed.",
            show_default=False,
        ),
    ] = None,
    budget: Annotated[
        str | None,
        typer.Option(
            help="paper (default); small: scaled down for two CPU cores; features: on a frozen backbone.",
            show_default=False,
        ),
    ] = None,
    backbone: Backbone = None,
    size: Annotated[int | None, typer.Option(help="Samples per period, instead of the benchmark's own.")] = None,
    transition: Annotated[
        str | None,
        typer.Option(help="For Mapillary: tree (majority parent) or soft (measured shares).", show_default=False),
    ] = None,
    head_start: Annotated[
        bool, typer.Option("--head-start", help="Initialise each class with the weights of its parents.")
    ] = False,
    settings: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Such as training.batches.steps=500.")
    ] = None,
    start: Annotated[
        Path | None, typer.Option(help="A bundle to start from: a model of an older version.", show_default=False)
    ] = None,
    bundle: Annotated[
        Path | None,
        typer.Option(
            help="Folder for the last period's model; by default, below the folder of runs.", show_default=False
        ),
    ] = None,
    data: Annotated[Path, typer.Option("--data", help="Folder with the datasets.")] = Path("data"),
    runs_folder: Annotated[str, typer.Option("--runs", help="Folder for all trained stages.")] = "runs",
    device: Annotated[
        str, typer.Option(help="auto (a GPU if there is one), cpu, cuda, cuda:1, mps or another that torch knows.")
    ] = "auto",
    workers: Annotated[int, typer.Option(min=0, help="Processes that read files ahead; 0 uses threads.")] = 0,
    log: Annotated[list[str] | None, typer.Option(help="A logger besides the store's own metrics: {loggers}.")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only print what would be trained.")] = False,
) -> None:
    """Train on your own data or on a benchmark, and write a bundle.

    Existing stages are reused.

    On several devices or cores: torchrun --nproc_per_node=2 -m leco run …
    """
    from leco.experiments.experiment import experiment
    from leco.experiments.machine import Machine, Stopped
    from leco.experiments.remote import is_url, local_path
    from leco.experiments.store import Store
    from leco.experiments.train import Run, leads, stoppable, watching
    from leco.methods.method import Method
    from leco.training.loggers import LOGGERS

    if is_url(runs_folder):
        raise LecoError(f"--runs {runs_folder}: is an address, which only `leco grid` can use; pass a folder")
    changes: dict[str, Any] = {
        **{"method": method, "strategy": strategy, "annotation": annotation, "seed": seed, "budget": budget},
        **{"time": time, "size": size, "head_start": head_start or None, "transition": transition, "start": start},
    }
    for name in log or ():
        LOGGERS[name]  # raises if it is unknown
    wanted = experiment(source, changes, pairs(settings or [], backbone))
    store = Store(local_path(runs_folder))
    dataset = wanted.dataset(data)
    ready = Run.prepare(wanted, dataset, store, start=wanted.start, target=bundle, device=device, dry_run=dry_run)
    if leads():
        _print_plan(wanted, ready)
        for warning in dataset.unlabelled(wanted.method != str(Method())):
            typer.echo(f"warning: {warning}", err=True)
    if dry_run:
        return
    try:
        with stoppable() as stop, watching() as watch:
            ready.train(Machine(device, workers, tuple(log or ()), stop, say=_say, note=_say, shown=True), watch)
    except KeyboardInterrupt as reason:
        saved = " and saved" if isinstance(reason, Stopped) else ""
        if leads():
            typer.echo(f"\nstopped{saved}; the same command continues from the last checkpoint", err=True)
        raise
    if leads():
        _print_results(ready)
        typer.echo(f"bundle: {ready.target}")


def pairs(settings: list[str], backbone: str | None = None) -> dict[str, str]:
    """Parse KEY=VALUE texts, and add the backbone, if one is named."""
    settings = settings if backbone is None else [*settings, f"training.network.backbone={backbone}"]
    found = [setting.partition("=") for setting in settings]
    for key, equals, value in found:
        if not (key and equals and value):
            raise LecoError(f"--set {key}{equals}{value}: use KEY=VALUE, such as training.batches.steps=500")
    keys = [key for key, _, _ in found]
    for key in keys:
        if keys.count(key) > 1:
            raise LecoError(f"--set {key}: is given {keys.count(key)} times; pass it once")
    return {key: value for key, _, value in found}


def _print_plan(wanted: "Experiment", ready: "Run") -> None:
    from leco.experiments.auto import refitted
    from leco.experiments.stages import stage_names
    from leco.models.weights import describe_start

    training, periods, stages = wanted.training, ready.periods, ready.plan
    typer.echo(f"{periods.name}: {wanted.method}, {wanted.strategy}, {wanted.annotation}, seed {wanted.seed}")
    scaled_down = "small budget, scaled down: " if wanted.budget == "small" else ""
    batches, network = training.batches, training.network
    names = {stage: label for label, stage in stages.trials.items()}
    training_steps = max(stage.training.batches.steps for stage in stages.stages)
    if training_steps > 1:
        typer.echo(f"{scaled_down}{network.backbone}, {training_steps:,} steps of {batches.size} samples per training")
    if wanted.data is not None and periods.modality.embeds and wanted.start is None:
        typer.echo(describe_start(network.backbone, network.weights))
    last = stages.periods[-1][0]
    if not stages.trials and str(last.method) != wanted.method:
        typer.echo(f"trained as {last.method}: no history to pseudo-label")
    to_do = ready.to_do
    for stage, full in stage_names(stages.stages).items():
        name = f"{names[stage]} ({full})" if stage in names else full
        typer.echo(f"  {stage.fingerprint}  {'to do' if stage in to_do else 'done '}  {name}")
    steps = sum(stage.training.batches.steps for stage in to_do)
    samples = sum(stage.training.batches.steps * stage.training.batches.size for stage in to_do)
    refits = any(refitted(stage, periods)[0] is not stage for stage in stages.trials.values())
    again = "; the chosen one is then trained on all labels" if refits else ""
    typer.echo(f"{len(to_do)} of {len(stages.stages)} to train: {steps:,} steps, {samples:,} samples{again}")


def _say(problem: str) -> None:
    typer.echo(problem, err=True)


_MEANING = {"macc": "mean per-class accuracy", "miou": "mean intersection over union"}


def _cells(result: "Result") -> list[str]:
    """Return the cells of a stage: its scores on validation and test, on test at older versions, and its time."""
    values = [_percent(result.score(split)) for split in ("validation", "test")]
    others = [name for name in result.test or {} if name != result.version]
    older = "\n".join(f"{_percent(result.score('test', name))} {name}" for name in others)
    took = "diverged" if result.seconds is None else f"{result.seconds:.0f} s"
    return [*values, older or "-", took]


def _percent(score: float | None) -> str:
    return "-" if score is None else f"{100 * score:.1f}"


def _print_trials(ready: "Run") -> None:
    """Print what was tried and chosen, and its gain over new labels alone."""
    from leco.experiments.auto import decide
    from leco.experiments.stages import NEW_ALONE, REGRESSION

    store, metric, chosen = ready.store, ready.periods.modality.metric, decide(ready.plan, ready.store)
    final, _ = ready.final
    stages = dict(ready.plan.trials)
    if final not in stages.values():
        stages["the chosen one, trained on all labels"] = final
    rows, scores = [], {}
    for label, stage in stages.items():
        result = store.require(stage.fingerprint)
        rows.append([f"{label}{' *' * (label == chosen)}", *_cells(result)])
        scores[label] = result.validation_score
    print_table(["trained", "val", "test", "at older", "time"], rows, right=(1, 2, 4))
    typer.echo(f"val, test: {_MEANING[metric]} in % at {final.version}; *: chosen on val")
    alone = next((label for label in (NEW_ALONE, REGRESSION) if label in scores), None)
    best, simple = scores[chosen], scores.get(alone or "")
    if chosen != alone and best is not None and simple is not None:
        typer.echo(f"{chosen}: {100 * (best - simple):+.1f} points on val against {alone}")
    typer.echo(f"stored in {store.stages}")


def _print_results(ready: "Run") -> None:
    from leco.experiments.stages import choose, stage_names

    if ready.plan.trials:
        _print_trials(ready)
        return

    stages, store, metric = ready.plan, ready.store, ready.periods.modality.metric
    chosen = {choose(candidates, store) for candidates in stages.periods}
    asked_for = {stage for candidates in stages.periods for stage in candidates}
    rows = []
    for stage, full in stage_names(stages.stages).items():
        several = len(stages.stages) > len(chosen) and stage in chosen
        name = f"{'' if stage in asked_for else 'teacher: '}{full}{' *' * several}"
        rows.append([name, stage.version, *_cells(store.require(stage.fingerprint))])
    print_table(["stage", "version", "val", "test", "at older", "time"], rows, right=(2, 3, 5))
    typer.echo(
        f"val, test: {_MEANING[metric]} in %, at the step that was best on val; at older: test at older versions"
    )
    if any(row[0].endswith("*") for row in rows):
        typer.echo("*: the requested stage of each period; of several candidates, the best on val")
    typer.echo(f"stored in {store.stages}")
