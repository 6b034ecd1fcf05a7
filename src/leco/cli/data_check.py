"""`leco data check`: whether own data can be trained on, and what is in them."""

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from leco.cli.progress import ticking
from leco.cli.tables import print_table
from leco.errors import LecoError

if TYPE_CHECKING:
    from leco.data.manifest import Manifest
    from leco.data.mask_counts import MaskCounts
    from leco.data.problems import Problems
    from leco.ontology.ontology import Ontology

_MOST_CLASSES = 40


def check_manifest(manifest: Path, ontology: Path, skip_bad: bool, decode: bool, root: Path | None = None) -> None:
    """Check a manifest, or a folder of images per version and class; list every problem at once."""
    import numpy as np

    from leco.data.cells import SPLITS
    from leco.ontology.ontology import Ontology

    history = Ontology.load(ontology)
    try:
        found, problems = _read(manifest, history, skip_bad, decode, root)
    except LecoError as error:
        headline, *lines = str(error).split("\n")
        for line in lines:
            typer.echo(line, err=True)
        raise LecoError(headline) from None
    if len(problems):
        typer.echo(str(problems))
        typer.echo(f"left out {problems.dropped:,} of {problems.rows:,} rows\n")
    sizes = {split: int((found.split == split).sum()) for split in SPLITS}
    inside = ", ".join(f"{size:,} {split}" for split, size in sizes.items() if size)
    kind = "images" if found.kind == "image" else "feature vectors"
    typer.echo(f"{manifest}: {len(found):,} samples ({kind}): {inside}")
    labelled, none = found.labelled(), np.zeros(len(found), dtype=bool)
    anyhow, newest = sum(labelled.values(), none), labelled.get(history.newest.name, none)
    typer.echo(f"{int((~anyhow).sum()):,} without a label; {_periods(found)}\n")
    versions = {**found.labels, **found.masks}
    if versions:
        rows = [_summary(found, history, version, split) for version in versions for split in SPLITS if sizes[split]]
        headings = ["version", "split", "labelled", "classes seen", "rarest", "most frequent"]
        print_table(headings, rows, right=(2, 3))
    if found.labels:
        print_classes(found, history)
    for split in ("val", "test"):
        older = int(((found.split == split) & anyhow & ~newest).sum())
        if older:
            typer.echo(
                f"note: {older:,} {split} samples have no label of {history.newest.name}, so cannot be scored there"
            )
    typer.echo("ok" if decode else "ok, as far as can be seen without decoding the files")


def _read(
    manifest: Path, ontology: "Ontology", skip_bad: bool, decode: bool, root: Path | None
) -> "tuple[Manifest, Problems]":
    from leco.data.image_folder import image_folder
    from leco.data.manifest import read_manifest

    read = image_folder if manifest.is_dir() else partial(read_manifest, root=root)
    with ticking("reading files") as tick:
        return read(manifest, ontology, decode=decode, skip_bad=skip_bad, tick=tick)


def _periods(manifest: "Manifest") -> str:
    import numpy as np

    periods, counts = np.unique(manifest.period, return_counts=True)
    if periods.tolist() == [-1]:
        return "no periods given"
    names = ["none" if period < 0 else f"TP{period}" for period in periods.tolist()]
    return "periods: " + ", ".join(f"{count:,} {name}" for name, count in zip(names, counts.tolist(), strict=True))


def _summary(manifest: "Manifest", ontology: "Ontology", version: str, split: str) -> list[str]:
    """How many labels of a version a split has, and how unevenly."""
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
    """Print how often each class was labelled; of many classes, those with the fewest labels, which need a look.

    Of masks, that is how many images show a class, and how many pixels it has in all of them.
    """
    from leco.data.cells import SPLITS

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
            typer.echo(f"the {_MOST_CLASSES} classes of {version} with the fewest labels, of {len(known):,}\n")
    if masks:
        typer.echo(f"{', '.join(splits)}: images that show the class{masks.note}\n")
