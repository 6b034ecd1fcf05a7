"""`leco batch`: samples to annotators, and their answers back into the manifest."""

import csv
import io
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from leco.cli.plan import Backbone, Data, Runs, Settings, Source, Training, asked_for, machine
from leco.errors import LecoError, nearest

if TYPE_CHECKING:
    from leco.data.manifest.table import Table

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
    seed: Annotated[int | None, typer.Option(help="That of the plan, or 0, if not given.", show_default=False)] = None,
    training: Training = None,
    settings: Settings = None,
    data: Data = Path("data"),
    runs: Runs = Path("runs"),
) -> None:
    """Pick samples, and write them as Label Studio tasks and configuration, and as CSV.

    Each old sample offers only the classes that its old label can be, with the model's suggestion.
    """
    from leco.data.manifest.manifest import read_manifest
    from leco.experiments.experiment import experiment
    from leco.ontology.ontology import Ontology
    from leco.planning.batches import CRITERIA, MEANING, make_batch, write_batch
    from leco.planning.plan import read_plan
    from leco.planning.prepare import find_ground

    own = experiment(source, {}, {}).data
    if own is None:
        raise LecoError(f"{source}: a benchmark has nobody to label it; name an experiment.yaml with your own data")
    if (plan is None) == (relabel is None and new is None):
        raise LecoError("say either --plan, or how many with --relabel and --new")
    if pick not in CRITERIA:
        raise LecoError(f"--pick {pick}: is no criterion{nearest(pick, CRITERIA)}")
    if (output / "batch.csv").exists():  # which somebody may have filled
        raise LecoError(f"{output}: holds a batch already; name another folder")
    chosen: dict[str, Any] = {"relabel": relabel or 0, "new": new or 0}
    if plan is not None:
        found = read_plan(plan)
        chosen, seed = found["chosen"], found["seed"] if seed is None else seed
    ontology = Ontology.load(own.ontology)
    manifest, _ = read_manifest(own.manifest, ontology, root=own.root, decode=False, without="test")
    wanted, material = asked_for(source, seed, None, training, settings, data)
    if plan is not None and found["versions"] != list(material.versions):
        raise LecoError(f"{plan}: is a plan for other data, of the versions {', '.join(map(str, found['versions']))}")
    with machine() as here:
        ground = find_ground(wanted, material, runs, here, lambda *_: None, backbone)
    questions = make_batch(ground, manifest, int(chosen["new"]), int(chosen["relabel"]), pick)
    counts = {kind: sum(question.kind == kind for question in questions) for kind in ("relabel", "new")}
    told = {"source": source, "plan": None if plan is None else str(plan), "criterion": pick, "seed": ground.seed}
    paths = write_batch(questions, manifest, output, url_prefix, told | counts)
    typer.echo(f"{counts['relabel']:,} to relabel, {counts['new']:,} to label, picked {MEANING[pick]}")
    if missing := int(chosen["new"]) - counts["new"]:
        typer.echo(f"{missing:,} more new samples are to be collected: list them in the manifest without a label")
    if missing := int(chosen["relabel"]) - counts["relabel"]:
        typer.echo(f"{missing:,} more were to be relabelled, but there are no more whose old label leaves a question")
    typer.echo(f"wrote {', '.join(str(path) for path in paths)}")


@app.command("import")
def import_answers(
    answers: Annotated[
        Path,
        typer.Argument(
            metavar="ANSWERS", help="An export of Label Studio (JSON, CSV), or a filled batch.csv.", show_default=False
        ),
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
    from leco.data.manifest.table import write_table
    from leco.io import write_text
    from leco.ontology.ontology import Ontology
    from leco.planning.answers import read_answers, take_answers

    target = output or manifest
    check_target(target, manifest, root)
    if conflicts is not None and conflicts.resolve() in {path.resolve() for path in (answers, manifest, target)}:
        raise LecoError(f"--conflicts {conflicts}: is what is read, or the manifest; name another file")
    table = whole_table(manifest)
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
    if taken.accepted or target.resolve() != manifest.resolve():
        write_table(taken.table, target)
    for found in taken.conflicts[:_MOST_SHOWN]:
        typer.echo(f"not taken: {found}", err=True)
    if len(taken.conflicts) > _MOST_SHOWN:
        more = len(taken.conflicts) - _MOST_SHOWN
        typer.echo(f"not taken: {more:,} more; --conflicts FILE lists all of them", err=True)
    typer.echo(
        f"{len(taken.accepted):,} answers taken, {len(taken.conflicts):,} contradict, {taken.repeated:,} say what is "
        f"known, {taken.empty:,} without an answer; "
        + (f"wrote {target}" if taken.accepted or output else f"{target} stays as it is")
    )


def check_target(target: Path, manifest: Path, root: Path | None) -> None:
    """Whether a manifest made of another can be written there."""
    from leco.data.manifest.table import ending_of

    ending_of(target)
    if root is None and target.resolve().parent != manifest.resolve().parent:
        raise LecoError(f"{target}: paths are relative to the manifest's folder; write it there, or say --root")


def whole_table(manifest: Path) -> "Table":
    """Read the rows of a manifest, refusing all that are broken."""
    from leco.data.manifest.problems import Problems
    from leco.data.manifest.table import read_table

    table, broken = read_table(manifest)
    problems = Problems(manifest, rows=len(table) + len(broken))
    problems.extend(broken)
    problems.raise_any()
    return table
