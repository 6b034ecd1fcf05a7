"""`leco report`: the paper's tables and conclusions, from stored runs."""

from pathlib import Path
from typing import Annotated

import typer

from leco.errors import LecoError, nearest


def report(
    runs: Annotated[
        str, typer.Argument(metavar="RUNS", help="Folder, or address such as s3://bucket/runs, of what was trained.")
    ] = "runs",
    output: Annotated[
        Path, typer.Option("-o", "--output", help="A file that ends in .html, .md, .tex or .csv.")
    ] = Path("report.html"),
) -> None:
    """Write the paper's tables with ours beside the paper's, its conclusions tested, and figures, as one file."""
    formats = (".html", ".md", ".tex", ".csv")
    if output.suffix not in formats:
        raise LecoError(f"{output}: the ending says which format is meant{nearest(output.suffix, formats)}")

    from leco.experiments.remote import at_hand
    from leco.ontology.files import write_text
    from leco.reports.formats import to_csv, to_latex, to_markdown
    from leco.reports.report import make_report
    from leco.reports.stored import read_store

    made = make_report(read_store(at_hand(runs)))
    if output.suffix == ".html":
        from leco.reports.page import to_html

        text = to_html(made)
    else:
        text = {".md": to_markdown, ".tex": to_latex, ".csv": to_csv}[output.suffix](made)
    write_text(output, text)
    for problem in made.problems[:10]:
        typer.echo(f"left out: {problem}", err=True)
    if len(made.problems) > 10:
        typer.echo(f"left out: {len(made.problems) - 10:,} more", err=True)
    for part in made.parts:
        verdicts = [finding.verdict for finding in part.findings]
        counts = ", ".join(f"{verdicts.count(v)} {v}" for v in ("confirmed", "contradicted", "undecided"))
        seeds = len(part.section.seeds)
        about = f"{len(part.section.records):,} stages, {seeds} seed{'s' * (seeds != 1)}"
        typer.echo(f"{part.title}: {about}" + (f"; conclusions: {counts}" if verdicts else ""))
    plans = f" and {len(made.plans):,} plan{'s' * (len(made.plans) != 1)}" if made.plans else ""
    typer.echo(f"{made.stages:,} stages{plans}, written to {output}")
