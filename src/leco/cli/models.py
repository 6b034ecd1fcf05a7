"""`leco models`: backbones and their weights on this machine."""

import json
from typing import TYPE_CHECKING, Annotated, Any

import typer

from leco.cli.terminal import print_table
from leco.errors import LecoError, nearest, printable

if TYPE_CHECKING:
    from leco.models.weights import Weights

_MOST = 40  # rows of a table
_ABSENT = "not on this machine"
_Row = dict[str, Any]


def models(
    pattern: Annotated[
        str | None, typer.Argument(metavar="PATTERN", help="List timm's models that match instead: 'resnet*'.")
    ] = None,
    speed: Annotated[
        bool, typer.Option(help="Measure the speed of embedding, if the weights are on this machine.")
    ] = True,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")] = False,
    device: Annotated[
        str, typer.Option(help="auto (a GPU if there is one), cpu, cuda, cuda:1, mps or another that torch knows.")
    ] = "auto",
) -> None:
    """List the pretrained backbones on this machine, and their speed."""
    import timm

    from leco.devices import make_fabric
    from leco.models.backbones import embedding_speed
    from leco.models.weights import HOW_TO_GET, local_weights, weights_on_this_machine

    on_machine = weights_on_this_machine()
    found: dict[str, Weights | None] = {weights.backbone: weights for weights in on_machine}
    if pattern is not None:
        names = timm.list_models(pattern)
        if not names:
            raise LecoError(f"{pattern!r} matches no model of timm{nearest(pattern, timm.list_models())}")
        found = {name: local_weights(name) for name in names}
    rows = []
    place = make_fabric(device).device if speed and any(found.values()) else None
    for name, weights in list(found.items())[: None if as_json else _MOST]:
        try:
            row = _row(name, weights)
            if weights is not None and place is not None:
                row["images_per_second"] = embedding_speed(weights, place)
        except LecoError as error:  # damaged weights must not hide the others
            typer.echo(printable(str(error)), err=True)
            row = _row(name, None) | {"weights": "damaged"}
        rows.append(row)
    if as_json:
        typer.echo(json.dumps(rows, indent=1))
        return
    if rows:
        headings = ["backbone", "weights", "params", "px", "images/s"]
        filler = [[""] * len(headings)] * (len(found) - len(rows))  # counted, but not shown
        print_table(headings, [*map(_cells, rows), *filler], right=(2, 3, 4), most=_MOST)
    if not on_machine:
        typer.echo(f"no pretrained weights on this machine; {HOW_TO_GET}")


def _row(name: str, weights: "Weights | None") -> _Row:
    from leco.models.timm_models import input_config, parameter_count

    return {
        "backbone": name,
        "weights": None if weights is None else weights.source,
        "parameters": parameter_count(name),
        "input": input_config(name).side,
        "digest": None if weights is None else weights.digest,
        "images_per_second": None,
    }


def _cells(row: _Row) -> list[str]:
    speed = row["images_per_second"]
    return [
        *(row["backbone"], row["weights"] or _ABSENT, f"{row['parameters'] / 1e6:.1f} M", str(row["input"])),
        "" if speed is None else f"{speed:,.0f}",
    ]
