"""`leco predict`: classes of images or feature vectors, or masks of images."""

import io
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TextIO

import typer

from leco.errors import LecoError, nearest, printable
from leco.progress import progress_bar

if TYPE_CHECKING:
    from leco.model.model import Model

_FORMATS = ("csv", "jsonl")
BundleFolder = Annotated[
    Path, typer.Argument(metavar="BUNDLE", help="A folder that `leco run` or `leco bundle` wrote.", show_default=False)
]
Device = Annotated[
    str, typer.Option(help="auto (a GPU if there is one), cpu, cuda, cuda:1, mps or another that torch knows.")
]
Verbatim = Annotated[
    bool,
    typer.Option(
        "--verbatim",
        help="In CSV, put no ' before text that begins with = + - @, which spreadsheets take for a formula.",
    ),
]
NoVerify = Annotated[
    bool, typer.Option("--no-verify", help="Accept a bundle whose files changed since it was written.")
]


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
        str | None, typer.Option("--version", help="Version to predict; the newest by default.", show_default=False)
    ] = None,
    top: Annotated[int, typer.Option(min=1, help="Number of likeliest classes.")] = 1,
    back_off: Annotated[
        float | None,
        typer.Option(min=0, max=1, help="Predict the finest class, of any version, that is at least this probable."),
    ] = None,
    kind: Annotated[
        str | None,
        typer.Option("--format", help="csv or jsonl; by default, that of the output's suffix.", show_default=False),
    ] = None,
    output: Annotated[
        Path | None, typer.Option("-o", "--output", help="File, or folder for masks; the terminal by default.")
    ] = None,
    root: Annotated[
        Path | None, typer.Option(help="Folder that paths are relative to; the manifest's by default.")
    ] = None,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace existing files, even if leco did not write them.")
    ] = False,
    verbatim: Verbatim = False,
    batch_size: Annotated[int, typer.Option(min=1, max=65_536, help="Images at a time.")] = 64,
    device: Device = "auto",
    no_verify: NoVerify = False,
) -> None:
    """Predict classes, one line for each input, or masks.

    Inputs that cannot be read are reported and left out; the exit code is then 2.
    """
    if kind is not None and kind not in _FORMATS:
        raise LecoError(f"--format: {kind!r} is not one of {', '.join(_FORMATS)}{nearest(kind, _FORMATS)}")
    if back_off is not None and (version is not None or top > 1):
        raise LecoError("--back-off chooses the version and gives one class: leave out --version and --top")

    from leco.devices import in_turn, make_fabric
    from leco.model.model import load

    model = load(bundle, device=device, verify=not no_verify)
    fabric, modality = make_fabric(device), model.description.modality
    leads, share = fabric.is_global_zero, (fabric.global_rank, fabric.world_size)
    chosen = model.ontology[model.description.newest if version is None else version]
    if root is not None and not root.is_dir():
        raise LecoError(f"{root}: no such folder")
    top = min(top, len(chosen))
    if output is not None:
        _check_output(output, bundle, inputs, modality.suffixes, overwrite)
    if modality.has_masks:
        if output is None or back_off is not None or top > 1:
            raise LecoError(f"{bundle}: segments images: pass -o FOLDER for the masks, without --top and --back-off")
        if output.exists() and not output.is_dir():
            raise LecoError(f"{output}: is a file; masks go into a folder")
        masks = model.masks(inputs, output, version=chosen.name, root=root, overwrite=overwrite, share=share)
        count = _count(model, inputs, root) if leads and sys.stderr.isatty() else None
        failed, total = _write_masks(in_turn(fabric, ((problem,) for problem in masks)), count, leads)
    else:
        kind = kind or _format_of(output)
        shown = leads and (output is not None or not sys.stdout.isatty())  # not among the answers
        with _opened(output, leads) as file, progress_bar("predicting", shown=shown) as tick:
            from leco.model.predictions import Writer

            writer = Writer(file, kind, top, back_off is not None, verbatim)
            count = _count(model, inputs, root) if shown and sys.stderr.isatty() else None
            failed, total = 0, 0
            of_version = None if back_off is not None else chosen.name
            batches = model.answers(
                inputs, version=of_version, top=top, back_off=back_off, root=root, batch_size=batch_size, share=share
            )
            for names, answers, problems in in_turn(fabric, batches):
                for problem in problems if leads else ():
                    _say(problem)
                if names:
                    writer.write(names, iter(answers))
                failed, total = failed + len(problems), total + len(problems) + len(names)
                tick(total, count)
            if failed == total:
                listed = "the problem is" if failed == 1 else f"the {failed:,} problems are"
                raise LecoError(f"none of the inputs could be read; {listed} listed above")
    if failed:
        raise LecoError(f"{failed:,} of {total:,} inputs could not be read and are left out; they are listed above")


def _format_of(output: Path | None) -> str:
    """The format of an output, by its suffix; CSV on the terminal."""
    ending = ".csv" if output is None else output.suffix.lower()
    if ending[1:] not in _FORMATS:
        raise LecoError(f"{output}: its suffix is not one of {', '.join(_FORMATS)}; change it, or pass --format")
    return ending[1:]


def _check_output(output: Path, bundle: Path, inputs: list[str], taken: tuple[str, ...], overwrite: bool) -> None:
    """Refuse to write over a file that is, or could be, read, or that leco did not write."""
    from leco.data.input_files import Given, given_files
    from leco.model.predictions import are_predictions

    if bundle.resolve() in (output.resolve(), *output.resolve().parents):
        raise LecoError(f"{output}: is inside the bundle; choose another place")
    if not output.is_file():
        return
    found = (given.path for given in given_files(inputs, taken) if isinstance(given, Given))
    if output.suffix.lower() in {*taken, ".parquet"} - {".csv"} or output.resolve() in (p.resolve() for p in found):
        raise LecoError(
            f"{output}: is one of the inputs, or could be one, and inputs are never overwritten; choose another file"
        )
    if not overwrite and not are_predictions(output):
        raise LecoError(f"{output}: was not written by leco; choose another file, or replace it with --overwrite")


def _write_masks(written: Iterator[tuple[LecoError | None]], count: int | None, leads: bool) -> tuple[int, int]:
    """Write the masks of so many images; return the number of problems, and that of images."""
    failed, total = 0, 0
    with progress_bar("predicting", shown=leads) as tick:
        for (problem,) in written:
            total += 1
            if problem is not None:
                failed += 1
                if leads:
                    _say(str(problem))
            tick(total, count)
    return failed, total


def _say(problem: str) -> None:
    typer.echo(printable(problem), err=True)


@contextmanager
def _opened(output: Path | None, leads: bool) -> Iterator[TextIO]:
    """Open standard output, or a file that appears when all of it is written; only the first process writes."""
    from leco.io import replacing

    if not leads:
        with Path(os.devnull).open("w") as nothing:
            yield nothing
    elif output is None:
        yield sys.stdout
    else:
        with replacing(output) as raw:
            text = io.TextIOWrapper(raw, encoding="utf-8", errors="backslashreplace", newline="")
            yield text
            text.flush()
            text.detach()


def _count(model: "Model", inputs: list[str], root: Path | None) -> int | None:
    """The number of images; that of vectors is not known before they are read."""
    from leco.data.inputs import image_paths

    return None if model.description.side is None else sum(1 for _ in image_paths(inputs, root))
