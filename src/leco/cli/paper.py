"""`leco paper`: the numbers of the paper."""

from typing import Annotated

import typer

from leco.cli.tables import print_table
from leco.errors import LecoError, nearest


def paper(
    table: Annotated[
        str | None, typer.Argument(help="A table's name, or its number in the paper; none lists them.")
    ] = None,
    form: Annotated[
        str | None, typer.Option("--format", help="md, json or csv; a table for the terminal if not given.")
    ] = None,
) -> None:
    """Print the paper's results: a list of its tables, or one of them."""
    from leco.experiments.paper.formats import FORMATS

    if form is not None and form not in FORMATS:
        raise LecoError(f"--format {form}: there is no such format{nearest(form, FORMATS)}")
    if table is None and form is not None:
        raise LecoError("--format: say which table; `leco paper` lists them")
    if table is None:
        _list_tables()
    elif form is None:
        _print(table)
    else:
        typer.echo(FORMATS[form](table))


def _list_tables() -> None:
    from leco.experiments.paper import TABLES, cells, disagreements

    rows = [[t.name, str(t.number or "-"), str(len(cells(t.name))), t.caption] for t in TABLES.values()]
    print_table(["table", "number", "cells", "shows"], rows, right=(1, 2))
    found = disagreements()
    typer.echo(f"The paper disagrees with itself on {len(found)} results:")
    for disagreement in found:
        typer.echo(f"- {disagreement}")


def _print(name: str) -> None:
    from leco.experiments.paper.formats import remarks, title
    from leco.experiments.paper.layout import grids

    typer.echo(title(name))
    for benchmark, part in grids(name).items():
        typer.echo(f"\n{benchmark}")
        print_table(part.headings, part.rows, right=tuple(range(part.labels, len(part.headings))))
    for remark in remarks(name):
        typer.echo(remark)
