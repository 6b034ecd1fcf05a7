"""`leco report`, `leco runs` and `leco paper`: results of stored runs, and of the paper."""

import math
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_args

import typer
from typer.core import TyperGroup

from leco.cli.terminal import print_table
from leco.errors import LecoError, and_more, nearest, printable
from leco.paper.formats import FORMATS
from leco.settings import DEFAULT_BUDGET, Budget
from leco.text import age, plural, size

if TYPE_CHECKING:
    from leco.reports.analyses import Analysis
    from leco.reports.sections import Section
    from leco.reports.stored import Line

_WRITERS = {  # imported when they are used; and a pattern of what they write
    ".html": ("leco.reports.page", "to_html", rb"<title>leco report"),
    ".md": ("leco.reports.formats", "to_markdown", rb"\A# leco report\n\n[0-9,]+ stages? in "),
    ".tex": ("leco.reports.formats", "to_latex", rb"\A% Needs \\usepackage\{booktabs\}\.\n"),
    ".csv": ("leco.reports.formats", "to_csv", rb"\Asection,benchmark,data,"),
}
_MOST_PROBLEMS = 10
_MOST_TO_CONFIRM = 20
_Strict = Annotated[bool, typer.Option("--strict", help="Exit with 2 if some stages cannot be read.")]
_Address = Annotated[str, typer.Argument(metavar="RUNS", help="Folder, or address such as s3://bucket/runs.")]


class _FirstByDefault(TyperGroup):
    """`leco runs RUNS` means `leco runs list RUNS`, with the first verb of the group."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Insert the verb if it is left out."""
        if not args or (args[0] not in self.commands and args[0] != "--help"):
            args = [next(iter(self.commands)), *args]
        return super().parse_args(ctx, args)

    def list_commands(self, ctx: Any) -> list[str]:
        """The verbs in the order in which they were declared."""
        return list(self.commands)


report = typer.Typer(
    cls=_FirstByDefault,
    help="Report on stored runs: `leco report [RUNS]`.\n\nOr print one of its analyses: `leco report costs [RUNS]`.",
    rich_markup_mode=None,
)


@report.command("write")
def write_report(
    runs: _Address = "runs",
    output: Annotated[
        Path, typer.Option("-o", "--output", help=f"File to write; its suffix is one of {', '.join(_WRITERS)}.")
    ] = Path("report.html"),
    strict: _Strict = False,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace a file that is not a report of leco, too.")
    ] = False,
) -> None:
    """Write a report: tables, tested conclusions, figures.

    The tables are the paper's, with our results.
    """
    if output.suffix not in _WRITERS:
        raise LecoError(f"--output {output}: {output.suffix!r} is not a format{nearest(output.suffix, _WRITERS)}")
    module, writer, mark = _WRITERS[output.suffix]
    from leco.experiments.remote import at_hand
    from leco.io import check_replaceable, write_text
    from leco.reports.report import make_report
    from leco.reports.stored import read_store

    check_replaceable(output, mark, overwrite)
    made = make_report(read_store(at_hand(runs)))
    write_text(output, getattr(import_module(module), writer)(made))
    for problem in and_more(made.problems, _MOST_PROBLEMS):
        typer.echo(f"warning: left out: {problem}", err=True)
    for part in made.parts:
        verdicts = [finding.verdict for finding in part.findings]
        counts = ", ".join(f"{verdicts.count(v)} {v}" for v in ("confirmed", "contradicted", "undecided"))
        about = f"{plural(len(part.section.records), 'stage')}, {plural(len(part.section.seeds), 'seed')}"
        typer.echo(printable(f"{part.title}: {about}" + (f"; conclusions: {counts}" if verdicts else "")))
    plans = f" and {plural(len(made.plans), 'plan')}" if made.plans else ""
    typer.echo(f"{plural(made.stages, 'stage')}{plans}, written to {output}")
    if strict and made.problems:
        raise LecoError(f"{runs}: {plural(len(made.problems), 'problem')}, listed above")


