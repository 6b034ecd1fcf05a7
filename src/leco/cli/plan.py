"""`leco plan`: whether to label new samples, to relabel old ones, or both."""

import shlex
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from leco.cli.terminal import print_table
from leco.errors import LecoError
from leco.progress import progress_bar, rate_bar

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from leco.dataset import Periods
    from leco.experiments.experiment import Experiment
    from leco.experiments.machine import Machine
    from leco.planning.record import Expected, NewClass, OldClass, Plan

_MOST_ROWS = 30

Source = Annotated[
    str,
    typer.Argument(
        metavar="BENCHMARK|FILE", help="A benchmark (`leco data list`) or an experiment.yaml.", show_default=False
    ),
]
Data = Annotated[Path, typer.Option("--data", help="Folder with the datasets.")]
Runs = Annotated[Path, typer.Option("--runs", help="Folder with trained models and measurements.")]
Training = Annotated[
    str | None,
    typer.Option("--training", help="paper or small: how to train a network, if needed.", show_default=False),
]
Settings = Annotated[
    list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Such as training.batches.steps=500.")
]
Backbone = Annotated[
    str | None,
    typer.Option(
        help="Use features of this pretrained timm model, or `pixels`.", show_default="the model of the period before"
    ),
]


def plan(
    source: Source,
    budget: Annotated[float, typer.Option(help="Budget, in the unit of the costs.", show_default=False)],
    cost_new: Annotated[float, typer.Option(help="Cost of labelling a new sample.")] = 1.0,
    cost_relabel: Annotated[
        float | None,
        typer.Option(
            help="Cost of relabelling an old sample.",
            show_default="cost-new times the share of bits that its old label leaves open",
        ),
    ] = None,
    cost_collect: Annotated[float, typer.Option(help="Additional cost of collecting a new sample.")] = 0.0,
    backbone: Backbone = None,
    draws: Annotated[
        int, typer.Option(min=5, max=1_000, help="Random subsamples of each size; more draws narrow the intervals.")
    ] = 10,
    seed: Annotated[int | None, typer.Option(help="Random seed.", show_default="0")] = None,
    size: Annotated[
        int | None, typer.Option(help="Samples per period of a benchmark.", show_default="that of the benchmark")
    ] = None,
    training: Training = None,
    settings: Settings = None,
    data: Data = Path("data"),
    runs: Runs = Path("runs"),
    output: Annotated[Path | None, typer.Option("-o", "--output", help="Also write the plan as JSON.")] = None,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace a file that is not a plan of leco, too.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of tables.")] = False,
) -> None:
    """Recommend what to annotate next, and predict the accuracy.

    Learning curves are measured on your own data; the test split is never read. Measurements are kept in RUNS/plans,
    so that plans for another budget or other costs take seconds.
    """
    from leco.io import check_replaceable
    from leco.planning.plan import make_plan, save_plan
    from leco.planning.prepare import load_context, prepare
    from leco.planning.strategies import Costs

    costs = Costs(cost_new, cost_relabel, cost_collect)
    costs.check(budget)
    if output is not None and (output.is_dir() or not output.resolve().parent.is_dir()):  # before the measurements
        raise LecoError(f"{output}: {'is a folder' if output.is_dir() else 'its folder does not exist'}; name a file")
    if output is not None:
        check_replaceable(output, b'"break_even"', overwrite)
    wanted, periods = load_experiment(source, data, runs, seed=seed, size=size, training=training, settings=settings)
    try:
        with stoppable_machine() as machine:
            with rate_bar("embedding", "images") as tick:
                context = load_context(wanted, periods, runs, machine, backbone, tick=tick)
            with progress_bar("measuring") as tick:
                prepared = prepare(context, draws=draws, tick=tick, stop=machine.stop)
    except KeyboardInterrupt:
        typer.echo("\nstopped; run the same command to continue", err=True)
        raise
    made = make_plan(prepared, budget, costs, source)
    path = save_plan(prepared, made)
    if output is not None:
        made.write(output)
    if as_json:
        typer.echo(made.text(), nl=False)
        return
    _print_plan(made)
    typer.echo(f"kept in {path}")
    if Path(source).is_file():  # benchmarks cannot be annotated
        given = {"--training": training, "--backbone": backbone, "--runs": None if runs == Path("runs") else runs}
        same = [part for name, value in given.items() if value is not None for part in (name, str(value))]
        same += [part for setting in settings or () for part in ("--set", setting)]
        command = ["leco", "batch", "export", source, "--plan", str(output or path), *same, "-o", "batch"]
        typer.echo(f"next: {shlex.join(command)}")


