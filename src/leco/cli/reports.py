"""`leco report`: the paper's tables and conclusions, from stored runs."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperGroup

from leco.cli.terminal import print_table
from leco.errors import LecoError, nearest

if TYPE_CHECKING:
    from leco.reports.listing import Line


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
    from leco.io import write_text
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


_MOST_ASKED = 20  # stages that are named before they are removed


class _ListsByDefault(TyperGroup):
    """`leco runs RUNS` means `leco runs list RUNS`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Put the verb in where it is left out."""
        if not args or (args[0] not in self.commands and args[0] != "--help"):
            args = ["list", *args]
        return super().parse_args(ctx, args)


app = typer.Typer(
    cls=_ListsByDefault,
    help="List what was trained, and clear up: leco runs [RUNS], leco runs prune [RUNS].",
    rich_markup_mode=None,
)
_Runs = Annotated[Path, typer.Argument(metavar="RUNS", help="Folder that keeps what was trained.")]
_Store = Annotated[
    str, typer.Argument(metavar="RUNS", help="Folder, or address such as s3://bucket/runs, of what was trained.")
]


@app.command("list")
def list_runs(
    runs: _Store = "runs",
    most: Annotated[int, typer.Option("--most", min=0, help="Stages to show; 0 shows all.")] = 50,
) -> None:
    """List stages: those that run or were stopped, then the newest. `leco runs RUNS` does the same."""
    from leco.experiments.remote import at_hand
    from leco.reports.listing import list_stages

    lines = list_stages(at_hand(runs))
    shown = lines[:most] if most else lines
    _print_lines(shown)
    if len(shown) < len(lines):
        typer.echo(f"and {len(lines) - len(shown):,} more; --most 0 shows all")
    typer.echo(_counts(lines))


@app.command()
def prune(
    runs: _Runs = Path("runs"),
    keep: Annotated[
        list[str] | None,
        typer.Option(
            "--keep", metavar="BENCHMARK|FILE", help="Also remove complete stages that none of these needs; repeatable."
        ),
    ] = None,
    settings: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Of what is kept, as of `leco run`.")
    ] = None,
    budget: Annotated[str | None, typer.Option(help="Of what is kept: small (if not given) or paper.")] = None,
    samples: Annotated[int | None, typer.Option("--size", help="Of what is kept: samples per period.")] = None,
    data: Annotated[Path, typer.Option("--data", help="Folder that holds the datasets.")] = Path("data"),
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
) -> None:
    """Remove what was left by trainings that stopped and that no process works on; it asks before it does.

    A stopped training goes on from its checkpoint, if it is not removed. With --keep, complete stages that none of the
    named experiments needs, with any method, strategy, annotation and seed, but with its present settings, go too.
    """
    from leco.experiments.store import Store
    from leco.reports.listing import list_stages

    lines = list_stages(runs)
    unwanted = [line for line in lines if line.status == "partial"]
    if keep:
        wanted = _needed(keep, runs, {"budget": budget, "size": samples}, settings or [], data)
        unwanted += [
            line
            for line in lines
            if line.status == "complete" and line.folder.name not in wanted and not line.folder.is_symlink()
        ]
    if not unwanted:
        typer.echo("there is nothing to remove")
        return
    _print_lines(unwanted[:_MOST_ASKED])
    if len(unwanted) > _MOST_ASKED:
        typer.echo(f"and {len(unwanted) - _MOST_ASKED:,} more")
    question = f"Remove {_counts(unwanted)}?"
    if not (yes or typer.confirm(question)):
        typer.echo("nothing was removed")
        return
    store = Store(runs)
    for line in unwanted:
        store.discard(line.folder)
    typer.echo(f"removed {_counts(unwanted)}")


def _print_lines(lines: "list[Line]") -> None:
    """One line for each stage, whatever the width: ten thousand are printed at once, and can be searched."""
    if not lines:
        return
    rows = [("stage", "status", "test, %", "age", "size", "what")]
    rows += [(x.folder.name, x.status, x.score, age(x.age), size(x.size), x.what) for x in lines]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    text = []
    for name, status, *numbers, what in rows:
        cells = [f"{number:>{width}}" for number, width in zip(numbers, widths[2:], strict=False)]
        text.append("  ".join([f"{name:{widths[0]}}", f"{status:{widths[1]}}", *cells, what]))
    typer.echo("\n".join(text))


def _needed(sources: list[str], runs: Path, changes: dict[str, Any], settings: list[str], data: Path) -> set[str]:
    from leco.cli.run import pairs
    from leco.experiments.unused import Trained, needed
    from leco.reports.stored import read_store

    stored = [
        Trained(r.benchmark, r.method, r.strategy if r.period else "finetune", r.annotation, r.head_start, r.seed)
        for r in read_store(runs).records
    ]
    found: set[str] = set()
    for source in sources:
        found |= needed(source, stored, changes, pairs(settings), data)
    return found


def _counts(lines: "list[Line]") -> str:
    kinds = ("running", "partial", "broken", "complete")
    counts = [
        f"{sum(x.status == kind for x in lines):,} {kind}" for kind in kinds if any(x.status == kind for x in lines)
    ]
    return f"{', '.join(counts) or 'no stages'}: {size(sum(line.size for line in lines))}"


def age(seconds: float) -> str:
    """How long ago, in its largest unit.

    >>> age(30), age(7200), age(200_000)
    ('30 s', '2 h', '2 d')
    """
    for unit, length in (("d", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= length:
            return f"{seconds / length:.0f} {unit}"
    return f"{max(0, seconds):.0f} s"


def size(count: int) -> str:
    """Bytes in a fitting unit.

    >>> size(900), size(153_976), size(11_401_212)
    ('0.9 kB', '154 kB', '11.4 MB')
    """
    power = min(4, max(1, (len(str(count)) - 1) // 3))
    value, unit = count / 1_000**power, ("kB", "MB", "GB", "TB")[power - 1]
    return f"{value:.0f} {unit}" if value >= 100 else f"{value:.1f} {unit}"


def paper(
    table: Annotated[
        str | None, typer.Argument(help="A table's name, or its number in the paper; none lists them.")
    ] = None,
    form: Annotated[
        str | None, typer.Option("--format", help="md, json or csv; a table for the terminal if not given.")
    ] = None,
) -> None:
    """Print the paper's results: a list of its tables, or one of them."""
    from leco.paper.formats import FORMATS

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
    from leco.paper import TABLES, cells, disagreements

    rows = [[t.name, str(t.number or "-"), str(len(cells(t.name))), t.caption] for t in TABLES.values()]
    print_table(["table", "number", "cells", "shows"], rows, right=(1, 2))
    found = disagreements()
    typer.echo(f"The paper disagrees with itself on {len(found)} results:")
    for disagreement in found:
        typer.echo(f"- {disagreement}")


def _print(name: str) -> None:
    from leco.paper.formats import remarks, title
    from leco.paper.layout import grids

    typer.echo(title(name))
    for benchmark, part in grids(name).items():
        typer.echo(f"\n{benchmark}")
        print_table(part.headings, part.rows, right=tuple(range(part.labels, len(part.headings))))
    for remark in remarks(name):
        typer.echo(remark)
