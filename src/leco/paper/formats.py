"""A table of the paper as Markdown, JSON or CSV."""

import csv
import io
import json
from dataclasses import asdict
from typing import Any

from leco.paper.cell import Cell, cells, disagreements, elsewhere
from leco.paper.layout import grid
from leco.paper.tables import table

_METRICS = {"macc": "mAcc", "miou": "mIoU"}


def title(name: str) -> str:
    """What a table shows, and in which unit."""
    found, inside = table(name), cells(name)
    where = f"{found.place} ({found.where})" if found.number else found.place.capitalize()
    metrics = " and ".join(_METRICS[metric] for metric in dict.fromkeys(cell.metric for cell in inside))
    spread = ", mean ± standard deviation of five runs" if any(cell.std for cell in inside) else ""
    single = "; one run on Mapillary" if spread and "mIoU" in metrics else ""
    return f"{where}: {found.caption} {metrics} in %{spread}{single}."


def remarks(name: str) -> list[str]:
    """The lines below a table: what the stars mean, and what else to know."""
    stars = [f"- {disagreement}" for disagreement in disagreements(name)]
    others = [f"- {remark}" for remark in table(name).remarks]
    return (["* The paper disagrees with itself:", *stars] if stars else []) + (["Remarks:", *others] if others else [])


def as_markdown(name: str) -> str:
    """The table as the paper lays it out, with the remarks below it."""
    made = grid(name)
    rule = ["---"] * made.labels + ["---:"] * (len(made.headings) - made.labels)
    lines = [title(name), "", *(f"| {' | '.join(row)} |" for row in (made.headings, rule, *made.rows))]
    for remark in remarks(name):
        lines += [remark] if remark.startswith("- ") else ["", remark, ""]
    return "\n".join(lines).replace("*", r"\*")


def as_json(name: str) -> str:
    """What the table is, its cells, and the remarks."""
    found = table(name)
    about = {"table": found.name, "number": found.number, "label": found.label or None, "where": found.where}
    contradictions = [str(disagreement) for disagreement in disagreements(name)]
    content = {"cells": [_record(cell) for cell in cells(name)], "disagreements": contradictions}
    whole = {**about, "caption": found.caption, **content, "remarks": found.remarks}
    return json.dumps(whole, indent=2, ensure_ascii=False)


def as_csv(name: str) -> str:
    """One row for each cell; numbers have the digits that are printed in the paper."""
    text = io.StringIO()
    writer = csv.DictWriter(text, list(_record(cells(name)[0])), lineterminator="\n")
    writer.writeheader()
    for cell in cells(name):
        value, _, std = str(cell).partition(" ± ")
        writer.writerow({**_record(cell), "value": value, "std": std, "elsewhere": "; ".join(_others(cell))})
    return text.getvalue().rstrip("\n")


def _record(cell: Cell) -> dict[str, Any]:
    """A cell with the other figures that the paper has for it."""
    values = {name: value for name, value in asdict(cell).items() if name != "digits"}
    return values | {"elsewhere": _others(cell)}


def _others(cell: Cell) -> list[str]:
    return [f"{other} ({other.place})" for other in elsewhere(cell)]


FORMATS = {"md": as_markdown, "json": as_json, "csv": as_csv}