def load_experiment(
    source: str,
    data: Path,
    runs: Path,
    *,
    seed: int | None,
    size: int | None,
    training: str | None,
    settings: list[str] | None,
) -> "tuple[Experiment, Periods]":
    """Read an experiment and its data, except for the test split."""
    from leco.cli.run import pairs
    from leco.experiments.experiment import experiment
    from leco.experiments.store import Store
    from leco.experiments.train import periods_of

    wanted = experiment(source, {"seed": seed, "size": size, "budget": training}, pairs(settings or []))
    return wanted, periods_of(wanted, data, tested=False, memory=Store(runs).files)


@contextmanager
def stoppable_machine() -> "Iterator[Machine]":
    """Yield a machine that trains on this computer until it is asked to stop."""
    from leco.experiments.machine import Machine
    from leco.experiments.train import stoppable

    with stoppable() as stop:
        yield Machine(stop=stop, say=_say, note=_say, shown=True)


def _say(text: str) -> None:
    typer.echo(text, err=True)


def _percent(found: "Expected") -> str:
    return f"{100 * found.macc:.1f} % ({100 * found.low:.1f} to {100 * found.high:.1f})"


def _print_plan(made: "Plan") -> None:
    now, costs = made.now, made.costs
    typer.echo(
        f"{made.data}: {now.newest:,} training and {now.validation:,} validation samples labelled in "
        f"{made.versions[-1]}, {now.history:,} older samples"
    )
    typer.echo(
        f"older samples: {now.relabellable:,} can be relabelled, {now.known_already:,} are determined by their "
        f"old label, {now.unlabelled:,} are unlabelled"
    )
    typer.echo(f"features: {made.features}; a linear head on them")
    relabel = "-" if costs.relabel is None else f"{costs.relabel:.3g}"
    derived = " on average, from the ontology" if costs.relabel_from_ontology else ""
    typer.echo(f"costs: new {costs.new:g}, relabel {relabel}{derived}, collect {costs.collect:g}\n")
    _print_alternatives(made)
    _print_relabel(made.relabel)
    _print_classes(made.classes)
    for line in made.assumes:
        typer.echo(f"assumes: {line}")


def _print_alternatives(made: "Plan") -> None:
    chosen = made.chosen
    rows = [
        [
            f"{'* ' if best else ''}{row.kind}",
            f"{row.new:,}",
            f"{row.relabel:,}",
            f"{row.cost:,.1f}",
            _percent(row),
            "" if best else f"{-100 * row.ahead[1]:+.1f} to {-100 * row.ahead[0]:+.1f}",
        ]
        for row in made.alternatives
        for best in [(row.new, row.relabel) == (chosen.new, chosen.relabel)]
    ]
    print_table(["strategy", "new", "relabel", "cost", "mAcc", "against *"], rows, right=(1, 2, 3, 4, 5))
    typer.echo(f"mAcc now {_percent(made.now)}; expected {_percent(chosen)}; these are 90 % intervals")
    if not made.now.relabellable:
        typer.echo("nothing to decide: no old label leaves several classes open")
    elif made.decided:
        typer.echo(f"decided: {chosen.kind} is better than the pure strategies, at 90 %")
    else:
        typer.echo(f"not decided by the data: {', '.join(made.rivals)} may be as good")
    if made.break_even is not None:
        ratio = made.break_even
        typer.echo(
            f"relabelling pays if it costs less than {ratio.ratio:.2f} of collecting and labelling a new sample "
            f"({ratio.low:.2f} to {ratio.high:.2f})"
        )


def _print_relabel(classes: "Sequence[OldClass]") -> None:
    relabels = sorted((row for row in classes if row.count), key=lambda row: -row.count)
    if relabels:
        rows = [
            [f"{row.version}: {row.name}", f"{row.count:,}", f"{row.of:,}", f"{row.cost:.3g}"]
            for row in relabels[:_MOST_ROWS]
        ]
        typer.echo()
        print_table(["old class", "relabel", "of", "cost each"], rows, right=(1, 2, 3))
        _print_rest(len(relabels))


def _print_classes(classes: "Sequence[NewClass]") -> None:
    shown = sorted((row for row in classes if row.expected is not None), key=lambda row: row.expected or 0.0)
    rows = [
        [
            row.name,
            str(row.labelled),
            f"{row.new:.1f}",
            f"{row.relabel:.1f}",
            _whole_percent(row.accuracy),
            f"{_whole_percent(row.expected)} ({_whole_percent(row.low)} to {_whole_percent(row.high)})",
        ]
        for row in shown[:_MOST_ROWS]
    ]
    print_table(["class, worst first", "labelled", "+ new", "+ old", "now, %", "expected, %"], rows, (1, 2, 3, 4, 5))
    _print_rest(len(shown))


def _whole_percent(share: float | None) -> str:
    return "-" if share is None else f"{100 * share:.0f}"


def _print_rest(count: int) -> None:
    if count > _MOST_ROWS:
        typer.echo(f"… and {count - _MOST_ROWS:,} more; --json lists all of them")
