"""`leco ontology`: check, diff, draw, infer, migrate."""

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from leco.cli.batch import check_target, whole_table
from leco.cli.terminal import print_table
from leco.errors import LecoError, and_more, nearest
from leco.progress import progress_bar

if TYPE_CHECKING:
    from leco.data.manifest.table import Table
    from leco.ontology.changes import Change
    from leco.ontology.inference import CoLabels, Parent
    from leco.ontology.ontology import Ontology
    from leco.planning.migrate import Questions


app = typer.Typer(
    help="Check, compare, draw and infer ontologies; migrate labels.",
    no_args_is_help=True,
    rich_markup_mode=None,
)

_MOST_ROWS = 40
_MOST_CHANGES = 500
_MOST_NAMES = 50
_MOST_CHOICES = 8
_MOST_LEFT = 20
_ALL = "; --json lists all"

File = Annotated[
    Path, typer.Argument(metavar="FILE", help="An ontology: .yaml, .json or .tsv.", show_default=False, readable=False)
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")]


@app.command()
def check(file: File, as_json: Json = False) -> None:
    """Check an ontology file and summarise it."""
    from leco.ontology.lint import remarks
    from leco.ontology.ontology import Ontology

    ontology = Ontology.load(file)
    changes = [ontology.changes(step.old.name, step.new.name) for step in ontology.steps]
    notes = remarks(ontology, changes)
    if as_json:
        versions = [{"name": v.name, "classes": len(v), "ignored": list(v.ignored)} for v in ontology.versions]
        summary = {"name": ontology.name, "fingerprint": ontology.fingerprint, "versions": versions, "remarks": notes}
        typer.echo(json.dumps(summary, ensure_ascii=False, indent=1))
        return
    typer.echo(f"{file}: ontology {ontology.name}, {len(ontology.versions)} versions, {ontology.fingerprint}\n")
    rows = [
        [version.name, f"{len(version):,}", _names(version.ignored), _summary(found) or "-"]
        for version, found in zip(ontology.versions, [[], *changes], strict=True)
    ]
    print_table(["version", "classes", "ignored", "since the previous version"], rows, right=(1,))
    for note in notes:
        typer.echo(f"note: {note}")
    typer.echo("ok")


@app.command()
def diff(
    file: File,
    old: Annotated[str | None, typer.Argument(help="The older version.", show_default="the last but one")] = None,
    new: Annotated[str | None, typer.Argument(help="The newer version.", show_default="the newest")] = None,
    kept: Annotated[bool, typer.Option("--kept", help="Also list unchanged classes.")] = False,
    as_json: Json = False,
) -> None:
    """List the changes of the classes between two versions."""
    from leco.ontology.ontology import Ontology

    ontology = Ontology.load(file)
    old = old or ontology.versions[-2].name
    new = new or ontology.newest.name
    with _naming(file):
        if ontology.position(old) >= ontology.position(new):
            raise LecoError(f"{old} does not come before {new}; give the older version first")
    found = ontology.changes(old, new)
    shown = [change for change in found if kept or change.kind != "kept"]
    if as_json:
        typer.echo(json.dumps([asdict(change) for change in shown], ensure_ascii=False, indent=1))
        return
    typer.echo(f"{ontology.name}: {old} ({len(ontology[old])} classes) to {new} ({len(ontology[new])} classes)")
    typer.echo(f"{_summary(found)}\n")
    if shown:
        rows = [[change.kind, _names(change.old), _names(change.new)] for change in shown]
        print_table(["change", old, new], rows, most=_MOST_CHANGES, hint=_ALL)


@app.command()
def draw(
    file: File,
    output: Annotated[Path, typer.Option("--output", "-o", help="File to write: .svg or .html.", show_default=False)],
    focus: Annotated[
        list[str] | None, typer.Option(help="Draw only this class and its relatives (may be repeated).")
    ] = None,
) -> None:
    """Draw the history of an ontology."""
    from leco.io import write_text
    from leco.ontology.draw import to_html, to_svg
    from leco.ontology.ontology import Ontology

    _check_suffix(output, ".svg", ".html")
    ontology = Ontology.load(file)
    with _naming(file):
        drawing = (to_html if output.suffix.lower() == ".html" else to_svg)(ontology, focus or ())
    write_text(output, drawing)
    typer.echo(f"wrote {output}")


@app.command()
def infer(
    old: Annotated[str, typer.Option(help="Column of the table, or folder of masks, in the old version.")],
    new: Annotated[str, typer.Option(help="Column of the table, or folder of masks, in the new version.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="Ontology to write: .yaml or .json.")],
    table: Annotated[
        Path | None,
        typer.Argument(metavar="TABLE", help="Samples labelled in both versions: .csv, .jsonl or .parquet."),
    ] = None,
    kind: Annotated[
        Literal["tree", "soft"],
        typer.Option(help="tree: the majority parent, as in the paper; soft: the measured shares."),
    ] = "tree",
    min_share: Annotated[float, typer.Option(help="With soft: drop smaller shares as noise.")] = 0.01,
    old_classes: Annotated[
        Path | None, typer.Option(help="Class list of the old masks: CSV with id,name, or JSON with labels.")
    ] = None,
    new_classes: Annotated[Path | None, typer.Option(help="Class list of the new masks.")] = None,
    ignore: Annotated[list[str] | None, typer.Option(help="A label to ignore (may be repeated).")] = None,
    versions: Annotated[tuple[str, str], typer.Option(help="Names of the two versions.")] = ("v1", "v2"),
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace the output, which may have been edited.")
    ] = False,
) -> None:
    """Infer origins of classes from samples labelled in both versions.

    Samples are images, or pixels of masks.
    """
    from leco.data.manifest.table import read_cells
    from leco.io import write_text
    from leco.ontology.files import to_yaml
    from leco.ontology.inference import CoLabels, parents
    from leco.ontology.inference import infer as infer_ontology

    _check_suffix(output, ".yaml", ".yml", ".json")
    if output.exists() and not overwrite:
        raise LecoError(
            f"{output}: exists, and may have been edited; choose another file, or replace it with --overwrite"
        )
    if table and (old_classes or new_classes):
        raise LecoError("--old-classes and --new-classes are for masks; a table has names already")
    if table and old == new:
        raise LecoError(f"--old and --new are the same column, {old!r}")
    if table:
        with _naming(table):
            colabels = CoLabels.count(((pair[0], pair[1]) for _, pair in read_cells(table, old, new)), ignore or ())
    else:
        colabels = _count_masks(Path(old), Path(new), old_classes, new_classes, ignore or [])
    with _naming(table or f"{old_classes or old}, {new_classes or new}"):
        ontology = infer_ontology(colabels, output.stem, versions, kind, min_share)
    found = parents(colabels)
    if output.suffix.lower() == ".json":
        ontology.save(output)
    else:
        write_text(output, to_yaml(ontology.to_dict(), {versions[1]: [_comment(parent) for parent in found]}))
    _print_inferred(colabels, found)
    typer.echo(f"wrote {output}; to see the changes: leco ontology diff {output}")


def _check_suffix(output: Path, *valid: str) -> None:
    if output.suffix.lower() not in valid:
        raise LecoError(f"{output}: unknown format {output.suffix!r}; valid: {', '.join(valid)}")


def _count_masks(
    old: Path, new: Path, old_classes: Path | None, new_classes: Path | None, ignore: list[str]
) -> "CoLabels":
    from leco.data.masks import MaskClasses, count_masks, pair_masks

    lists = [MaskClasses.load(path, ignore) if path else None for path in (old_classes, new_classes)]
    known = {name for listed in lists if listed for name in listed.names.values()}
    for label in ignore:
        if label not in known:
            raise LecoError(f"--ignore: {label!r} is not in a class list{nearest(label, sorted(known))}")
    pairs, alone = pair_masks(old, new)
    with progress_bar("reading masks") as tick:
        colabels = count_masks(pairs, lists[0], lists[1], tick=lambda done: tick(done, len(pairs)))
    typer.echo(f"{len(pairs):,} pairs of masks" + (f"; {len(alone):,} without a partner" if alone else ""))
    return colabels


@contextmanager
def _naming(source: object) -> Iterator[None]:
    """Add the name of the file to errors that lack it."""
    try:
        yield
    except LecoError as error:
        named = str(error).startswith(str(source))
        raise LecoError(str(error) if named else f"{source}: {error}") from None


def _comment(parent: "Parent") -> str:
    """Return a comment for the class in the file, if a person should look at it."""
    from leco.ontology.inference import MEANING

    if parent.status == "unseen":
        return f"{MEANING['unseen']}: fill in `from`"
    if parent.status != "decided":
        return f"{parent.share:.0%} of {parent.count:,}, seen in {parent.seen_in}; {MEANING[parent.status]}"
    return ""


def _print_inferred(colabels: "CoLabels", found: "list[Parent]") -> None:
    """Print the conflicts, the doubtful classes, and the old classes without children."""
    total = sum(p.count for p in found)
    conflicts = total - sum(p.agreeing for p in found)
    typer.echo(f"{total:,} labels in both versions; {conflicts / total:.2%} disagree with the majority parent")
    doubtful = [p for p in found if p.status != "decided" or p.conflict > 0]
    doubtful.sort(key=lambda p: (p.status == "decided", -p.conflict))
    if doubtful:
        rows = [
            [
                p.new,
                p.parent or "-",
                f"{p.conflict:.2%}",
                f"{p.count:,}",
                f"{p.seen_in:,}",
                f"{p.at_least:.0%}",
                p.status,
            ]
            for p in doubtful
        ]
        # "at least": the lower bound of the 95 % interval of the parent's share
        headings = ["class", "parent", "disagree", "count", "in", "at least", "status"]
        print_table(headings, rows, right=(2, 3, 4, 5), most=_MOST_ROWS)
    if childless := sorted(set(colabels.old) - {p.parent for p in found}):
        typer.echo(f"old classes that are not a majority parent: {_names(childless)}")


def _names(names: Sequence[str]) -> str:
    return ", ".join(and_more(names, _MOST_NAMES)) or "-"


def _summary(changes: "list[Change]") -> str:
    from leco.ontology.changes import KINDS

    counts = Counter(change.kind for change in changes)
    return ", ".join(f"{counts[kind]} {kind}" for kind in KINDS if counts[kind])


@app.command()
def migrate(
    table: Annotated[
        Path,
        typer.Argument(
            metavar="MANIFEST", help="A table of labels or masks: .csv, .jsonl or .parquet.", show_default=False
        ),
    ],
    ontology: Annotated[
        Path | None,
        typer.Option("--ontology", help="The ontology of its labels.", show_default="ontology.yaml beside it"),
    ] = None,
    to: Annotated[
        str | None, typer.Option("--to", help="The version to migrate labels to.", show_default="the newest")
    ] = None,
    root: Annotated[
        Path | None, typer.Option(help="Folder that paths are relative to.", show_default="that of the manifest")
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option(
            "-o", "--output", help="Write the manifest with the migrated labels; masks in a folder beside it."
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """Migrate labels to a newer version.

    Labels of kept, renamed and merged classes are migrated; those of split classes need an annotator.
    """
    from leco.ontology.ontology import Ontology

    if output is not None:
        check_target(output, table, root)
    history = Ontology.load(ontology or table.with_name("ontology.yaml"))
    target = history[to].name if to else history.newest.name
    rows = whole_table(table)
    if rows.target == "mask":
        summary = _migrate_masks(rows, history, target, root or table.parent, output)
    else:
        summary = _migrate_labels(rows, history, target, output)
    if as_json:
        typer.echo(json.dumps(summary, ensure_ascii=False, indent=1))
        return
    unit = "images" if rows.target == "mask" else "rows"
    _print_kinds(summary, unit)
    _print_questions(summary["questions"], unit)
    left = [f"not migrated: {item['image']}: {item['because']}" for item in summary.get("left", [])]
    for line in and_more(left, _MOST_LEFT):
        typer.echo(line)
    typer.echo(
        f"{summary[unit]:,} {unit} to {target}: {summary['without_annotator']:,} without an annotator, "
        f"{summary['with_annotator']:,} with one"
    )
    if output is not None:
        typer.echo(f"wrote {output}, with {summary['samples_added']:,} more rows")


def _migrate_labels(rows: "Table", history: "Ontology", target: str, output: Path | None) -> dict[str, Any]:
    from leco.data.manifest.table import write_table
    from leco.planning.migrate import WITH_HUMAN, WITHOUT_HUMAN
    from leco.planning.migrate import migrate as migrate_table

    found = migrate_table(rows, history, target)
    if output is not None:
        write_table(found.migrated(), output)
    alone, asked = (sum(found.counts.get(kind, 0) for kind in kinds) for kinds in (WITHOUT_HUMAN, WITH_HUMAN))
    return {
        "to": target,
        "rows": len(rows),
        "without_annotator": alone,
        "with_annotator": asked,
        "kinds": found.counts,
        "samples_added": len(found.added),
        "questions": _records(found.questions(), "rows"),
    }


def _migrate_masks(rows: "Table", history: "Ontology", target: str, root: Path, output: Path | None) -> dict[str, Any]:
    from leco.data.manifest.table import write_table
    from leco.planning.migrate import migrate_masks, write_masks

    found = migrate_masks(rows, history, target, root)
    if output is not None:
        write_table(write_masks(found, history, root, f"{output.stem}-masks"), output)
    return {
        "to": target,
        "rows": len(rows),
        "images": len(set(rows["image"])),
        "without_annotator": len(found.added),
        "with_annotator": len(found.left),
        "kinds": found.counts,
        "pixels": dict(found.pixels),
        "samples_added": len(found.added),
        "questions": _records(found.questions(), "images"),
        "left": [{"image": image, "because": because} for image, because in found.left.items()],
    }


def _records(questions: "Questions", unit: str) -> list[dict[str, Any]]:
    return [
        {"version": version, "class": name, unit: count, "choices": list(choices)}
        for (version, name), (count, choices) in questions.items()
    ]


def _print_kinds(summary: Mapping[str, Any], unit: str) -> None:
    from leco.planning.migrate import MEANING, WITH_HUMAN, WITHOUT_HUMAN

    who = dict.fromkeys(WITHOUT_HUMAN, "no annotator") | dict.fromkeys(WITH_HUMAN, "an annotator")
    pixels = summary.get("pixels")

    def counted(kind: str) -> list[str]:
        return [] if pixels is None else [f"{pixels[kind]:,}" if kind in pixels else ""]

    headings = ["change", unit, *(["pixels"] if pixels is not None else []), "needs", "meaning"]
    rows = [
        [kind, f"{count:,}", *counted(kind), who.get(kind, "-"), MEANING[kind]]
        for kind, count in summary["kinds"].items()
    ]
    print_table(headings, rows, right=(1, 2) if pixels is not None else (1,))


def _print_questions(questions: list[dict[str, Any]], unit: str) -> None:
    rows = [
        [
            f"{record['version']}: {record['class']}",
            f"{record[unit]:,}",
            str(len(record["choices"])),
            ", ".join(and_more(record["choices"], _MOST_CHOICES)),
        ]
        for record in questions
    ]
    if rows:
        print_table(["to annotate", unit, "choices", "classes"], rows, right=(1, 2), most=_MOST_ROWS, hint=_ALL)
