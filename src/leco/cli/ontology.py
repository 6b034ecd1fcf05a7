"""`leco ontology`: check, diff, draw, infer, migrate."""

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from leco.cli.batch import check_target, whole_table
from leco.cli.terminal import print_table
from leco.errors import LecoError, nearest

if TYPE_CHECKING:
    from leco.ontology.changes import Change
    from leco.ontology.inference import CoLabels, Parent
    from leco.planning.migrate import Questions


app = typer.Typer(
    help="Check, compare, draw and infer label ontologies, and carry labels over.",
    no_args_is_help=True,
    rich_markup_mode=None,
)


File = Annotated[
    Path, typer.Argument(metavar="FILE", help="An ontology: .yaml, .json or .tsv.", show_default=False, readable=False)
]
_MOST_ROWS = 40  # of doubtful classes
_MOST_CHANGES = 500
Json = Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")]


@app.command()
def check(file: File, as_json: Json = False) -> None:
    """Check an ontology file and say what is in it."""
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
        [version.name, f"{len(version):,}", _few(version.ignored) or "-", _summary(found) or "-"]
        for version, found in zip(ontology.versions, [[], *changes], strict=True)
    ]
    print_table(["version", "classes", "ignored", "since the version before"], rows, right=(1,))
    for note in notes:
        typer.echo(f"note: {note}")
    typer.echo("ok")


@app.command()
def diff(
    file: File,
    old: Annotated[str | None, typer.Argument(help="The older version.", show_default="the last but one")] = None,
    new: Annotated[str | None, typer.Argument(help="The newer version.", show_default="the newest")] = None,
    kept: Annotated[bool, typer.Option("--kept", help="List classes that did not change, too.")] = False,
    as_json: Json = False,
) -> None:
    """Show what happened to the classes between two versions."""
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
        rows = [[c.kind, _few(c.old) or "-", _few(c.new) or "-"] for c in shown[:_MOST_CHANGES]]
        print_table(["change", old, new], rows)
    if len(shown) > _MOST_CHANGES:
        typer.echo(f"… and {len(shown) - _MOST_CHANGES:,} more; --json lists all of them")


@app.command()
def draw(
    file: File,
    output: Annotated[Path, typer.Option("--output", "-o", help="Where to: .svg or .html.", show_default=False)],
    focus: Annotated[
        list[str] | None, typer.Option(help="Draw only this class and its relatives (may be repeated).")
    ] = None,
) -> None:
    """Draw the history of an ontology."""
    from leco.io import write_text
    from leco.ontology.draw import to_html, to_svg
    from leco.ontology.ontology import Ontology

    if output.suffix.lower() not in (".svg", ".html"):
        raise LecoError(f"{output}: the ending says what to draw; valid: .svg, .html")
    ontology = Ontology.load(file)
    with _naming(file):
        drawing = (to_html if output.suffix.lower() == ".html" else to_svg)(ontology, focus or ())
    write_text(output, drawing)
    typer.echo(f"wrote {output}")


