"""`leco ontology migrate`: what of a manifest can be carried over to a newer version without an annotator."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from leco.cli.batch import check_target, whole_table
from leco.cli.tables import print_table

if TYPE_CHECKING:
    from leco.planning.migrate import Questions

_MOST_ROWS = 40
_MOST_LEFT = 20


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
    from leco.data.table import write_table
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
    from leco.data.table import write_table
    from leco.planning.migrate_masks import migrate_masks, write_masks

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
        for row in questions[:_MOST_ROWS]
    ]
    print_table(["to be asked, of", unit, "choices", "which"], shown, right=(1, 2))
    if len(questions) > _MOST_ROWS:
        typer.echo(f"… and {len(questions) - _MOST_ROWS:,} more; --json lists all of them")
