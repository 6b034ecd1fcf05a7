"""`leco data`: list, show, split, fetch, check."""

from pathlib import Path
from typing import Annotated

import typer

from leco.cli.tables import print_table
from leco.errors import LecoError

app = typer.Typer(help="Look at benchmarks and check your own data.", no_args_is_help=True, rich_markup_mode=None)

_TASKS = {"classification": "images", "features": "features", "segmentation": "masks"}

Name = Annotated[str, typer.Argument(help="A benchmark of `leco data list`.", show_default=False)]
Root = Annotated[Path, typer.Option("--data", help="Folder that holds the datasets.")]
Seed = Annotated[int, typer.Option(min=0, max=2**62, help="Which of the random splits.")]
Size = Annotated[int | None, typer.Option(min=1, help="Samples per period, if not the benchmark's own.")]


@app.command("list")
def list_benchmarks() -> None:
    """List the benchmarks, and what data they need."""
    from leco.data.benchmarks import NAMES

    rows = [[r.name, _TASKS[r.task], " -> ".join(map(str, r.classes)), f"{r.size:,}", r.needs] for r in NAMES.values()]
    print_table(["benchmark", "task", "classes", "per period", "needs"], rows, right=(3,))


@app.command()
def show(
    name: Name,
    data: Root = Path("data"),
    seed: Seed = 0,
    size: Size = None,
    split_file: Annotated[
        Path | None, typer.Option("--split", help="An index file of `leco data split`, in place of a seed.")
    ] = None,
    output: Annotated[Path, typer.Option("--output", "-o", help="Folder for the pictures.")] = Path(),
) -> None:
    """Show a benchmark: its periods, its classes, some samples and the long tail."""
    from leco.data.benchmarks import load
    from leco.data.pictures import class_counts, long_tail, samples_sheet

    if not output.is_dir():
        raise LecoError(f"{output}: there is no such folder")
    benchmark = load(name, data, size)
    split = benchmark.stored_split(split_file) if split_file else benchmark.split(seed)
    typer.echo(f"{benchmark.name}: {benchmark.recipe.task}, {len(benchmark.pool):,} samples in the pool, ", nl=False)
    typer.echo(f"{len(benchmark.test):,} for testing; seed {split.seed}, split {split.fingerprint}")
    rows = []
    counts_of_periods = class_counts(benchmark, split)
    for number, (period, counts) in enumerate(zip(split.periods, counts_of_periods, strict=True)):
        version = benchmark.ontology[period.version]
        absent = int((counts == 0).sum())
        spread = [f"{int(count):,}" for count in (counts.min(), counts.median(), counts.max())]
        sizes = f"{len(period.train):,} + {len(period.validation):,}"
        rows.append([f"TP{number}", version.name, str(len(version)), sizes, *spread, str(absent)])
    headings = ["period", "version", "classes", "train + val", "fewest", "median", "most", "absent"]
    print_table(headings, rows, right=(2, 3, 4, 5, 6, 7))
    unit = "pixels" if benchmark.recipe.task == "segmentation" else "samples"
    typer.echo(f"fewest, median, most: training {unit} of a class; absent: classes without any")
    pictures = {"samples": samples_sheet(benchmark, split), "classes": long_tail(benchmark, counts_of_periods)}
    for kind, picture in pictures.items():
        if picture is not None:
            picture.save(output / f"{benchmark.name}-{kind}.png")
            typer.echo(f"wrote {output / f'{benchmark.name}-{kind}.png'}")


@app.command()
def split(
    name: Name,
    output: Annotated[Path, typer.Option("--output", "-o", help="The index file to write (.json).")],
    data: Root = Path("data"),
    seed: Seed = 0,
    size: Size = None,
) -> None:
    """Write down which samples each period has, for others to use the very same."""
    from leco.data.benchmarks import load

    made = load(name, data, size).split(seed)
    made.save(output)
    typer.echo(f"wrote {output}: {len(made.periods)} periods, fingerprint {made.fingerprint}")


@app.command()
def fetch(name: Name, data: Root = Path("data")) -> None:
    """Download the data of a benchmark, where its owner allows that, and check them."""
    from leco.data.benchmarks import recipe

    found = recipe(name)
    if found.fetch is None:
        how = "nothing has to be" if found.needs == "nothing" else f"`leco data show {name}` says how to get it"
        raise LecoError(f"{found.name} cannot be fetched: it needs {found.needs}; {how}")
    typer.echo(f"{found.needs} is in {found.fetch(data)}, checked")


@app.command()
def check(
    manifest: Annotated[
        Path, typer.Argument(help="A manifest (.csv, .jsonl, .parquet), or a folder VERSION/CLASS/*.", readable=False)
    ],
    ontology: Annotated[Path, typer.Option(help="The ontology its labels are of.", readable=False)],
    skip_bad: Annotated[bool, typer.Option("--skip-bad", help="Leave bad rows out and count them.")] = False,
    decode: Annotated[bool, typer.Option(help="Decode every image: slower, but finds broken ones.")] = True,
    root: Annotated[Path | None, typer.Option(help="Folder that paths are relative to, if not the manifest's.")] = None,
) -> None:
    """Check a manifest of your own data: every problem at once."""
    from leco.cli.data_check import check_manifest

    check_manifest(manifest, ontology, skip_bad, decode, root)
