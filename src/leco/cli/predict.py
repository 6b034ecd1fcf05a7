"""`leco predict`: what a model says of images, or of feature vectors."""

import io
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TextIO

import typer

from leco.errors import LecoError, nearest, printable

if TYPE_CHECKING:
    from leco.model.bundle import Bundle
    from leco.model.predictions import Writer

_FORMATS = ("csv", "jsonl")
BundleFolder = Annotated[
    Path, typer.Argument(metavar="BUNDLE", help="A folder that `leco run` or `leco bundle` wrote.", show_default=False)
]
Device = Annotated[str, typer.Option(help="cpu, cuda, or auto: a GPU if there is one.")]


def predict(
    bundle: BundleFolder,
    inputs: Annotated[
        list[str],
        typer.Argument(
            metavar="INPUTS...",
            help="Files, folders and patterns of images (or .npy, .npz, .csv of vectors), or a manifest.",
            show_default=False,
        ),
    ],
    version: Annotated[
        str | None, typer.Option("--version", help="Version to answer in; the newest if not given.", show_default=False)
    ] = None,
    top: Annotated[int, typer.Option(min=1, help="How many of the likeliest classes.")] = 1,
    back_off: Annotated[
        float | None,
        typer.Option(min=0, max=1, help="Answer as finely as this probability allows, in whichever version."),
    ] = None,
    kind: Annotated[
        str | None, typer.Option("--format", help="csv, or jsonl; else as the output ends.", show_default=False)
    ] = None,
    output: Annotated[
        Path | None, typer.Option("-o", "--output", help="File, or folder for masks; else the terminal.")
    ] = None,
    root: Annotated[
        Path | None, typer.Option(help="Folder that paths are relative to, if not that of the manifest.")
    ] = None,
    batch_size: Annotated[int, typer.Option(min=1, max=65_536, help="Images at a time.")] = 64,
    device: Device = "auto",
) -> None:
    """Predict: one line for each input, or, in segmentation, one mask.

    What cannot be read is told about, and the rest goes on; the exit code is then 2.
    """
    if kind is not None and kind not in _FORMATS:
        raise LecoError(f"--format {kind}: is none{nearest(kind, _FORMATS)}")
    if back_off is not None and (version is not None or top > 1):
        raise LecoError("--back-off chooses the version, and answers with one class: leave --version and --top out")

    from leco.model.bundle import read_bundle

    found = read_bundle(bundle)
    chosen = found.ontology[found.description.newest if version is None else version].name
    if root is not None and not root.is_dir():
        raise LecoError(f"{root}: there is no such folder")
    top = min(top, len(found.ontology[chosen]))
    if output is not None:
        _check_output(output, bundle, inputs, found.description.task)
    if found.description.task == "segmentation":
        if output is None or back_off is not None or top > 1:
            raise LecoError(f"{bundle}: segments images: say -o FOLDER for the masks, without --top and --back-off")
        failed, total = _masks(found, inputs, root, chosen, output, device)
    else:
        kind = kind or _format_of(output)
        shown = output is not None or not sys.stdout.isatty()  # not among the answers
        with _opened(output) as file, _counting(lambda: _count(found, inputs, root), shown) as advance:
            from leco.model.predictions import Writer

            writer = Writer(file, kind, top, back_off is not None)
            failed, total = _answers(found, inputs, root, chosen, back_off, writer, batch_size, device, advance)
            if failed == total:
                problems = "1 problem stands" if failed == 1 else f"{failed:,} problems stand"
                raise LecoError(f"none of the inputs could be read; {problems} above")
    if failed:
        raise LecoError(f"{failed:,} of {total:,} inputs could not be read, and are left out; they are named above")


def _format_of(output: Path | None) -> str:
    """The format that an output's ending asks for; the terminal gets CSV."""
    ending = ".csv" if output is None else output.suffix.lower()
    if ending[1:] not in _FORMATS:
        raise LecoError(f"{output}: the ending is none of {', '.join(_FORMATS)}; change it, or say --format")
    return ending[1:]


