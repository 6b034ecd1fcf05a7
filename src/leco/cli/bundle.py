"""`leco bundle`, `leco upgrade` and `leco export`: prepare models for production."""

from pathlib import Path
from typing import Annotated

import typer

from leco.cli.predict import BundleFolder, NoVerify
from leco.errors import LecoError, nearest

_Folder = Annotated[
    Path, typer.Option("-o", "--output", help="Folder to write: a new one, or one with a bundle to replace.")
]


def bundle(
    runs: Annotated[
        str, typer.Argument(metavar="RUNS", help="Folder of trained stages, or an address such as s3://bucket/runs.")
    ],
    stage: Annotated[
        str, typer.Argument(metavar="FINGERPRINT", help="A stage in `leco runs`; a unique prefix is enough.")
    ],
    output: _Folder,
) -> None:
    """Write the model of a stage as a bundle.

    A bundle is a folder with everything needed to use the model.
    """
    from leco.experiments.bundles import bundle_stage
    from leco.experiments.remote import Remote, is_url, local_path
    from leco.experiments.store import Store

    if is_url(runs):
        remote = Remote(runs)
        name = _whole(stage, remote.complete(), runs)
        remote.fetch([name])
        remote.fetch_ontologies()
        store = remote.store
    else:
        store = Store(local_path(runs))
        if not store.stages.is_dir():
            raise LecoError(f"{runs}: holds no stages")
        name = _whole(stage, sorted(path.name for path in store.stages.iterdir()), runs)
    bundle_stage(store, name, output)
    typer.echo(f"bundle: {output}")


def _whole(start: str, names: list[str], runs: str) -> str:
    """The one stage whose fingerprint has this prefix."""
    found = [name for name in names if name.startswith(start)]
    if len(found) != 1:
        problem = f"the prefix matches {len(found)} stages" if found else f"no such stage{nearest(start, names)}"
        raise LecoError(f"{runs}: {start}: {problem}; `leco runs {runs}` lists them")
    return found[0]


def upgrade(
    bundle: BundleFolder,
    ontology: Annotated[
        Path, typer.Option("--ontology", help="The ontology with its new version: .yaml, .json or .tsv.")
    ],
    output: _Folder,
    no_verify: NoVerify = False,
) -> None:
    """Upgrade a model to a new version, without training.

    It is as good as before at the old versions, and training can start from it.
    """
    from leco.model.bundle import check_target
    from leco.model.model import load

    model = load(bundle, verify=not no_verify)
    check_target(output, model.description.task, bundle)
    newer = model.upgrade(ontology)
    newer.save(output)
    history, old, new = newer.ontology, model.description.newest, newer.description.newest
    typer.echo(f"from {old} ({len(history[old]):,} classes) to {new} ({len(history[new]):,} classes)")
    for change in history.changes(old, new):
        if change.kind in ("merged", "redrawn", "removed", "ignored"):
            which = ", ".join(change.old) or ", ".join(change.new)
            typer.echo(f"note: {change.kind}: {which}: predictions at {old} change there")
    typer.echo(f"bundle: {output}; train it with: leco run experiment.yaml --start {output}")


def export(
    bundle: BundleFolder,
    output: Annotated[Path, typer.Option("-o", "--output", help="File to write, such as model.onnx.")],
    onnx: Annotated[bool, typer.Option("--onnx", help="As ONNX, the only format so far.")] = True,
    no_verify: NoVerify = False,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace a file that leco did not write, too.")
    ] = False,
) -> None:
    """Export a model to ONNX, to serve it without leco.

    The file is checked against torch first.
    """
    if output.suffix != ".onnx":
        raise LecoError(f"{output}: the suffix must be .onnx, the only format")

    from leco.io import check_replaceable
    from leco.model.model import load
    from leco.model.onnx import input_shape, output_names

    check_replaceable(output, rb"leco\.versions", overwrite)
    model = load(bundle, verify=not no_verify)
    if bundle.resolve() in output.resolve().parents:
        raise LecoError(f"{output}: is inside the bundle; choose another place")
    difference = model.export(output)
    shape = " x ".join(map(str, input_shape(model.description)))
    typer.echo(f"{output}: {output.stat().st_size / 1e6:.1f} MB; takes `input`, n x {shape}")
    typer.echo(f"returns {', '.join(output_names(model.description))}")
    typer.echo(f"onnxruntime and torch differ by at most {difference:.1g} on random inputs")