@report.command("costs")
def print_costs(
    runs: _Address = "runs",
    relabel: Annotated[
        float, typer.Option(min=0, help="Cost of relabelling an old sample; labelling a new one costs 1.")
    ] = 1.0,
) -> None:
    """Print accuracy against annotation cost.

    Compares new samples, relabelled ones, mixtures and all-fine, for each size.
    """
    from leco.reports.analyses import costs, families

    if not math.isfinite(relabel):
        raise LecoError(f"--relabel {relabel}: must be a finite number, such as 0.5")
    _print_analyses([costs(family, relabel) for family in families(_sections(runs))], "two annotation strategies")


@report.command("gaps")
def print_gaps(runs: _Address = "runs") -> None:
    """Print how much of the gap to all-fine each method closes.

    The gap is that between ce and all-fine, for each size.
    """
    from leco.reports.analyses import families, gaps

    _print_analyses([gaps(family) for family in families(_sections(runs))], "`ce` with label-new and all-fine")


@report.command("classes")
def print_classes(runs: _Address = "runs") -> None:
    """Print the scores of single, rare and frequent classes."""
    from leco.reports.analyses import classes

    _print_analyses([made for section in _sections(runs) for made in classes(section)], "a stage with test scores")


def _sections(runs: str) -> "list[Section]":
    from leco.experiments.remote import at_hand
    from leco.reports.report import reported
    from leco.reports.sections import sections
    from leco.reports.stored import read_store

    return sections(reported(read_store(at_hand(runs))))


def _print_analyses(found: "list[Analysis | None]", needs: str) -> None:
    made = [analysis for analysis in found if analysis is not None]
    if not made:
        raise LecoError(f"nothing to compare: the newest period needs {needs}; train them with `leco grid`")
    for analysis in made:
        typer.echo(analysis.title)
        headings = [*analysis.labels, *analysis.columns]
        right = tuple(range(len(analysis.labels), len(headings)))
        print_table(headings, [list(row) for row in analysis.rows], right=right)
        typer.echo(f"{analysis.caption}\n")


app = typer.Typer(
    cls=_FirstByDefault,
    help="List stored runs (`leco runs [RUNS]`), or remove some.",
    rich_markup_mode=None,
)


@app.command("list")
def list_runs(
    runs: _Address = "runs",
    most: Annotated[int, typer.Option("--most", min=0, help="Number of stages to list; 0 lists all.")] = 50,
    strict: _Strict = False,
) -> None:
    """List stages; `leco runs RUNS` does the same.

    Those that are running or stopped come first, then the newest.
    """
    from leco.experiments.remote import at_hand
    from leco.reports.stored import list_stages

    lines = list_stages(at_hand(runs))
    _print_lines(lines, most or len(lines), "; --most 0 lists all")
    typer.echo(_counts(lines))
    broken = [line for line in lines if line.status == "broken"]
    if broken:
        problem = f"{runs}: {plural(len(broken), 'stage')} cannot be read, such as {broken[0].folder.name}"
        if strict:
            raise LecoError(problem)
        typer.echo(f"warning: {printable(problem)}", err=True)


@app.command()
def prune(
    runs: Annotated[Path, typer.Argument(metavar="RUNS", help="Folder of the runs.")] = Path("runs"),
    keep: Annotated[
        list[str] | None,
        typer.Option(
            "--keep",
            metavar="BENCHMARK|FILE",
            help="Remove complete stages, too, except for those that this experiment needs; repeatable.",
        ),
    ] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="A setting of the experiments to keep, as for `leco run`."),
    ] = None,
    budget: Annotated[
        str | None,
        typer.Option(
            help=f"Budget of the benchmarks to keep: {' or '.join(get_args(Budget))}.", show_default=DEFAULT_BUDGET
        ),
    ] = None,
    samples: Annotated[
        int | None,
        typer.Option(
            "--size", help="Samples per period of the benchmarks to keep.", show_default="the benchmark's own size"
        ),
    ] = None,
    data: Annotated[Path, typer.Option("--data", help="Folder of the datasets.")] = Path("data"),
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask for confirmation.")] = False,
) -> None:
    """Remove stages that were stopped, after asking.

    Stages that a process is training are kept.

    A stopped stage would continue from its checkpoint. With --keep, complete stages are removed as well, except for
    those that a named experiment needs with its present settings and any method, strategy, annotation and seed.
    """
    from leco.experiments.store import Store
    from leco.reports.stored import list_stages

    lines = list_stages(runs)
    unwanted = [line for line in lines if line.status == "partial"]
    if keep:
        wanted = _needed(keep, runs, {"budget": budget, "size": samples}, settings or [], data)
        complete = [line for line in lines if line.status == "complete" and not line.folder.is_symlink()]
        unwanted += [line for line in complete if line.folder.name not in wanted]
    if not unwanted:
        typer.echo("nothing to remove")
        return
    _print_lines(unwanted, _MOST_TO_CONFIRM)
    if not (yes or typer.confirm(f"Remove {_counts(unwanted)}?")):
        typer.echo("nothing was removed")
        return
    store = Store(runs)
    for line in unwanted:
        store.discard(line.folder)
    typer.echo(f"removed {_counts(unwanted)}")


