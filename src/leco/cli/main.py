"""The command `leco`."""

import sys
from typing import Annotated

import typer

from leco.cli import ontology
from leco.errors import LecoError

app = typer.Typer(
    help="Label ontologies evolve: train the best model for the newest version on everything ever labelled.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
app.add_typer(ontology.app, name="ontology")


def _print_version(wanted: bool) -> None:
    if wanted:
        from leco import __version__

        typer.echo(f"leco {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Options of the command as a whole."""


@app.command()
def demo() -> None:
    """Walk through an evolving ontology on real handwritten digits: what a coarse label is still worth."""
    from leco.experiments.walkthrough import walkthrough

    walkthrough()


def main() -> None:
    """Run a verb. What a user can mend is one message and exit code 2, never a traceback."""
    try:
        app()
    except LecoError as error:
        typer.echo(f"error: {error}", err=True)
        sys.exit(2)
    except KeyboardInterrupt:
        sys.exit(130)
    except BrokenPipeError:  # `leco … | head`
        sys.stderr.close()
        sys.exit(141)
