"""The command `leco`."""

import errno
import io
import os
import re
import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Annotated, Any, NoReturn, TextIO, cast

import typer

from leco.cli import batch, data, ontology
from leco.cli import reports as runs
from leco.cli.bundle import bundle, export, upgrade
from leco.cli.check import check
from leco.cli.evaluate import evaluate
from leco.cli.grid import grid
from leco.cli.init import init
from leco.cli.models import models
from leco.cli.plan import plan
from leco.cli.predict import predict
from leco.cli.reports import paper, report
from leco.cli.reproduce import reproduce
from leco.cli.run import run
from leco.errors import LecoError, nearest, printable
from leco.registry import import_modules

_LONGEST = 1_000  # characters of a message
BUSY = 0.7  # load average over a minute of a machine that other processes use

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
app.command()(reproduce)
app.command()(paper)
app.command()(plan)
app.add_typer(report, name="report")
app.command()(bundle)
app.command()(predict)
app.command()(evaluate)
app.command()(upgrade)
app.command()(export)
app.command()(models)


def _print_version(wanted: bool) -> None:
    if wanted:
        from leco import __version__

        typer.echo(f"leco {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    context: typer.Context,
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")
    ] = False,
    modules: Annotated[
        list[str] | None,
        typer.Option("--import", metavar="MODULE", help="Import a module that registers components of your own."),
    ] = None,
) -> None:
    """Options of the command as a whole."""
    import_modules(modules or [])
    _list_registered(context.command)


def _list_registered(command: Any) -> None:
    """Put the names of what is registered, by leco or by a user's module, into the help of the subcommands."""
    from leco.methods.method import registered
    from leco.training.loggers import LOGGERS

    names = {"coarse": registered("coarse"), "pseudo": registered("pseudo"), "loggers": tuple(LOGGERS)}
    for parameter in command.commands["run"].params:
        for kind, known in names.items():
            parameter.help = (parameter.help or "").replace(f"{{{kind}}}", ", ".join(known))


@app.command()
def demo() -> None:
    """Show the value of old labels on handwritten digits."""
    from leco.cli.demo import demo as run_demo

    run_demo()


def wait_passively_if_busy() -> None:
    """Keep torch's threads from waiting actively for each other on a machine that other processes use.

    Beside busy processes a step takes several times as long otherwise, but an idle machine would lose 12 to 25 %
    (docs/explanation/performance.md). Must be called before torch is imported. A variable that is set wins.
    """
    if hasattr(os, "getloadavg") and os.getloadavg()[0] >= BUSY:
        os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")


def main() -> None:
    """Run a command. Errors that the user can fix are one message and exit code 2, never a traceback."""
    wait_passively_if_busy()
    _reopen_closed_streams()
    with _ended_by(signal.SIGTERM, signal.SIGHUP):
        _run()


@contextmanager
def _ended_by(*numbers: signal.Signals) -> Iterator[None]:
    """Let signals end the command as Ctrl-C does, so that temporary files are removed; nohup ignores some of them."""
    found = [number for number in numbers if signal.getsignal(number) == signal.SIG_DFL]
    for number in found:
        signal.signal(number, lambda received, _: sys.exit(128 + received))
    try:
        yield
    finally:
        for number in found:
            signal.signal(number, signal.SIG_DFL)


def _run() -> None:
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # class names may contain characters the terminal cannot show
    try:
        status = app(prog_name="leco", standalone_mode=False)
        sys.stdout.flush()  # at the end of the process it would be too late for a message
        _leave_other_processes()
        if status:
            sys.exit(status)
    except SystemExit as end:
        if isinstance(end.__context__, BrokenPipeError):  # typer takes it for an error of the command
            _end_broken_pipe()
        raise
    except UsageError as error:
        if type(error).__name__ == "NoArgsIsHelpError":
            error.show()
            sys.exit(error.exit_code)
        _fail(explain(error, typer.main.get_command(app), sys.argv[1:]))
    except LecoError as error:
        _fail(str(error))
    except typer.Abort:  # a question without an answer
        _fail("stopped: no answer was given")
    except BrokenPipeError:
        _end_broken_pipe()
    except OSError as error:
        _fail(f"{error.filename or 'output'}: {error.strerror}")
    except RuntimeError as error:
        if "Symlink loop" in str(error):  # Python's own
            _fail(f"{error}; remove the link")
        if os.environ.get("WORLD_SIZE", "1") != "1" and re.search("closed by peer|reset by peer", str(error)):
            _fail("another process of torchrun has ended; if it failed, its own message says why")
        raise
    except KeyboardInterrupt:
        sys.exit(130)


