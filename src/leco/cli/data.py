"""`leco data`: list, show, split, fetch, check."""

from pathlib import Path
from typing import Annotated

import typer

from leco.cli.tables import print_table
from leco.errors import LecoError

app = typer.Typer(help="Look at benchmarks and check your own data.", no_args_is_help=True, rich_markup_mode=None)

Name = Annotated[str, typer.Argument(help="A benchmark of `leco data list`.", show_default=False)]
Root = Annotated[Path, typer.Option("--data", help="Folder that holds the datasets.")]
Seed = Annotated[int, typer.Option(min=0, help="Which of the random splits.")]
Size = Annotated[int | None, typer.Option(min=1, help="Samples per period, if not the benchmark's own.")]


@app.command("list")
def list_benchmarks() -> None:
    """List the benchmarks, and what data they need."""
    from leco.data.benchmarks import NAMES

    rows = [[r.name, r.task, " -> ".join(map(str, r.classes)), f"{r.size:,}", r.needs] for r in NAMES.values()]
    print_table(["benchmark", "task", "classes", "per period", "needs"], rows, right=(3,))


@app.command()
def show(
    name: Name,
    data: Root = Path("data"),
    seed: Seed = 0,
    size: Size = None,
    output: Annotated[Path, typer.Option("--output", "-o", help="Folder for the pictures.")] = Path(),
) -> None:
    """Show a benchmark: its periods, its classes, some samples and the long tail."""
    from leco.data.benchmarks import load
    from leco.data.pictures import class_counts, long_tail, samples_sheet

    if not output.is_dir():
        raise LecoError(f"{output}: there is no such folder")
    benchmark = load(name, data, size)
    split = benchmark.split(seed)
    typer.echo(f"{benchmark.name}: {benchmark.recipe.task}, {len(benchmark.pool):,} samples in the pool, ", nl=False)
    typer.echo(f"{len(benchmark.test):,} for testing; seed {seed}, split {split.fingerprint}")
    rows = []
    for number, period in enumerate(split.periods):
        version = benchmark.ontology[period.version]
        counts = class_counts(benchmark.pool, period.train, version.name, len(version))
        absent = int((counts == 0).sum())
        spread = [f"{int(count):,}" for count in (counts.min(), counts.median(), counts.max())]
        sizes = f"{len(period.train):,} + {len(period.validation):,}"
        rows.append([f"TP{number}", version.name, str(len(version)), sizes, *spread, str(absent)])
    headings = ["period", "version", "classes", "train + val", "fewest", "median", "most", "absent"]
    print_table(headings, rows, right=(2, 3, 4, 5, 6, 7))
    unit = "pixels" if benchmark.recipe.task == "segmentation" else "samples"
    typer.echo(f"fewest, median, most: training {unit} of a class; absent: classes without any")
    pictures = {"samples": samples_sheet(benchmark, split), "classes": long_tail(benchmark, split)}
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
    from leco.data.benchmarks import cifar, recipe

    found = recipe(name)
    if found.build is not cifar.build:
        raise LecoError(
            f"{found.name} cannot be fetched: it needs {found.needs}; `leco data show {name}` says how to get it"
        )
    data.mkdir(parents=True, exist_ok=True)
    typer.echo(f"CIFAR-100 is in {cifar.fetch(data)}")


@app.command()
def check(
    manifest: Annotated[Path, typer.Argument(help="A manifest: .csv, .jsonl or .parquet.", readable=False)],
    ontology: Annotated[Path, typer.Option(help="The ontology its labels are of.", readable=False)],
    skip_bad: Annotated[bool, typer.Option("--skip-bad", help="Leave bad rows out and count them.")] = False,
    decode: Annotated[bool, typer.Option(help="Decode every image: slower, but finds broken ones.")] = True,
) -> None:
    """Check a manifest of your own data: every problem at once."""
    from leco.cli.data_check import check_manifest

    check_manifest(manifest, ontology, skip_bad, decode)