@app.command()
def infer(
    old: Annotated[str, typer.Option(help="Folder of masks in the old version, or column of the table.")],
    new: Annotated[str, typer.Option(help="Folder of masks in the new version, or column of the table.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="The ontology to write: .yaml or .json.")],
    table: Annotated[
        Path | None, typer.Argument(metavar="CSV", help="A table of samples labelled in both versions.")
    ] = None,
    kind: Annotated[
        Literal["tree", "soft"],
        typer.Option(help="tree: the majority parent, as in the paper; soft: the measured shares."),
    ] = "tree",
    min_share: Annotated[float, typer.Option(help="With soft: leave out smaller shares, as noise.")] = 0.01,
    old_classes: Annotated[
        Path | None, typer.Option(help="Class list of the old masks: CSV with id,name, or JSON with labels.")
    ] = None,
    new_classes: Annotated[Path | None, typer.Option(help="Class list of the new masks.")] = None,
    ignore: Annotated[list[str] | None, typer.Option(help="A label that says nothing (may be repeated).")] = None,
    versions: Annotated[tuple[str, str], typer.Option(help="Names of the two versions.")] = ("v1", "v2"),
) -> None:
    """Infer how the new classes follow from the old, from samples or pixels labelled in both versions."""
    from leco.io import write_text
    from leco.ontology.files import to_yaml
    from leco.ontology.inference import CoLabels, parents, read_pairs
    from leco.ontology.inference import infer as infer_ontology

    if output.suffix.lower() not in (".yaml", ".yml", ".json"):
        raise LecoError(f"{output}: the ending says which format is meant; valid: .yaml, .json")
    if table and (old_classes or new_classes):
        raise LecoError("--old-classes and --new-classes name the values of masks; a table has names already")
    if table:
        with _naming(table):
            colabels = CoLabels.count(read_pairs(table, old, new), ignore or ())
    else:
        colabels = _count_masks(Path(old), Path(new), old_classes, new_classes, ignore or [])
    with _naming(table or f"{old_classes or old}, {new_classes or new}"):
        ontology = infer_ontology(colabels, output.stem, versions, kind, min_share)
    found = parents(colabels)
    if output.suffix.lower() == ".json":
        ontology.save(output)
    else:
        write_text(output, to_yaml(ontology.to_dict(), {versions[1]: [_comment(parent) for parent in found]}))
    _report(colabels, found)
    typer.echo(f"wrote {output}; see what it says with: leco ontology diff {output}")


def _count_masks(
    old: Path, new: Path, old_classes: Path | None, new_classes: Path | None, ignore: list[str]
) -> "CoLabels":
    from rich.console import Console
    from rich.progress import Progress

    from leco.ontology.masks import MaskClasses, count_masks, pair_masks

    lists = [MaskClasses.load(path, ignore) if path else None for path in (old_classes, new_classes)]
    known = {name for listed in lists if listed for name in listed.names.values()}
    for label in ignore:
        if label not in known:
            raise LecoError(f"--ignore {label}: no class list has it{nearest(label, sorted(known))}")
    pairs, alone = pair_masks(old, new)
    console = Console(stderr=True)
    with Progress(console=console, transient=True, disable=not console.is_terminal) as progress:
        task = progress.add_task("reading masks", total=len(pairs))
        colabels = count_masks(pairs, lists[0], lists[1], tick=lambda: progress.advance(task))
    typer.echo(f"{len(pairs):,} pairs of masks" + (f"; {len(alone):,} without a partner left out" if alone else ""))
    return colabels


@contextmanager
def _naming(source: object) -> Iterator[None]:
    """Say in which file something is wrong, where the error does not."""
    try:
        yield
    except LecoError as error:
        named = str(error).startswith(str(source))
        raise LecoError(str(error) if named else f"{source}: {error}") from None


def _comment(parent: "Parent") -> str:
    """What a person should look at, beside the class in the file."""
    from leco.ontology.inference import MEANING

    if parent.status == "unseen":
        return f"{MEANING['unseen']}: fill in `from`"
    if parent.status != "decided":
        return f"{parent.share:.0%} of {parent.count:,}, seen in {parent.seen_in}; {MEANING[parent.status]}"
    return ""


def _report(colabels: "CoLabels", found: "list[Parent]") -> None:
    """Print the conflicts, the doubtful classes, and the old classes that nothing came from."""
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
            for p in doubtful[:_MOST_ROWS]
        ]
        # "at least": the lower end of the 95 % interval of the parent's share
        print_table(["class", "parent", "disagree", "count", "in", "at least", "status"], rows, right=(2, 3, 4, 5))
    if len(doubtful) > _MOST_ROWS:
        typer.echo(f"… and {len(doubtful) - _MOST_ROWS} more")
    childless = sorted(set(colabels.old) - {p.parent for p in found})
    if childless:
        typer.echo(f"old classes that are the majority parent of none: {_few(tuple(childless))}")


def _few(names: tuple[str, ...]) -> str:
    return ", ".join(names[:50]) + (f", … ({len(names):,} in all)" if len(names) > 50 else "")


def _summary(changes: "list[Change]") -> str:
    from leco.ontology.changes import KINDS

    counts = Counter(change.kind for change in changes)
    return ", ".join(f"{counts[kind]} {kind}" for kind in KINDS if counts[kind])


_MOST_MIGRATED = 40
_MOST_LEFT = 20


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
        str | None, typer.Option("--to", help="The version to carry labels to.", show_default="the newest")
    ] = None,
    root: Annotated[Path | None, typer.Option(help="Folder that paths are relative to, if not the manifest's.")] = None,
    output: Annotated[
        Path | None,
        typer.Option("-o", "--output", help="Write the manifest with what needs nobody; masks in a folder beside it."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")] = False,
) -> None:
    """Say which labels a newer version needs an annotator for (splits) and which not (kept, renamed, merged)."""
    from leco.data.manifest.table import write_table
    from leco.ontology.ontology import Ontology
    from leco.planning.migrate import WITH_HUMAN, WITHOUT_HUMAN
    from leco.planning.migrate import migrate as carry_over

    if output is not None:
        check_target(output, table, root)
    history = Ontology.load(ontology or table.with_name("ontology.yaml"))
    target = history[to].name if to else history.newest.name
    rows = whole_table(table)
    if rows.target == "mask":
        told = _masks(rows, history, target, root or table.parent, output)
    else:
        found = carry_over(rows, history, target)
        alone, asked = (sum(found.counts.get(kind, 0) for kind in kinds) for kinds in (WITHOUT_HUMAN, WITH_HUMAN))
        if output is not None:
            write_table(found.migrated(), output)
        told = {"to": target, "rows": len(rows), "without_annotator": alone, "with_annotator": asked}
        told |= {"kinds": found.counts, "samples_added": len(found.added)}
        told |= {"questions": _listed(found.questions(), "rows")}
    if as_json:
        typer.echo(json.dumps(told, ensure_ascii=False, indent=1))
        return
    unit = "images" if rows.target == "mask" else "rows"
    _print_kinds(told, unit)
    _print_questions(told["questions"], unit)
    for left in told.get("left", [])[:_MOST_LEFT]:
        typer.echo(f"not carried over: {left['image']}: {left['because']}")
    if len(told.get("left", [])) > _MOST_LEFT:
        typer.echo(f"not carried over: {len(told['left']) - _MOST_LEFT:,} more; --json lists all of them")
    typer.echo(
        f"{told[unit]:,} {unit} to {target}: {told['without_annotator']:,} without an annotator, "
        f"{told['with_annotator']:,} with one"
    )
    if output is not None:
        typer.echo(f"wrote {output}, with {told['samples_added']:,} more rows")


def _masks(rows: Any, history: Any, target: str, root: Path, output: Path | None) -> dict[str, Any]:
    from leco.data.manifest.table import write_table
    from leco.planning.migrate import migrate_masks, write_masks

    found = migrate_masks(rows, history, target, root)
    if output is not None:
        write_table(write_masks(found, history, root, f"{output.stem}-masks"), output)
    alone = len(found.added)
    told = {"to": target, "rows": len(rows), "images": len(set(rows["image"])), "without_annotator": alone}
    told |= {"with_annotator": len(found.left), "kinds": found.counts, "pixels": dict(found.pixels)}
    told |= {"samples_added": alone, "questions": _listed(found.questions(), "images")}
    return told | {"left": [{"image": image, "because": because} for image, because in found.left.items()]}


def _listed(questions: "Questions", unit: str) -> list[dict[str, Any]]:
    return [
        {"version": version, "class": name, unit: count, "choices": list(choices)}
        for (version, name), (count, choices) in questions.items()
    ]


def _print_kinds(told: Mapping[str, Any], unit: str) -> None:
    from leco.planning.migrate import MEANING, WITH_HUMAN, WITHOUT_HUMAN

    who = dict.fromkeys(WITHOUT_HUMAN, "nobody") | dict.fromkeys(WITH_HUMAN, "an annotator")
    pixels = told.get("pixels")

    def counted(kind: str) -> list[str]:
        return [] if pixels is None else [f"{pixels[kind]:,}" if kind in pixels else ""]

    headings = ["change", unit, *(["pixels"] if pixels is not None else []), "needs", "meaning"]
    lines = [
        [kind, f"{count:,}", *counted(kind), who.get(kind, "-"), MEANING[kind]] for kind, count in told["kinds"].items()
    ]
    print_table(headings, lines, right=(1, 2) if pixels is not None else (1,))


def _print_questions(questions: list[dict[str, Any]], unit: str) -> None:
    if not questions:
        return
    shown = [
        [
            f"{row['version']}: {row['class']}",
            f"{row[unit]:,}",
            str(len(row["choices"])),
            ", ".join(row["choices"][:8]) + (", …" if len(row["choices"]) > 8 else ""),
        ]
        for row in questions[:_MOST_MIGRATED]
    ]
    print_table(["to be asked, of", unit, "choices", "which"], shown, right=(1, 2))
    if len(questions) > _MOST_MIGRATED:
        typer.echo(f"… and {len(questions) - _MOST_MIGRATED:,} more; --json lists all of them")
