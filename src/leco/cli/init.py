"""`leco init`: a new project from your own data, or an example."""

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from leco.errors import LecoError, and_more

if TYPE_CHECKING:
    from leco.experiments.init import Project
    from leco.models.weights import Weights
    from leco.ontology.guess import GuessedStep

_MOST = 20  # classes listed; the file has all
_HOW = {"from": "from", "renamed": "renamed from"}


def init(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="A new or empty folder.", show_default=False)],
    sources: Annotated[
        list[Path] | None,
        typer.Argument(
            metavar="OLD NEW", help="Your data, one file or folder per version, oldest first.", show_default=False
        ),
    ] = None,
    from_images: Annotated[
        bool, typer.Option("--from-images", help="The data are folders with a folder per class.")
    ] = False,
    from_csv: Annotated[
        bool,
        typer.Option(
            "--from-csv", help="The data are tables of paths and labels, or one table with a column `version`."
        ),
    ] = False,
    from_coco: Annotated[bool, typer.Option("--from-coco", help="The data are COCO JSON files.")] = False,
    from_label_studio: Annotated[
        bool,
        typer.Option("--from-label-studio", help="The data are Label Studio exports of choices, JSON or JSON-MIN."),
    ] = False,
    from_hf: Annotated[
        bool, typer.Option("--from-hf", help="The data are Hugging Face datasets written by `save_to_disk`.")
    ] = False,
    images: Annotated[
        Path | None, typer.Option("--images", help="Folder of the images.", show_default="that of OLD and NEW")
    ] = None,
    path_column: Annotated[str | None, typer.Option(help="Column or key of the image paths.")] = None,
    label_column: Annotated[str | None, typer.Option(help="Column or key of the labels.")] = None,
    strict: Annotated[bool, typer.Option("--strict", help="Guess no origins of classes from their names.")] = False,
) -> None:
    """Start a project in DIR: with your own data, or as an example.

    Writes ontology.yaml, labels.csv and experiment.yaml.

    leco init DIR

    leco init DIR --from-images photos/v1 photos/v2

    Images stay where they are. Origins of classes are guessed from their names, and from images labelled in both
    versions, where that is safe; `leco check` lists the guesses. Whatever you still have to fill in is listed.
    """
    from leco.data.importers.importer import Options
    from leco.experiments.init import example, from_data

    flags = {
        **{"images": from_images, "csv": from_csv, "coco": from_coco},
        **{"label-studio": from_label_studio, "hf": from_hf},
    }
    kinds = [kind for kind, given in flags.items() if given]
    if len(kinds) > 1 or bool(kinds) != bool(sources):
        every = ", ".join(f"--from-{kind}" for kind in flags)
        raise LecoError(f"give exactly one of {every} together with the data, oldest version first; or neither")
    if images is not None and (not kinds or kinds == ["images"]):
        raise LecoError("--images is only for files that name images; --from-images reads the folders themselves")
    if images is not None and not images.is_dir():
        raise LecoError(f"{images}: no such folder")
    if (path_column or label_column) and (not kinds or kinds[0] in ("images", "coco")):
        raise LecoError("--path-column and --label-column are only for --from-csv, --from-label-studio and --from-hf")
    if strict and not kinds:
        raise LecoError("--strict is only for your own data: the example has no origins to guess")
    if kinds:
        options = Options(folder, images, path_column, label_column)
        made = from_data(folder, kinds[0], sources or [], options, strict=strict)
    else:
        made = example(folder)
    _print_project(folder, made, own_data=bool(kinds))


def _print_project(folder: Path, made: "Project", *, own_data: bool) -> None:
    from leco.experiments.init import LEFT_OUT, split_note

    source = made.source
    counts = Counter(sample.version for sample in source.samples)
    labels = ", ".join(f"{counts[version]:,} of {version}" for version in source.versions)
    unlabelled = f", {counts['']:,} without a label" if counts[""] else ""
    typer.echo(f"{folder}: {len({s.path for s in source.samples}):,} images; labels: {labels}{unlabelled}")
    for remark in source.remarks:
        typer.echo(remark)
    for line in source.left_out.summary():
        typer.echo(line)
    if len(source.left_out):
        typer.echo(f"{folder / LEFT_OUT} lists everything that was left out")
    if note := split_note(made):
        typer.echo(note)
    if own_data:
        typer.echo(_weights(made.weights))
    for step in made.steps:
        _print_step(step)
    unclear = any(step.open or step.orphans for step in made.steps)
    typer.echo(f"\n{'complete' if unclear else 'check'} {folder / 'ontology.yaml'}, then run:")
    for verb in ("check", "run"):
        typer.echo(f"  leco {verb} {folder / 'experiment.yaml'}")


def _weights(found: "Weights | None") -> str:
    from leco.models.weights import HOW_TO_GET

    if found is not None:
        return f"training starts from {found.backbone} with the weights of {found.source}"
    return f"training starts from random weights, since no pretrained ones are on this machine; {HOW_TO_GET}"


def _print_step(step: "GuessedStep") -> None:
    from leco.ontology.guess import suggestion

    counts = {"kept by name": step.kept, "inferred": step.inferred, "guessed": step.guessed, "open": step.open}
    listed = ", ".join(f"{len(names):,} {what}" for what, names in counts.items() if names or what != "guessed")
    typer.echo(f"\n{step.old} -> {step.new}, classes: {listed}")
    if step.guessed:
        names = [f"{name} {_HOW[how]} {old}" for name, origin in step.guessed.items() for how, old in origin.items()]
        share = f"{len(names):,} of {len(names) + len(step.inferred) + len(step.open):,}"
        typer.echo(f"guessed from the names ({share}): {', '.join(and_more(names, _MOST))}")
    _list("", {name: f"{how} (inferred)" for name, how in step.inferred.items()})
    _list("", {name: f"kept by name, but {how}" for name, how in step.doubtful.items()})
    _list(f"not in {step.old}; add their origins:", {n: suggestion(n, r) for n, r in step.open.items()})
    _list(f"classes of {step.old} that no new class comes from yet:", dict.fromkeys(step.orphans, ""))


def _list(heading: str, lines: dict[str, str]) -> None:
    if heading and lines:
        typer.echo(heading)
    for line in and_more([f"{name}: {text}" if text else name for name, text in lines.items()], _MOST):
        typer.echo(f"  {line}")