class _Closed(io.TextIOBase):
    """Standard output that was closed by the caller: an answer that nobody gets is an error."""

    encoding = "utf-8"

    def write(self, text: str) -> int:
        raise OSError(errno.EBADF, "is closed; redirect it to a file or to /dev/null", "standard output")


def _reopen_closed_streams() -> None:
    """Keep files that are opened later from becoming the standard streams that `>&-` closed."""
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # takes the lowest free number, which is this one
    if sys.stdout is None:
        sys.stdout = cast("TextIO", _Closed())
    if sys.stderr is None:
        sys.stderr = Path(os.devnull).open("w")  # noqa: SIM115 (for as long as the process lasts)


def _end_broken_pipe() -> NoReturn:
    """End as if by SIGPIPE: `leco … | head`. Nothing more is written, not even when Python closes its streams."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError, AttributeError):
            os.dup2(nowhere, stream.fileno())
    sys.exit(128 + signal.SIGPIPE)


def _fail(problem: str) -> NoReturn:
    """Print a problem on one line, without control characters, and exit."""
    line = printable(problem)
    typer.echo(f"error: {line if len(line) < _LONGEST else line[:_LONGEST] + ' …'}", err=True)
    sys.exit(2)


def _leave_other_processes() -> None:
    """Close the connection to the other processes of `torchrun`, whose threads may abort this one at its end.

    Not after an error: an operation that waits for another process would not end.
    """
    distributed: Any = sys.modules.get("torch.distributed")
    if distributed is not None and distributed.is_available() and distributed.is_initialized():
        distributed.destroy_process_group()


UsageError: Any = typer.BadParameter.__base__  # typer vendors click, or uses the installed one


def explain(error: Any, root: Any, words: Sequence[str]) -> str:
    """Name the wrong command, option or value, and the closest right one; `root` is the top-level command."""
    path, command = ["leco"], root
    for word in words:
        if word not in getattr(command, "commands", {}):
            break
        path, command = [*path, word], command.commands[word]
    place = " ".join(path)
    return f"{place}: {_problem(error, command, words[len(path) - 1 :])} ({place} --help)"


def _problem(error: Any, command: Any, words: Sequence[str]) -> str:
    kind, param = type(error).__name__, getattr(error, "param", None)
    if kind == "NoSuchOption":
        known = [name for each in command.params for name in (*each.opts, *each.secondary_opts) if name[:2] == "--"]
        return f"unknown option {error.option_name}{nearest(error.option_name, known)}"
    if kind == "BadOptionUsage":
        return f"{error.option_name} needs a value"
    if commands := getattr(command, "commands", {}):
        wrong = next((word for word in words if not word.startswith("-")), "")
        return f"unknown command {wrong!r}{nearest(wrong, commands)}"
    if param is None:
        return _sentence(error.format_message())
    name = param.opts[0] if param.param_type_name == "option" else param.metavar or param.name
    return f"{name} is missing" if kind == "MissingParameter" else f"{_given(param, name, words)}: {_sentence(error)}"


def _given(param: Any, name: str, words: Sequence[str]) -> str:
    """An option with its value, as typed."""
    for place, word in enumerate(words):
        option, equals, _ = word.partition("=")
        if option in param.opts:
            return word if equals else " ".join(words[place : place + 2])
    return name


def _sentence(message: object) -> str:
    """Typer's message, without its capital and full stop."""
    text = str(message).rstrip(".")
    return text[:1].lower() + text[1:]