def _check_output(output: Path, bundle: Path, inputs: list[str], task: str) -> None:
    """Refuse to write over what is, or could be, read."""
    from leco.data import images as image_files
    from leco.data import vectors as vector_files
    from leco.data.input_files import Given, given_files

    if bundle.resolve() in (output.resolve(), *output.resolve().parents):
        raise LecoError(f"{output}: is in the bundle, which stays as it is; name another place")
    if not output.is_file():
        return
    taken = vector_files.SUFFIXES if task == "features" else image_files.SUFFIXES
    found = (given.path for given in given_files(inputs, taken) if isinstance(given, Given))
    if output.suffix.lower() in {*taken, ".parquet"} - {".csv"} or output.resolve() in (p.resolve() for p in found):
        raise LecoError(f"{output}: is one of the inputs, or could be, which are never written over; name another file")


def _answers(
    bundle: "Bundle",
    inputs: list[str],
    root: Path | None,
    version: str,
    threshold: float | None,
    writer: "Writer",
    batch_size: int,
    device: str,
    advance: Callable[[int], object],
) -> tuple[int, int]:
    from leco.evaluation.calibration import Reliability
    from leco.model.inputs import batches
    from leco.model.predictions import backed_off, ranked
    from leco.model.predictor import Predictor

    predictor, description = Predictor(bundle, device), bundle.description
    reliability = Reliability(description.calibration, description.versions, threshold or 0.0)
    failed, total = 0, 0
    for batch in batches(inputs, description, batch_size, root):
        for problem in batch.problems:
            _tell(problem)
        if batch.names:
            probs = predictor.probs(batch.inputs)
            writer.write(
                batch.names,
                ranked(probs, bundle.ontology, version, writer.top)
                if threshold is None
                else backed_off(probs, bundle.ontology, threshold, reliability),
            )
        failed += len(batch.problems)
        total += len(batch.problems) + len(batch.names)
        advance(total)
    return failed, total


def _masks(
    bundle: "Bundle", inputs: list[str], root: Path | None, version: str, folder: Path, device: str
) -> tuple[int, int]:
    from leco.model.masks import write_masks
    from leco.model.predictor import Predictor

    predictor = Predictor(bundle, device)
    if folder.exists() and not folder.is_dir():
        raise LecoError(f"{folder}: is a file; masks go into a folder")
    failed, total = 0, 0
    with _counting(lambda: _count(bundle, inputs, root)) as advance:
        for problem in write_masks(predictor, inputs, version, folder, root):
            total += 1
            if problem is not None:
                failed += 1
                _tell(str(problem))
            advance(total)
    return failed, total


def _tell(problem: str) -> None:
    typer.echo(printable(problem), err=True)


@contextmanager
def _opened(output: Path | None) -> Iterator[TextIO]:
    """Standard output, or a file that appears when all is written."""
    from leco.io import replacing

    if output is None:
        yield sys.stdout
        return
    with replacing(output) as raw:
        text = io.TextIOWrapper(raw, encoding="utf-8", errors="backslashreplace", newline="")
        yield text
        text.flush()
        text.detach()


def _count(bundle: "Bundle", inputs: list[str], root: Path | None) -> int | None:
    """How many images there are; of vectors, nobody knows before they are read."""
    from leco.model.inputs import image_paths

    return None if bundle.description.task == "features" else sum(1 for _ in image_paths(inputs, root))


@contextmanager
def _counting(count: Callable[[], int | None], wanted: bool = True) -> Iterator[Callable[[int], object]]:
    """Show progress where somebody looks at it."""
    from rich.console import Console
    from rich.progress import Progress

    console = Console(stderr=True)
    if not console.is_terminal or not wanted:
        yield lambda done: None
        return
    with Progress(console=console, transient=True) as progress:
        task = progress.add_task("predicting", total=count())
        yield lambda done: progress.update(task, completed=done)
