"""`leco batch`: samples to annotators, and their answers back into the manifest."""

import csv
import io
from pathlib import Path
from typing import Annotated

import typer

from leco.cli.plan import Backbone, Data, Draws, Runs, Seed, Settings, Source, Training, prepared_from
from leco.errors import LecoError

app = typer.Typer(
    help="Send samples to a labelling tool, and take the answers in.", no_args_is_help=True, rich_markup_mode=None
)
_MOST_SHOWN = 20


@app.command()
def export(
    source: Source,
    output: Annotated[Path, typer.Option("-o", "--output", help="Folder for the batch.", show_default=False)],
    plan: Annotated[Path | None, typer.Option("--plan", help="A plan of `leco plan`: how many of which kind.")] = None,
    relabel: Annotated[int | None, typer.Option(min=0, help="Old samples, if there is no plan.")] = None,
    new: Annotated[int | None, typer.Option(min=0, help="Unlabelled samples, if there is no plan.")] = None,
    pick: Annotated[str, typer.Option(help="random, uncertain, diverse, balanced or mixed.")] = "random",
    url_prefix: Annotated[
        str, typer.Option(help="What the tool puts before a path to show the file.")
    ] = "/data/local-files/?d=",
    backbone: Backbone = None,
    draws: Draws = 10,
    seed: Seed = None,
    training: Training = None,
    settings: Settings = None,
    data: Data = Path("data"),
    runs: Runs = Path("runs"),
) -> None:
    """Pick samples, and write them as Label Studio tasks and configuration, and as CSV.

    Each old sample offers only the classes that its old label can be, with the model's suggestion.
    """
    from leco.data.manifest import read_manifest
    from leco.experiments.config import experiment
    from leco.ontology.ontology import Ontology
    from leco.planning.batches import make_batch, write_batch
    from leco.planning.picking import CRITERIA, MEANING
    from leco.planning.plans import read_plan

    own = experiment(source, {}, {}).data
    if own is None:
        raise LecoError(f"{source}: a benchmark has nobody to label it; name an experiment.yaml with your own data")
    if (plan is None) == (relabel is None and new is None):
        raise LecoError("say either --plan, or how many with --relabel and --new")
    if pick not in CRITERIA:
        raise LecoError(f"--pick {pick}: valid: {', '.join(CRITERIA)}")
    chosen = {"relabel": relabel or 0, "new": new or 0} if plan is None else read_plan(plan)["chosen"]
    manifest, _ = read_manifest(own.manifest, Ontology.load(own.ontology), root=own.root, decode=False)
    prepared = prepared_from(source, seed, None, training, settings, data, runs, backbone, False, draws)
    questions = make_batch(prepared, manifest, int(chosen["new"]), int(chosen["relabel"]), pick)
    counts = {kind: sum(question.kind == kind for question in questions) for kind in ("relabel", "new")}
    told = {"source": source, "plan": None if plan is None else str(plan), "criterion": pick, "seed": prepared.seed}
    paths = write_batch(questions, manifest, output, url_prefix, told | counts)
    typer.echo(f"{counts['relabel']:,} to relabel, {counts['new']:,} to label, picked {MEANING[pick]}")
    missing = int(chosen["new"]) - counts["new"]
    if missing > 0:
        typer.echo(f"{missing:,} more new samples are to be collected: list them in the manifest without a label")
    typer.echo(f"wrote {', '.join(str(path) for path in paths)}")


@app.command("import")
def import_answers(
    answers: Annotated[
        Path, typer.Argument(metavar="ANSWERS", help="Label Studio's JSON export, or a CSV.", show_default=False)
    ],
    manifest: Annotated[Path, typer.Option(help="The manifest that the samples are in.", show_default=False)],
    ontology: Annotated[
        Path, typer.Option(help="Its ontology; answers are of the newest version.", show_default=False)
    ],
    root: Annotated[Path | None, typer.Option(help="Folder that paths are relative to, if not the manifest's.")] = None,
    output: Annotated[
        Path | None, typer.Option("-o", "--output", help="The manifest to write.", show_default="the manifest itself")
    ] = None,
    conflicts: Annotated[
        Path | None, typer.Option(help="Also write the answers that were not taken here, as CSV.")
    ] = None,
) -> None:
    """Add answers to the manifest, with version, annotator and time; those that contradict are listed, not taken."""
    from leco.data.problems import Problems
    from leco.data.table import read_table, write_table
    from leco.ontology.files import write_text
    from leco.ontology.ontology import Ontology
    from leco.planning.answers import read_answers, take_answers

    target = output or manifest
    if target.suffix.lower() not in (".csv", ".jsonl"):
        raise LecoError(f"{target}: the ending says which format is meant; valid: .csv, .jsonl; name one with -o")
    if root is None and target.resolve().parent != manifest.resolve().parent:
        raise LecoError(f"{target}: paths are relative to the manifest's folder; write it there, or say --root")
    table, broken = read_table(manifest)
    problems = Problems(manifest, rows=len(table) + len(broken))
    problems.extend(broken)
    problems.raise_any()
    given, empty = read_answers(answers)
    taken = take_answers(table, Ontology.load(ontology), root or manifest.parent, given, empty)
    if conflicts is not None:
        text = io.StringIO(newline="")
        rows = csv.writer(text, lineterminator="\n")
        rows.writerow(["kind", "sample", "answer", "annotator", "time", "place", "problem"])
        for found in taken.conflicts:
            a = found.answer
            rows.writerow([found.kind, a.sample, a.label, a.annotator, a.time, a.place, found.message])
        write_text(conflicts, text.getvalue())
    write_table(taken.table, target)
    for found in taken.conflicts[:_MOST_SHOWN]:
        typer.echo(f"not taken: {found}", err=True)
    if len(taken.conflicts) > _MOST_SHOWN:
        more = len(taken.conflicts) - _MOST_SHOWN
        typer.echo(f"not taken: {more:,} more; --conflicts FILE lists all of them", err=True)
    typer.echo(
        f"{len(taken.accepted):,} answers taken, {len(taken.conflicts):,} contradict, {taken.repeated:,} say what is "
        f"known, {taken.empty:,} without an answer; wrote {target}"
    )
