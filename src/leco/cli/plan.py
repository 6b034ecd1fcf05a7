"""`leco plan`: whether to label new samples, to relabel old ones, or both."""

import json
import shlex
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from leco.cli.terminal import print_table
from leco.errors import LecoError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from leco.dataset import Material
    from leco.experiments.experiment import Experiment
    from leco.experiments.run import Machine

_MOST_ROWS = 30

Source = Annotated[
    str,
    typer.Argument(
        metavar="BENCHMARK|FILE", help="A benchmark of `leco data list`, or an experiment.yaml.", show_default=False
    ),
]
Data = Annotated[Path, typer.Option("--data", help="Folder that holds the datasets.")]
Runs = Annotated[Path, typer.Option("--runs", help="Folder that keeps what was trained and measured.")]
Seed = Annotated[int | None, typer.Option(help="0 if not given.", show_default=False)]
Size = Annotated[int | None, typer.Option(help="Samples per period of a benchmark, if not its own.")]
Training = Annotated[
    str | None,
    typer.Option("--training", help="paper or small: how a network is trained, if one must be.", show_default=False),
]
Settings = Annotated[list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Such as training.steps=500.")]
Backbone = Annotated[
    str | None,
    typer.Option(help="Features of this timm model, pretrained, or `pixels`; else of the model of the period before."),
]
Draws = Annotated[int, typer.Option(min=5, max=1_000, help="Subsamples of each size; more narrow the intervals.")]


def plan(
    source: Source,
    budget: Annotated[float, typer.Option(help="What may be spent, in the unit of the costs.", show_default=False)],
    cost_new: Annotated[float, typer.Option(help="Of labelling a new sample.")] = 1.0,
    cost_relabel: Annotated[
        float | None,
        typer.Option(
            help="Of relabelling an old one; if not given, cost-new times the share of bits that its label leaves open."
        ),
    ] = None,
    cost_collect: Annotated[float, typer.Option(help="Of collecting a new sample, on top.")] = 0.0,
    full: Annotated[bool, typer.Option("--full", help="Train for real instead of a head on frozen features.")] = False,
    backbone: Backbone = None,
    draws: Draws = 10,
    seed: Seed = None,
    size: Size = None,
    training: Training = None,
    settings: Settings = None,
    data: Data = Path("data"),
    runs: Runs = Path("runs"),
    output: Annotated[Path | None, typer.Option("-o", "--output", help="Also write the plan here, as JSON.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of tables.")] = False,
) -> None:
    """Say how many samples of which kind to annotate next, and the accuracy to expect.

    Learning curves are measured on your own data; the test split is never read. Measurements are kept in RUNS/plans:
    another budget or other costs are then a matter of seconds.
    """
    from leco.io import write_text
    from leco.planning.costs import Costs, check
    from leco.planning.plan import make_plan, save_plan
    from leco.planning.prepare import prepare

    costs = Costs(cost_new, cost_relabel, cost_collect)
    check(budget, costs)
    if output is not None and (output.is_dir() or not output.resolve().parent.is_dir()):  # known before it takes long
        raise LecoError(f"{output}: {'is a folder' if output.is_dir() else 'its folder does not exist'}; name a file")
    wanted, material = asked_for(source, seed, size, training, settings, data)
    try:
        with machine() as here, _progress(draws) as tick:
            prepared = prepare(wanted, material, runs, here, lambda *_: None, backbone, full, draws, tick)
    except KeyboardInterrupt:
        typer.echo("\nstopped; the same command goes on with what is missing", err=True)
        raise
    made = make_plan(prepared, budget, costs, source)
    kept = save_plan(prepared, made)
    if output is not None:
        write_text(output, json.dumps(made, ensure_ascii=False, indent=1) + "\n")
    if as_json:
        typer.echo(json.dumps(made, ensure_ascii=False, indent=1))
        return
    _print_plan(made)
    typer.echo(f"kept in {kept}")
    if Path(source).is_file():  # own data, which somebody can label
        given = {"--training": training, "--backbone": backbone, "--runs": None if runs == Path("runs") else runs}
        same = [part for name, value in given.items() if value is not None for part in (name, str(value))]
        same += [part for setting in settings or () for part in ("--set", setting)]
        command = ["leco", "batch", "export", source, "--plan", str(output or kept), *same, "-o", "batch"]
        typer.echo(f"next: {shlex.join(command)}")


def asked_for(
    source: str, seed: int | None, size: int | None, training: str | None, settings: list[str] | None, data: Path
) -> "tuple[Experiment, Material]":
    """The experiment, and its data but for the test split, which is not read."""
    from leco.cli.run import pairs
    from leco.dataset import make_material
    from leco.experiments.experiment import experiment

    wanted = experiment(source, {"seed": seed, "size": size, "budget": training}, pairs(settings or []))
    return wanted, make_material(wanted, data, tested=False)


@contextmanager
def machine() -> "Iterator[Machine]":
    """What trains, if something must be, and stops when it is asked to."""
    from leco.experiments.run import Machine, stoppable

    with stoppable() as stop:
        yield Machine(stop=stop, say=lambda problem: typer.echo(problem, err=True))


@contextmanager
def _progress(draws: int) -> "Iterator[Callable[[], object]]":
    from rich.console import Console
    from rich.progress import Progress

    from leco.planning.measure import NEW_LEVELS, OLD_LEVELS

    console = Console(stderr=True)
    with Progress(console=console, transient=True, disable=not console.is_terminal) as progress:
        task = progress.add_task("measuring", total=draws * len(NEW_LEVELS) * len(OLD_LEVELS))
        yield lambda: progress.advance(task)


def _percent(found: dict[str, Any], key: str = "macc") -> str:
    return f"{100 * found[key]:.1f} % ({100 * found['low']:.1f} to {100 * found['high']:.1f})"


def _print_plan(made: dict[str, Any]) -> None:
    now, chosen, costs = made["now"], made["chosen"], made["costs"]
    typer.echo(
        f"{made['data']}: {now['newest']:,} samples labelled in {made['versions'][-1]} to train on, "
        f"{now['validation']:,} to validate with, {now['history']:,} older ones"
    )
    known, open_ = now["known_already"], now["relabellable"]
    typer.echo(
        f"of those, {open_:,} could be relabelled, {known:,} are known without, {now['unlabelled']:,} unlabelled"
    )
    typer.echo(f"features: {made['features']}; {'real training' if made['training'] == 'full' else 'a head on them'}")
    relabel = "-" if costs["relabel"] is None else f"{costs['relabel']:.3g}"
    derived = " on average, from the ontology" if costs["relabel_from_ontology"] else ""
    typer.echo(f"costs: new {costs['new']:g}, relabel {relabel}{derived}, collect {costs['collect']:g}\n")
    rows = [
        [
            f"{'* ' if best else ''}{row['kind']}",
            f"{row['new']:,}",
            f"{row['relabel']:,}",
            f"{row['cost']:,.1f}",
            _percent(row),
            "" if best else f"{-100 * row['ahead'][1]:+.1f} to {-100 * row['ahead'][0]:+.1f}",
        ]
        for row in made["alternatives"]
        for best in [(row["new"], row["relabel"]) == (chosen["new"], chosen["relabel"])]
    ]
    print_table(["strategy", "new", "relabel", "cost", "mAcc", "against *"], rows, right=(1, 2, 3, 4, 5))
    typer.echo(f"mAcc now {_percent(now)}; expected {_percent(chosen)}; these are 90 % intervals")
    if not open_:
        typer.echo("nothing to decide: no old label leaves several classes open")
    elif made["decided"]:
        typer.echo(f"decided: {chosen['kind']} is better than the pure strategies beside it, at 90 %")
    else:
        typer.echo(f"not decided by the data: {', '.join(made['rivals'])} may be as good")
    if made["break_even"] is not None:
        ratio = made["break_even"]
        typer.echo(
            f"relabelling pays where it costs less than {ratio['ratio']:.2f} of a new label, collected "
            f"({ratio['low']:.2f} to {ratio['high']:.2f})"
        )
    relabels = sorted((row for row in made["relabel"] if row["count"]), key=lambda row: -row["count"])
    if relabels:
        rows = [
            [f"{row['version']}: {row['class']}", f"{row['count']:,}", f"{row['of']:,}", f"{row['cost']:.3g}"]
            for row in relabels[:_MOST_ROWS]
        ]
        typer.echo()
        print_table(["relabel, of", "samples", "there are", "cost each"], rows, right=(1, 2, 3))
        _print_rest(len(relabels))
    shown = sorted((row for row in made["classes"] if row["expected"] is not None), key=lambda row: row["expected"])
    rows = [
        [
            row["class"],
            str(row["labelled"]),
            f"{row['new']:.1f}",
            f"{row['relabel']:.1f}",
            f"{100 * row['accuracy']:.0f}",
            f"{100 * row['expected']:.0f} ({100 * row['low']:.0f} to {100 * row['high']:.0f})",
        ]
        for row in shown[:_MOST_ROWS]
    ]
    print_table(["class, worst first", "labelled", "+ new", "+ old", "now, %", "expected, %"], rows, (1, 2, 3, 4, 5))
    _print_rest(len(shown))
    for line in made["assumes"]:
        typer.echo(f"assumes: {line}")


def _print_rest(count: int) -> None:
    if count > _MOST_ROWS:
        typer.echo(f"… and {count - _MOST_ROWS:,} more; --json lists all of them")
