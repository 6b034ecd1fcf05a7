"""The command `leco`."""

import io
import sys
from typing import Annotated, NoReturn

import typer

from leco.cli import batch, data, ontology, runs
from leco.cli.bundles import bundle, export, upgrade
from leco.cli.check import check
from leco.cli.evaluate import evaluate
from leco.cli.grid import grid
from leco.cli.init import init
from leco.cli.paper import paper
from leco.cli.plan import plan
from leco.cli.predict import predict
from leco.cli.report import report
from leco.cli.run import run
from leco.cli.usage import UsageError, explain
from leco.errors import LecoError, printable

_LONGEST = 1_000  # characters of a message

app = typer.Typer(
    help="Label ontologies evolve: train the best model for the newest version on everything ever labelled.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
app.add_typer(ontology.app, name="ontology")
app.add_typer(data.app, name="data")
app.add_typer(runs.app, name="runs")
app.add_typer(batch.app, name="batch")
app.command()(init)
app.command()(check)
app.command()(run)
app.command()(grid)
app.command()(paper)
app.command()(plan)
app.command()(report)
app.command()(bundle)
app.command()(predict)
app.command()(evaluate)
app.command()(upgrade)
app.command()(export)


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
    from leco.cli.demo import demo as tell

    tell()


def main() -> None:
    """Run a verb. What a user can mend is one message and exit code 2, never a traceback."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # a class may be called something the terminal cannot show
    try:
        if status := app(prog_name="leco", standalone_mode=False):
            sys.exit(status)
    except UsageError as error:
        if type(error).__name__ == "NoArgsIsHelpError":
            error.show()
            sys.exit(error.exit_code)
        _fail(explain(error, typer.main.get_command(app), sys.argv[1:]))
    except LecoError as error:
        _fail(str(error))
    except typer.Abort:  # a question that nobody answered
        _fail("stopped: there was no answer")
    except BrokenPipeError:  # `leco … | head`
        sys.stderr.close()
        sys.exit(141)
    except OSError as error:
        _fail(f"{error.filename or 'output'}: {error.strerror}")
    except RuntimeError as error:  # what Python makes of links that lead in a circle
        if "Symlink loop" not in str(error):
            raise
        _fail(f"{error}; remove the link")
    except KeyboardInterrupt:
        sys.exit(130)


def _fail(problem: str) -> NoReturn:
    """Print a problem as one line, whatever characters a file or its name brought in."""
    line = printable(problem)
    typer.echo(f"error: {line if len(line) < _LONGEST else line[:_LONGEST] + ' …'}", err=True)
    sys.exit(2)
