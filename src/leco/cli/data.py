"""`leco data`: list, show, split, fetch, check."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from leco.cli.terminal import print_table
from leco.errors import LecoError
from leco.progress import progress_bar

if TYPE_CHECKING:
    from leco.data.manifest.decode import MaskCounts
    from leco.data.manifest.manifest import Manifest
    from leco.ontology.ontology import Ontology


app = typer.Typer(help="Show benchmarks and check your own data.", no_args_is_help=True, rich_markup_mode=None)

_MOST_CLASSES = 40

Name = Annotated[str, typer.Argument(help="A benchmark; `leco data list` lists them.", show_default=False)]
Root = Annotated[Path, typer.Option("--data", help="Folder of the datasets.")]
Seed = Annotated[int, typer.Option(min=0, max=2**62, help="Seed of the random split.")]
Size = Annotated[int | None, typer.Option(min=1, help="Samples per period.", show_default="that of the benchmark")]


@app.command("list")
def list_benchmarks() -> None:
    """List the benchmarks and the data they need."""
    from leco.data.benchmarks import BENCHMARKS
    from leco.modalities import MODALITIES

    rows = []
    for recipe in BENCHMARKS.values():
        kind = MODALITIES[recipe.modality].data_kind or recipe.modality
        rows.append([recipe.name, kind, " -> ".join(map(str, recipe.classes)), f"{recipe.size:,}", recipe.needs])
    print_table(["benchmark", "data", "classes", "per period", "needs"], rows, right=(3,))


@app.command()
def show(
    name: Name,
    data: Root = Path("data"),
    seed: Seed = 0,
    size: Size = None,
    split_file: Annotated[
        Path | None, typer.Option("--split", help="An index file of `leco data split`, instead of a seed.")
    ] = None,
    output: Annotated[Path, typer.Option("--output", "-o", help="Folder for the pictures.")] = Path(),
) -> None:
    """Show periods, classes, samples and class frequencies."""
    from leco.data.benchmarks import load
    from leco.data.pictures import class_counts, long_tail, samples_sheet
    from leco.modalities import MODALITIES

    if not output.is_dir():
        raise LecoError(f"{output}: no such folder")
    benchmark = load(name, data, size)
    split = benchmark.stored_split(split_file) if split_file else benchmark.split(seed)
    typer.echo(
        f"{benchmark.name}: {benchmark.recipe.modality}, {len(benchmark.pool):,} samples in the pool, ", nl=False
    )
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
    unit = MODALITIES[benchmark.recipe.modality].unit
    typer.echo(f"fewest, median, most: training {unit} per class; absent: classes without any")
    pictures = {"samples": samples_sheet(benchmark, split), "classes": long_tail(benchmark, counts_of_periods)}
    for kind, picture in pictures.items():
        if picture is not None:
            picture.save(output / f"{benchmark.name}-{kind}.png")
            typer.echo(f"wrote {output / f'{benchmark.name}-{kind}.png'}")


@app.command()
def split(
    name: Name,
    output: Annotated[Path, typer.Option("--output", "-o", help="Index file to write (.json).")],
    data: Root = Path("data"),
    seed: Seed = 0,
    size: Size = None,
) -> None:
    """Write which samples belong to each period, to reproduce a split."""
    from leco.data.benchmarks import load

    made = load(name, data, size).split(seed)
    made.save(output)
    typer.echo(f"wrote {output}: {len(made.periods)} periods, fingerprint {made.fingerprint}")


@app.command()
def fetch(name: Name, data: Root = Path("data")) -> None:
    """Download and verify the data of a benchmark.

    This is only possible if its owner permits it.
    """
    from leco.data.benchmarks import recipe

    found = recipe(name)
    if found.fetch is None:
        if found.needs == "nothing":
            raise LecoError(f"{found.name} needs no data, so there is nothing to fetch")
        raise LecoError(
            f"{found.name} cannot be fetched: it needs {found.needs}; `leco data show {name}` says how to get it"
        )
    typer.echo(f"{found.needs} is in {found.fetch(data)} and was verified")


@app.command()
def check(
    manifest: Annotated[
        Path, typer.Argument(help="A manifest (.csv, .jsonl, .parquet), or a folder VERSION/CLASS/*.", readable=False)
    ],
    ontology: Annotated[Path, typer.Option(help="The ontology of its labels.", readable=False)],
    skip_bad: Annotated[bool, typer.Option("--skip-bad", help="Drop rows with a problem instead of failing.")] = False,
    decode: Annotated[bool, typer.Option(help="Decode every file, which is slower but finds broken ones.")] = True,
    root: Annotated[
        Path | None, typer.Option(help="Folder that paths are relative to.", show_default="that of the manifest")
    ] = None,
) -> None:
    """Check a manifest of your own data and list all problems at once."""
    import numpy as np

    from leco.data import SPLITS
    from leco.data.importers.folders import image_folder
    from leco.data.manifest.manifest import read_manifest
    from leco.ontology.ontology import Ontology

    history = Ontology.load(ontology)
    root = manifest if manifest.is_dir() else root
    try:
        source = image_folder(manifest, history) if manifest.is_dir() else manifest
        with progress_bar("reading files") as tick:
            found, problems = read_manifest(source, history, root=root, decode=decode, skip_bad=skip_bad, tick=tick)
    except LecoError as error:
        headline, *lines = str(error).split("\n")
        for line in lines:
            typer.echo(line, err=True)
        raise LecoError(headline) from None
    if len(problems):
        typer.echo(str(problems))
        typer.echo(f"dropped {problems.dropped:,} of {problems.rows:,} rows\n")
    sizes = {split: int((found.split == split).sum()) for split in SPLITS}
    inside = ", ".join(f"{size:,} {split}" for split, size in sizes.items() if size)
    kind = "images" if found.kind == "image" else "feature vectors"
    typer.echo(f"{manifest}: {len(found):,} samples ({kind}): {inside}")
    labelled, none = found.labelled(), np.zeros(len(found), dtype=bool)
    any_label, newest = sum(labelled.values(), none), labelled.get(history.newest.name, none)
    typer.echo(f"{int((~any_label).sum()):,} without a label; {_periods(found)}\n")
    versions = {**found.labels, **found.masks}
    if versions:
        rows = [_summary(found, history, version, split) for version in versions for split in SPLITS if sizes[split]]
        headings = ["version", "split", "labelled", "classes seen", "rarest", "most frequent"]
        print_table(headings, rows, right=(2, 3))
    if found.labels:
        print_classes(found, history)
    for split in ("val", "test"):
        older = int(((found.split == split) & any_label & ~newest).sum())
        if older:
            typer.echo(
                f"note: {older:,} {split} samples have no label of {history.newest.name} and cannot be scored there"
            )
    typer.echo("ok" if decode else "ok, but no file was decoded")


def _periods(manifest: "Manifest") -> str:
    import numpy as np

    periods, counts = np.unique(manifest.period, return_counts=True)
    if periods.tolist() == [-1]:
        return "no periods given"
    names = ["none" if period < 0 else f"TP{period}" for period in periods.tolist()]
    return "periods: " + ", ".join(f"{count:,} {name}" for name, count in zip(names, counts.tolist(), strict=True))


def _summary(manifest: "Manifest", ontology: "Ontology", version: str, split: str) -> list[str]:
    """Return a row of the table: the number of labels of a version in a split, and the extreme classes."""
    chosen = manifest.split == split
    if manifest.masks:
        number = sum(bool(mask) for mask, wanted in zip(manifest.masks[version], chosen, strict=True) if wanted)
        return [version, split, f"{number:,} masks", "-", "-", "-"]
    known = ontology[version]
    counts = manifest.counts(known)[split]
    seen = [index for index in range(len(known)) if counts[index]]
    if not seen:
        return [version, split, "0", f"0 of {len(known)}", "-", "-"]
    rarest, most = (pick(seen, key=lambda index: counts[index]) for pick in (min, max))
    named = [f"{known.handle(index)} ({counts[index]:,})" for index in (rarest, most)]
    return [version, split, f"{sum(counts):,}", f"{len(seen):,} of {len(known):,}", *named]


def print_classes(manifest: "Manifest", ontology: "Ontology", masks: "MaskCounts | None" = None) -> None:
    """Print the number of labels of each class; of many classes, those with the fewest labels.

    For masks, print the number of images that show a class, and of its pixels.
    """
    from leco.data import SPLITS

    splits = [split for split in SPLITS if (manifest.split == split).any()]
    for version in masks.images if masks else manifest.labels:
        known = ontology[version]
        found = masks.images[version] if masks else manifest.counts(known)
        counts = [found[split] for split in splits]
        if masks:
            counts.append([sum(of_class) for of_class in zip(*masks.pixels[version].values(), strict=True)])
        order = list(range(len(known)))
        if len(order) > _MOST_CLASSES:
            order = sorted(order, key=lambda index: sum(count[index] for count in counts))[:_MOST_CLASSES]
        rows = [[known.handle(index), *(f"{count[index]:,}" for count in counts)] for index in order]
        headings = [f"class of {version}", *splits, *(["pixels"] if masks else [])]
        print_table(headings, rows, right=tuple(range(1, len(headings))))
        if len(known) > _MOST_CLASSES:
            typer.echo(f"the {_MOST_CLASSES} of {len(known):,} classes of {version} with the fewest labels\n")
    if masks:
        typer.echo(f"{', '.join(splits)}: images that show the class{masks.note}\n")
