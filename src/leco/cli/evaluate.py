"""`leco evaluate`: how good a model is on labelled data, at every version, and against another."""

import csv
import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from leco.cli.predict import BundleFolder, Device
from leco.cli.terminal import print_table
from leco.errors import LecoError, nearest

if TYPE_CHECKING:
    from leco.data.manifest.manifest import Manifest
    from leco.evaluation import Scores
    from leco.evaluation.compare import Difference, Overall
    from leco.evaluation.scoring import Judged
    from leco.model.bundle import Bundle
    from leco.ontology.ontology import Ontology

_MOST_CLASSES = 40
_SPLITS = ("train", "val", "test", "all")
_MEANING = {"macc": "mean per-class accuracy", "miou": "mean intersection over union"}


@dataclass(frozen=True)
class _Found:
    """What is told of one version."""

    version: str
    scores: "Scores"
    other: "Scores | None" = None
    whole: "Overall | None" = None
    classes: "tuple[Difference, ...]" = ()


def evaluate(
    bundle: BundleFolder,
    labels: Annotated[Path, typer.Argument(metavar="LABELS", help="A manifest of labelled samples.")],
    split: Annotated[str, typer.Option(help="train, val, test or all.")] = "test",
    against: Annotated[
        Path | None, typer.Option(help="Another bundle: what became better, and what worse?", show_default=False)
    ] = None,
    ontology: Annotated[
        Path | None,
        typer.Option(help="The ontology of the labels, if it has newer versions than the model.", show_default=False),
    ] = None,
    root: Annotated[
        Path | None, typer.Option(help="Folder that paths are relative to, if not that of the manifest.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of tables.")] = False,
    as_csv: Annotated[bool, typer.Option("--csv", help="Print CSV, a row for each class, instead of tables.")] = False,
    device: Device = "auto",
) -> None:
    """Score a model on labelled samples; those labelled in any version count wherever that says what they are."""
    if split not in _SPLITS:
        raise LecoError(f"--split {split}: is none{nearest(split, _SPLITS)}")

    from leco.evaluation.scoring import check_comparable
    from leco.model.bundle import read_bundle

    bundles = [read_bundle(folder) for folder in (bundle, against) if folder is not None]
    check_comparable(bundles[0].description, bundles[-1].description)
    history = _history(bundles, ontology)
    judged = _judge(bundles, history, labels, root, split, device)
    found = _compared(bundles, judged, history)
    if not found:
        raise LecoError(f"{labels}: no sample of the split {split} has a label of a version that the model answers in")
    if as_json:
        typer.echo(json.dumps([_record(part) for part in found], ensure_ascii=False, indent=1))
    elif as_csv:
        _print_csv(found)
    else:
        _print(found, bundles, split)


def _history(bundles: "list[Bundle]", given: Path | None) -> "Ontology":
    """The longest of all ontologies, which the others must be the beginning of."""
    from leco.ontology.changes import require_same
    from leco.ontology.ontology import Ontology

    known = max((bundle.ontology for bundle in bundles), key=lambda ontology: len(ontology.versions))
    longest = known if given is None else Ontology.load(given)
    name = str(given) if given is not None else f"the ontology {known.name} of the other bundle"
    for bundle in bundles:
        require_same(bundle.ontology, longest, name, str(bundle.folder))
    return longest


def _judge(
    bundles: "list[Bundle]", history: "Ontology", labels: Path, root: Path | None, split: str, device: str
) -> "Judged":
    import numpy as np
    from rich.console import Console
    from rich.progress import Progress

    from leco.evaluation.scoring import judge
    from leco.model.predictor import Predictor

    manifest = _read(labels, history, root)
    task = bundles[0].description.task
    kind = "features" if manifest.kind == "features" else "segmentation" if manifest.masks else "classification"
    if kind != task:
        raise LecoError(f"{labels}: is for {kind}, but {bundles[0].folder} is a model for {task}")
    labelled = sum(manifest.labelled().values(), np.zeros(len(manifest), dtype=bool))
    chosen = np.flatnonzero(((manifest.split == split) | (split == "all")) & labelled)
    if not len(chosen):
        splits = ", ".join(sorted(set(manifest.split.tolist())))
        raise LecoError(f"{labels}: no sample of the split {split} has a label; there are {splits}, and --split all")
    predictors = [Predictor(bundle, device) for bundle in bundles]
    console = Console(stderr=True)
    with Progress(console=console, transient=True, disable=not console.is_terminal) as progress:
        for judged in progress.track(judge(predictors, manifest, history, chosen), description="evaluating"):
            last = judged
    return last


def _read(labels: Path, history: "Ontology", root: Path | None) -> "Manifest":
    from leco.data.manifest.manifest import read_manifest

    try:
        return read_manifest(labels, history, root=root, decode=False)[0]
    except LecoError as error:
        headline, *problems = str(error).split("\n")
        known = ", ".join(version.name for version in history.versions)
        first = f"; the first: {problems[0].strip()}; versions {known} are known" if problems else ""
        raise LecoError(f"{headline}{first}") from None