def _print_lines(lines: "list[Line]", most: int, hint: str = "") -> None:
    """Print one line per stage, however long, so that ten thousand are printed at once and can be searched."""
    if not lines:
        return
    rows = [("stage", "status", "test, %", "age", "size", "description")]
    rows += [(printable(x.folder.name), x.status, x.score, age(x.age), size(x.size), x.description) for x in lines]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    text = []
    for name, status, *numbers, description in rows:
        cells = [f"{number:>{width}}" for number, width in zip(numbers, widths[2:], strict=False)]
        text.append("  ".join([f"{name:{widths[0]}}", f"{status:{widths[1]}}", *cells, description]))
    typer.echo("\n".join(and_more(text, 1 + most)) + hint * (len(lines) > most))


def _needed(sources: list[str], runs: Path, changes: dict[str, Any], settings: list[str], data: Path) -> set[str]:
    """Fingerprints of the stages that some experiments need."""
    from leco.cli.run import pairs
    from leco.experiments.store import Store
    from leco.experiments.unused import Trained, needed
    from leco.reports.stored import read_store

    stored = []
    for record in read_store(runs).records:
        key = record.key
        strategy = key.strategy if key.period else "finetune"
        stored.append(Trained(record.benchmark, key.method, strategy, key.annotation, record.head_start, record.seed))
    found: set[str] = set()
    for source in sources:
        found |= needed(source, stored, changes, pairs(settings), root=data, memory=Store(runs).files)
    return found


def _counts(lines: "list[Line]") -> str:
    from collections import Counter

    from leco.reports.stored import STATUSES

    found = Counter(line.status for line in lines)
    counts = ", ".join(f"{found[status]:,} {status}" for status in STATUSES if found[status])
    return f"{counts or 'no stages'}: {size(sum(line.size for line in lines))}"


def paper(
    table: Annotated[
        str | None,
        typer.Argument(
            metavar="TABLE", help="Name of a table, or its number in the paper.", show_default="a list of the tables"
        ),
    ] = None,
    form: Annotated[
        str | None,
        typer.Option("--format", help=f"{', '.join(FORMATS)}.", show_default="a table for the terminal"),
    ] = None,
) -> None:
    """Print a table of the paper's results, or a list of the tables."""
    if form is not None and form not in FORMATS:
        raise LecoError(f"--format: {form!r} is not a format{nearest(form, FORMATS)}")
    if table is None and form is not None:
        raise LecoError("--format: needs a table; `leco paper` lists them")
    if table is None:
        _list_tables()
    elif form is None:
        _print(table)
    else:
        typer.echo(FORMATS[form](table))


def _list_tables() -> None:
    from leco.paper import TABLES, cells, disagreements

    rows = [[t.name, str(t.number or "-"), str(len(cells(t.name))), t.caption] for t in TABLES.values()]
    print_table(["table", "number", "cells", "shows"], rows, right=(1, 2))
    found = disagreements()
    typer.echo(f"The paper disagrees with itself on {len(found)} results:")
    for disagreement in found:
        typer.echo(f"- {disagreement}")


def _print(name: str) -> None:
    from leco.paper.formats import as_text, remarks, title
    from leco.paper.layout import narrow

    typer.echo(title(name))
    for benchmark, grid in narrow(name).items():
        typer.echo(f"\n{benchmark}")
        headings, *rows = ([text.replace(" ± ", "±") for text in row] for row in as_text(grid))
        print_table(headings, rows, right=tuple(range(len(grid.labels), len(headings))))
    for remark in remarks(name):
        typer.echo(remark)
