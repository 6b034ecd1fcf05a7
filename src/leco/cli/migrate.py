"""`leco ontology migrate`: what of a manifest can be carried over to a newer version without an annotator."""

import json
from pathlib import Path
from typing import Annotated

import typer

from leco.cli.tables import print_table

_MOST_ROWS = 40


def migrate(
    table: Annotated[
        Path,
        typer.Argument(metavar="MANIFEST", help="A table of labels: .csv, .jsonl or .parquet.", show_default=False),
    ],
    ontology: Annotated[Path, typer.Option("--ontology", help="The ontology of its labels.", show_default=False)],
    to: Annotated[
        str | None, typer.Option("--to", help="The version to carry labels to.", show_default="the newest")
    ] = None,
    output: Annotated[
        Path | None, typer.Option("-o", "--output", help="Write the manifest with the labels that need nobody.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")] = False,
) -> None:
    """Say which labels a newer version needs an annotator for (splits) and which not (kept, renamed, merged)."""
    from leco.data.problems import Problems
    from leco.data.table import read_table, write_table
    from leco.ontology.ontology import Ontology
    from leco.planning.migrate import MEANING, WITH_HUMAN, WITHOUT_HUMAN
    from leco.planning.migrate import migrate as carry_over

    history = Ontology.load(ontology)
    target = history[to].name if to else history.newest.name
    rows, broken = read_table(table)
    problems = Problems(table, rows=len(rows) + len(broken))
    problems.extend(broken)
    problems.raise_any()
    found = carry_over(rows, history, target)
    counts, questions = found.counts, found.questions()
    alone = sum(counts.get(kind, 0) for kind in WITHOUT_HUMAN)
    asked = sum(counts.get(kind, 0) for kind in WITH_HUMAN)
    if output is not None:
        write_table(found.migrated(), output)
    if as_json:
        listed = [
            {"version": version, "class": name, "rows": count, "choices": list(choices)}
            for (version, name), (count, choices) in questions.items()
        ]
        summary = {"to": target, "rows": len(rows), "without_annotator": alone, "with_annotator": asked}
        summary |= {"kinds": counts, "samples_added": len(found.added), "questions": listed}
        typer.echo(json.dumps(summary, ensure_ascii=False, indent=1))
        return
    who = dict.fromkeys(WITHOUT_HUMAN, "nobody") | dict.fromkeys(WITH_HUMAN, "an annotator")
    print_table(
        ["change", "rows", "needs", "meaning"],
        [[kind, f"{count:,}", who.get(kind, "-"), MEANING[kind]] for kind, count in counts.items()],
        right=(1,),
    )
    if questions:
        rows_shown = [
            [
                f"{version}: {name}",
                f"{count:,}",
                str(len(choices)),
                ", ".join(choices[:8]) + (", …" if len(choices) > 8 else ""),
            ]
            for (version, name), (count, choices) in list(questions.items())[:_MOST_ROWS]
        ]
        print_table(["to be asked, of", "rows", "choices", "which"], rows_shown, right=(1, 2))
        if len(questions) > _MOST_ROWS:
            typer.echo(f"… and {len(questions) - _MOST_ROWS:,} more; --json lists all of them")
    typer.echo(f"{len(rows):,} rows to {target}: {alone:,} without an annotator, {asked:,} with one")
    if output is not None:
        typer.echo(f"wrote {output}, with {len(found.added):,} more rows")