def _compared(bundles: "list[Bundle]", judged: "Judged", history: "Ontology") -> list[_Found]:
    from leco.evaluation.compare import compare

    metric = bundles[0].description.metric
    tables = [judged.scores(number, b.ontology, b.description.evaluated) for number, b in enumerate(bundles)]
    found = []
    for version, mine in reversed(tables[0].items()):
        other = tables[1].get(version) if len(tables) > 1 else None
        if other is None:
            found.append(_Found(version, mine))
        else:
            whole, classes = compare(judged, history[version], mine, other, metric)
            found.append(_Found(version, mine, other, whole, tuple(classes)))
    return found


def _print(found: list[_Found], bundles: "list[Bundle]", split: str) -> None:
    metric = bundles[0].description.metric
    unit = "pixels" if metric == "miou" else "samples"
    for part in found:
        scores = part.scores
        typer.echo(f"{part.version}: {_MEANING[metric]} {100 * getattr(scores, metric):.1f} %", nl=False)
        typer.echo(f" of {int(scores.support.sum()):,} {unit} ({split})")
        if part.whole is None:
            _print_classes(part, metric)
        else:
            _print_differences(part, part.whole, str(bundles[1].folder))
    if len(bundles) > 1:
        only = [v for v in bundles[1].description.versions if v not in bundles[0].description.versions]
        if only:
            typer.echo(f"{bundles[0].folder} does not answer in {', '.join(only)}")


def _print_classes(part: _Found, metric: str) -> None:
    column = "iou" if metric == "miou" else "accuracy"
    rows: list[dict[str, Any]] = [row for row in part.scores.table() if row["support"]]
    rows.sort(key=lambda row: row[column])
    cells = [
        [row["class"], f"{row['support']:,}", f"{100 * row['accuracy']:.1f}", f"{100 * row['iou']:.1f}"]
        for row in rows[:_MOST_CLASSES]
    ]
    print_table([f"class of {part.version}", "n", "accuracy, %", "IoU, %"], cells, right=(1, 2, 3))
    _tell_left_out(len(rows), "worst")
    if part.scores.absent:
        typer.echo(f"{len(part.scores.absent):,} classes of {part.version} do not occur\n")


def _print_differences(part: _Found, whole: "Overall", other: str) -> None:
    from leco.evaluation.compare import LEGEND

    typer.echo(
        f"against {other} with {100 * whole.before:.1f} %: {100 * whole.gain:+.1f} points (95 % interval "
        f"{100 * whole.low:+.1f} to {100 * whole.high:+.1f}), {whole.verdict}; "
        f"only this one was right {whole.won:,} times, only the other {whole.lost:,} times"
    )
    rows = [
        [
            *(d.name, f"{d.support:,}", f"{100 * d.before:.1f}", f"{100 * d.after:.1f}", f"{100 * d.gain:+.1f}"),
            *(f"{d.won:,}", f"{d.lost:,}", f"{d.p:.2g}", d.verdict if d.is_shown else ""),
        ]
        for d in part.classes[:_MOST_CLASSES]
    ]
    headings = [f"class of {part.version}", "n", "other, %", "this, %", "points", "won", "lost", "p", ""]
    print_table(headings, rows, right=tuple(range(1, 8)))
    _tell_left_out(len(part.classes), "largest")
    typer.echo(LEGEND + "\n")


def _tell_left_out(number: int, which: str) -> None:
    if number > _MOST_CLASSES:
        typer.echo(f"the {_MOST_CLASSES} {which} of {number:,}; --json and --csv list all\n")


def _record(part: _Found) -> dict[str, Any]:
    record: dict[str, Any] = {
        "version": part.version,
        "n": int(part.scores.support.sum()),
        "macc": part.scores.macc,
        "miou": part.scores.miou,
        "classes": part.scores.table(),
    }
    if part.whole is not None:
        record["against"] = _difference(part.whole)
        record["differences"] = [_difference(difference) for difference in part.classes]
    return record


def _difference(difference: "Difference | Overall") -> dict[str, Any]:
    from dataclasses import asdict

    return asdict(difference) | {"gain": difference.gain, "verdict": difference.verdict}


def _print_csv(found: list[_Found]) -> None:
    compared = any(part.whole is not None for part in found)
    more = ["before", "after", "gain", "won", "lost", "p", "verdict"] if compared else []
    table = csv.writer(sys.stdout, lineterminator="\n")
    table.writerow(["version", "class", "n", "accuracy", "iou", *more])
    for part in found:
        differences = {difference.name: _difference(difference) for difference in part.classes}
        for row in part.scores.table():
            values = differences.get(str(row["class"]), {})
            cells = [row["class"], row["support"], row["accuracy"], row["iou"], *(values.get(name) for name in more)]
            table.writerow([part.version, *("" if cell is None else cell for cell in cells)])
