"""`leco batch`: samples for annotators, and their answers back into the manifest."""

import csv
import io
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from leco.cli.plan import Backbone, Data, Runs, Settings, Source, Training, load_experiment, stoppable_machine
from leco.errors import LecoError
from leco.progress import rate_bar
from leco.text import csv_cells

if TYPE_CHECKING:
    from leco.data.manifest.table import Table
    from leco.planning.answers import Conflict

app = typer.Typer(
    help="Export samples to a labelling tool, and import the answers.", no_args_is_help=True, rich_markup_mode=None
)
_MOST_SHOWN = 20


@app.command()
def export(
    source: Source,
    output: Annotated[Path, typer.Option("-o", "--output", help="Folder for the batch.", show_default=False)],
    plan: Annotated[Path | None, typer.Option("--plan", help="Take the counts from a plan of `leco plan`.")] = None,
    relabel: Annotated[int | None, typer.Option(min=0, help="Old samples to relabel, without a plan.")] = None,
    new: Annotated[int | None, typer.Option(min=0, help="Unlabelled samples to label, without a plan.")] = None,
    url_prefix: Annotated[
        str, typer.Option(help="URL under which the labelling tool serves the files.")
    ] = "/data/local-files/?d=",
    backbone: Backbone = None,
    seed: Annotated[int | None, typer.Option(help="Random seed.", show_default="that of the plan, or 0")] = None,
    training: Training = None,
    settings: Settings = None,
    data: Data = Path("data"),
    runs: Runs = Path("runs"),
) -> None:
    """Draw samples at random, for Label Studio and as CSV.

    Old samples offer only the classes that their old label leaves possible, with the model's suggestion.
    """
    from leco.data.manifest.manifest import read_manifest
    from leco.experiments.experiment import experiment
    from leco.ontology.ontology import Ontology
    from leco.planning.batches import make_batch, write_batch
    from leco.planning.prepare import load_context
    from leco.planning.record import read_plan

    own = experiment(source, {}, {}).data
    if own is None:
        raise LecoError(f"{source}: benchmarks cannot be annotated; name an experiment.yaml with your own data")
    if (plan is None) == (relabel is None and new is None):
        raise LecoError("pass either --plan, or the numbers of samples with --relabel and --new")
    if (output / "batch.csv").exists():  # which may have been filled in
        raise LecoError(f"{output}: already holds a batch; name another folder")
    counts = {"relabel": relabel or 0, "new": new or 0}
    found = None if plan is None else read_plan(plan)
    if found is not None:
        counts = {"relabel": found.chosen.relabel, "new": found.chosen.new}
        seed = found.seed if seed is None else seed
    ontology = Ontology.load(own.ontology)
    manifest, _ = read_manifest(own.manifest, ontology, root=own.root, decode=False, without="test")
    wanted, periods = load_experiment(source, data, runs, seed=seed, size=None, training=training, settings=settings)
    if found is not None and found.versions != tuple(periods.versions):
        versions = ", ".join(found.versions)
        raise LecoError(f"{plan}: is a plan for other data, with the versions {versions}; plan again with `leco plan`")
    with stoppable_machine() as machine, rate_bar("embedding", "images") as tick:
        context = load_context(wanted, periods, runs, machine, backbone, tick=tick)
    questions = make_batch(context, manifest, counts["new"], counts["relabel"])
    drawn = {kind: sum(question.kind == kind for question in questions) for kind in ("relabel", "new")}
    about = {"source": source, "plan": None if plan is None else str(plan), "seed": context.seed} | drawn
    paths = write_batch(questions, manifest, output, url_prefix, about)
    typer.echo(f"{drawn['relabel']:,} to relabel, {drawn['new']:,} to label, drawn at random")
    if missing := counts["new"] - drawn["new"]:
        typer.echo(f"{missing:,} more new samples are needed; collect them, and list them in the manifest unlabelled")
    if missing := counts["relabel"] - drawn["relabel"]:
        typer.echo(f"{missing:,} fewer to relabel than requested: there are no more ambiguous old labels")
    typer.echo(f"wrote {', '.join(str(path) for path in paths)}")


@app.command("import")
def import_answers(
    answers: Annotated[
        Path,
        typer.Argument(
            metavar="ANSWERS",
            help="An export of Label Studio (JSON, CSV), or a filled-in batch.csv.",
            show_default=False,
        ),
    ],
    manifest: Annotated[Path, typer.Option(help="The manifest of the samples.", show_default=False)],
    ontology: Annotated[
        Path, typer.Option(help="Its ontology; answers are of the newest version.", show_default=False)
    ],
    root: Annotated[
        Path | None, typer.Option(help="Folder that paths are relative to.", show_default="that of the manifest")
    ] = None,
    output: Annotated[
        Path | None, typer.Option("-o", "--output", help="The manifest to write.", show_default="the manifest itself")
    ] = None,
    conflicts: Annotated[Path | None, typer.Option(help="Also write the conflicts as CSV.")] = None,
) -> None:
    """Add answers to the manifest.

    Version, annotator and time are kept; conflicting answers are listed and left out.
    """
    from leco.data.manifest.table import write_table
    from leco.ontology.ontology import Ontology
    from leco.planning.answers import merge_answers, read_answers

    target = output or manifest
    check_target(target, manifest, root)
    if conflicts is not None and conflicts.resolve() in {path.resolve() for path in (answers, manifest, target)}:
        raise LecoError(f"--conflicts: {conflicts} is the answers or the manifest; name another file")
    table = whole_table(manifest)
    given, empty = read_answers(answers)
    merged = merge_answers(table, Ontology.load(ontology), root or manifest.parent, given)
    if conflicts is not None:
        _write_conflicts(merged.conflicts, conflicts)
    if merged.accepted or target.resolve() != manifest.resolve():
        write_table(merged.table, target)
    for found in merged.conflicts[:_MOST_SHOWN]:
        typer.echo(f"conflict: {found}", err=True)
    if len(merged.conflicts) > _MOST_SHOWN:
        more = len(merged.conflicts) - _MOST_SHOWN
        typer.echo(f"… and {more:,} more conflicts; --conflicts FILE lists all of them", err=True)
    typer.echo(
        f"{len(merged.accepted):,} answers added, {len(merged.conflicts):,} conflicts, {merged.repeated:,} already "
        f"known, {empty:,} empty; " + (f"wrote {target}" if merged.accepted or output else f"{target} is unchanged")
    )


def _write_conflicts(conflicts: "list[Conflict]", path: Path) -> None:
    from leco.io import write_text

    text = io.StringIO(newline="")
    rows = csv.writer(text, lineterminator="\n")
    rows.writerow(["kind", "sample", "answer", "annotator", "time", "place", "problem"])
    for found in conflicts:
        a = found.answer
        rows.writerow(csv_cells([found.kind, a.sample, a.label, a.annotator, a.time, a.place, found.message]))
    write_text(path, text.getvalue())


def check_target(target: Path, manifest: Path, root: Path | None) -> None:
    """Refuse a path to which a manifest derived from another cannot be written."""
    from leco.data.manifest.table import table_suffix

    table_suffix(target)
    if root is None and target.resolve().parent != manifest.resolve().parent:
        raise LecoError(f"{target}: paths are relative to the manifest's folder; write there, or pass --root")


def whole_table(manifest: Path) -> "Table":
    """Read the rows of a manifest; refuse it if any is broken."""
    from leco.data.manifest.table import Problems, read_table

    table = read_table(manifest)
    Problems(manifest, found=list(table.broken)).raise_any()
    return table
