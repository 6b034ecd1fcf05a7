"""`leco evaluate`: scores of a model on labelled data, at every version, and differences from another model."""

import csv
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from leco.cli.predict import BundleFolder, Device, NoVerify, Verbatim
from leco.cli.terminal import print_table
from leco.data import SPLITS
from leco.errors import LecoError, nearest
from leco.text import csv_cells

if TYPE_CHECKING:
    from leco.evaluation import Scores
    from leco.evaluation.compare import Difference, Overall
    from leco.model.evaluation import Evaluation, VersionEvaluation
    from leco.model.model import Model

_MOST_CLASSES = 40
EVALUATED = (*SPLITS, "all")
_MEANING = {"macc": "mean per-class accuracy", "miou": "mean intersection over union"}


def evaluate(
    bundle: BundleFolder,
    labels: Annotated[Path, typer.Argument(metavar="LABELS", help="A manifest of labelled samples.")],
    split: Annotated[str, typer.Option(help="train, val, test or all.")] = "test",
    against: Annotated[
        Path | None, typer.Option(help="Another bundle to compare with, class by class.", show_default=False)
    ] = None,
    ontology: Annotated[
        Path | None,
        typer.Option(help="The ontology of the labels, if it has newer versions than the model.", show_default=False),
    ] = None,
    root: Annotated[
        Path | None, typer.Option(help="Folder that paths are relative to; the manifest's by default.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of tables.")] = False,
    as_csv: Annotated[bool, typer.Option("--csv", help="Print CSV, a row for each class, instead of tables.")] = False,
    verbatim: Verbatim = False,
    device: Device = "auto",
    no_verify: NoVerify = False,
) -> None:
    """Score a model on labelled samples, at every version.

    That is, at every version in which their labels are known.
    """
    if split not in EVALUATED:
        raise LecoError(f"--split: {split!r} is not one of {', '.join(EVALUATED)}{nearest(split, EVALUATED)}")

    from leco.devices import make_fabric
    from leco.model.model import load

    model = load(bundle, device=device, verify=not no_verify)
    other = None if against is None else load(against, device=device, verify=not no_verify)
    found = model.evaluate(labels, split=split, against=other, ontology=ontology, root=root)
    if not make_fabric(device).is_global_zero:
        return
    if as_json:
        typer.echo(json.dumps([_record(*part) for part in found.versions.items()], ensure_ascii=False, indent=1))
    elif as_csv:
        _print_csv(found, verbatim)
    else:
        _print(found, model, other, split)


def _print(found: "Evaluation", model: "Model", other: "Model | None", split: str) -> None:
    metric, unit = found.metric, model.description.modality.unit
    for version, part in found.versions.items():
        scores = part.scores
        typer.echo(f"{version}: {_MEANING[metric]} {100 * getattr(scores, metric):.1f} %", nl=False)
        typer.echo(f" of {int(scores.support.sum()):,} {unit} ({split})")
        if part.difference is None:
            _print_classes(version, part.scores, metric)
        else:
            _print_differences(version, part, part.difference, other.place if other else "")
    only = [] if other is None else [v for v in other.versions if v not in model.versions]
    if only:
        typer.echo(f"{model.place} does not predict {', '.join(only)}")


def _print_classes(version: str, scores: "Scores", metric: str) -> None:
    column = "iou" if metric == "miou" else "accuracy"
    rows: list[dict[str, Any]] = [row for row in scores.table() if row["support"]]
    rows.sort(key=lambda row: row[column])
    cells = [
        [row["class"], f"{row['support']:,}", f"{100 * row['accuracy']:.1f}", f"{100 * row['iou']:.1f}"]
        for row in rows[:_MOST_CLASSES]
    ]
    print_table([f"class of {version}", "n", "accuracy, %", "IoU, %"], cells, right=(1, 2, 3))
    _print_left_out(len(rows), "worst")
    if scores.absent:
        typer.echo(f"{len(scores.absent):,} classes of {version} do not occur\n")


def _print_differences(version: str, part: "VersionEvaluation", whole: "Overall", other: str) -> None:
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
    headings = [f"class of {version}", "n", "other, %", "this, %", "points", "won", "lost", "p", ""]
    print_table(headings, rows, right=tuple(range(1, 8)))
    _print_left_out(len(part.classes), "largest")
    typer.echo(LEGEND + "\n")


def _print_left_out(number: int, which: str) -> None:
    if number > _MOST_CLASSES:
        typer.echo(f"the {_MOST_CLASSES} {which} of {number:,}; --json and --csv list all\n")


def _record(version: str, part: "VersionEvaluation") -> dict[str, Any]:
    record: dict[str, Any] = {
        "version": version,
        "n": int(part.scores.support.sum()),
        "macc": part.scores.macc,
        "miou": part.scores.miou,
        "classes": part.scores.table(),
    }
    if part.difference is not None:
        record["against"] = _difference(part.difference)
        record["differences"] = [_difference(difference) for difference in part.classes]
    return record


def _difference(difference: "Difference | Overall") -> dict[str, Any]:
    from dataclasses import asdict

    return asdict(difference) | {"gain": difference.gain, "verdict": difference.verdict}


def _print_csv(found: "Evaluation", verbatim: bool) -> None:
    compared = any(part.difference is not None for part in found.versions.values())
    more = ["before", "after", "gain", "won", "lost", "p", "verdict"] if compared else []
    table = csv.writer(sys.stdout, lineterminator="\n")
    table.writerow(["version", "class", "n", "accuracy", "iou", *more])
    for version, part in found.versions.items():
        differences = {difference.name: _difference(difference) for difference in part.classes}
        for row in part.scores.table():
            values = differences.get(str(row["class"]), {})
            cells = [row["class"], row["support"], row["accuracy"], row["iou"], *(values.get(name) for name in more)]
            table.writerow(csv_cells([version, *("" if cell is None else cell for cell in cells)], verbatim))
