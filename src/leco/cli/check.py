"""`leco check`: check an experiment.yaml with your own data, list its stages, and estimate their duration."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from leco.cli.run import pairs
from leco.cli.terminal import print_table
from leco.errors import LecoError
from leco.text import duration, size

if TYPE_CHECKING:
    from leco.dataset.check import Finding
    from leco.experiments.check import CheckedExperiment
    from leco.experiments.timing import Estimate

_MOST = 30  # findings of a kind to print; --json has all


def check(
    source: Annotated[
        Path, typer.Argument(metavar="FILE", help="An experiment.yaml.", show_default=False, readable=False)
    ],
    settings: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Such as training.batches.steps=500.")
    ] = None,
    start: Annotated[
        Path | None, typer.Option(help="As in `leco run`: a bundle to start from.", show_default=False)
    ] = None,
    timing: Annotated[bool, typer.Option(help="Run some steps to estimate the duration of a run.")] = True,
    every_file: Annotated[
        bool, typer.Option("--every-file", help="Decode every image; by default, at most 5,000.")
    ] = False,
    device: Annotated[
        str, typer.Option(help="auto (a GPU if there is one), cpu, cuda, cuda:1, mps or another that torch knows.")
    ] = "auto",
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead.")] = False,
) -> None:
    """Check an experiment on your own data before training.

    Lists all problems at once.

    The exit code is 2 if there is a problem, and 0 if there are only warnings.
    """
    from leco.dataset.check import LOOKED_INTO
    from leco.experiments.check import check as look
    from leco.progress import progress_bar

    with progress_bar("reading files") as tick:
        found = look(
            str(source), pairs(settings or []), None if every_file else LOOKED_INTO, tick, start, device=device
        )
    measured = _estimate(found, device) if timing and not found.problems else None
    if as_json:
        typer.echo(json.dumps(_as_data(found, measured), ensure_ascii=False, indent=1))
        raise typer.Exit(2 if found.problems else 0)
    _print(found, measured)
    if found.problems:
        _print_findings("problem", found.problems, err=True)
        number = len(found.problems)
        raise LecoError(f"{source}: {number:,} problem{'s' if number > 1 else ''}, as listed above")
    typer.echo("ok")


def _estimate(found: "CheckedExperiment", device: str) -> "Estimate | None":
    from leco.experiments.timing import estimate

    if found.plan is None or found.periods is None or found.reading is None:
        return None
    try:
        made = estimate(found.plan, found.periods, found.reading, device)
    except LecoError as error:
        found.add(found.warnings, "experiment", f"the first steps failed: {error}")
        return None
    if made.memory and made.memory.problem:
        found.add(found.warnings, "experiment", made.memory.problem)
    return made


def _print(found: "CheckedExperiment", measured: "Estimate | None") -> None:
    from leco.cli.data import print_classes
    from leco.data import SPLITS
    from leco.experiments.check import planned

    if found.manifest is not None and found.ontology is not None:
        sizes = {split: int((found.manifest.split == split).sum()) for split in SPLITS}
        inside = ", ".join(f"{size:,} {split}" for split, size in sizes.items() if size)
        kind = "images" if found.manifest.kind == "image" else "feature vectors"
        typer.echo(f"{found.file}: {len(found.manifest):,} {kind} ({inside}) for {found.ontology!r}\n")
        print_classes(found.manifest, found.ontology, found.masks)
    if rows := planned(found):
        _print_plan(found, rows, measured)
    _print_findings("note", found.notes)
    _print_findings("warning", found.warnings)


def _print_plan(found: "CheckedExperiment", rows: list[dict[str, Any]], measured: "Estimate | None") -> None:
    assert found.plan is not None
    times = [duration(measured.stages[stage]) if measured else "-" for stage in found.plan.stages]
    columns = ("stage", "version", "new", "history", "validation", "test")
    table = [
        [f"{row[c]:,}" if isinstance(row[c], int) else row[c] for c in columns] + [took]
        for row, took in zip(rows, times, strict=True)
    ]
    print_table(["stage", "version", "new", "old", "val", "test", "time"], table, right=tuple(range(2, 7)))
    typer.echo("new: labelled in the version; old: history; val: held out for validation; test: for testing")
    steps, images = (sum(row[column] for row in rows) for column in ("steps", "images"))
    typer.echo(f"{len(rows)} training{'s' * (len(rows) > 1)}: {steps:,} steps, {images:,} images")
    if measured:
        again = "; the chosen one is then trained on all labels" if measured.again else ""
        typer.echo(f"about {duration(measured.seconds)} on this machine: an estimate from a few steps{again}")
        if (memory := measured.memory) and memory.available is not None and memory.largest:
            taken = f"about {size(memory.of(memory.size))} of the {size(memory.available)} that are free"
            typer.echo(f"memory of a step: {taken}; batches of up to {memory.largest:,} fit")
        typer.echo()


def _print_findings(what: str, findings: "list[Finding]", err: bool = False) -> None:
    from leco.errors import and_more, printable

    lines = and_more([f"{what}: {printable(finding.message)}" for finding in findings], _MOST)
    if len(findings) > _MOST:
        lines[-1] += "; --json lists all"
    for line in lines:
        typer.echo(line, err=err)


def _as_data(found: "CheckedExperiment", measured: "Estimate | None") -> dict[str, Any]:
    from dataclasses import asdict

    from leco.experiments.check import planned

    rows = planned(found)
    if found.plan is not None and measured is not None:
        rows = [row | {"seconds": measured.stages[stage]} for row, stage in zip(rows, found.plan.stages, strict=True)]
    versions = []
    if found.manifest is not None and found.ontology is not None:
        for version in found.ontology.versions:
            labels = found.manifest.counts(version) if found.manifest.labels else {}
            counts = found.masks.images.get(version.name, {}) if found.masks else labels
            names: list[dict[str, Any]] = [
                {"class": version.handle(c)} | {s: of[c] for s, of in counts.items()} for c in range(len(version))
            ]
            for split, pixels in (found.masks.pixels.get(version.name, {}) if found.masks else {}).items():
                for name, number in zip(names, pixels, strict=True):
                    name.setdefault("pixels", {})[split] = number
            versions.append({"name": version.name, "classes": names})
    return {
        "file": str(found.file),
        "ok": not found.problems,
        "problems": [asdict(finding) for finding in found.problems],
        "warnings": [asdict(finding) for finding in found.warnings],
        "notes": [asdict(finding) for finding in found.notes],
        "versions": versions,
        "stages": rows,
        "estimated_seconds": None if measured is None else measured.seconds,
        "memory": _memory(measured),
    }


def _memory(measured: "Estimate | None") -> dict[str, int | None] | None:
    if measured is None or (memory := measured.memory) is None:
        return None
    found = {"step": memory.of(memory.size), "available": memory.available}
    return {**found, "largest_batch": memory.largest, "parts": memory.parts}
