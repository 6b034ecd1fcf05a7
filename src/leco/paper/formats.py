"""Tables of the paper as text: for the terminal, and as Markdown, JSON or CSV."""

import csv
import io
import json
from dataclasses import asdict
from typing import Any

from leco.paper.cell import Cell, cells, disagreements, elsewhere
from leco.paper.layout import Grid, printed
from leco.paper.tables import table

_METRICS = {"macc": "mAcc", "miou": "mIoU"}


def title(name: str) -> str:
    """The title of a table: its place in the paper, its caption and its unit."""
    found, inside = table(name), cells(name)
    where = f"{found.place} ({found.where})" if found.number else found.place.capitalize()
    metrics = " and ".join(_METRICS[metric] for metric in dict.fromkeys(cell.metric for cell in inside))
    spread = ", mean ± standard deviation of five runs" if any(cell.std for cell in inside) else ""
    single = "; one run on Mapillary" if spread and "mIoU" in metrics else ""
    return f"{where}: {found.caption} {metrics} in %{spread}{single}."


def remarks(name: str) -> list[str]:
    """The lines below a table: results with several figures, which are starred, and remarks."""
    stars = [f"- {disagreement}" for disagreement in disagreements(name)]
    others = [f"- {remark}" for remark in table(name).remarks]
    return (["* The paper disagrees with itself:", *stars] if stars else []) + (["Remarks:", *others] if others else [])


def as_text(grid: Grid[Cell]) -> list[list[str]]:
    """The lines of a table, headings first. Labels are not repeated; a star marks results with several figures."""
    lines, above = [[*grid.labels, *grid.columns]], tuple[str, ...]()
    for row in grid.rows:
        labels = [label if row.labels[: i + 1] != above[: i + 1] else "" for i, label in enumerate(row.labels)]
        lines.append(
            [*labels, *("" if cell is None else f"{cell}{'*' * bool(elsewhere(cell))}" for cell in row.entries)]
        )
        above = row.labels
    return lines


def as_markdown(name: str) -> str:
    """The table as it is printed, with the remarks below it."""
    grid = printed(name)
    headings, *rows = as_text(grid)
    rule = ["---"] * len(grid.labels) + ["---:"] * len(grid.columns)
    lines = [title(name), "", *(f"| {' | '.join(row)} |" for row in (headings, rule, *rows))]
    for remark in remarks(name):
        lines += [remark] if remark.startswith("- ") else ["", remark, ""]
    return "\n".join(lines).replace("*", r"\*")


def as_json(name: str) -> str:
    """The table with its cells and remarks."""
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
        record = _record(cell)
        writer.writerow({**record, "value": value, "std": std, "elsewhere": "; ".join(record["elsewhere"])})
    return text.getvalue().rstrip("\n")


def _record(cell: Cell) -> dict[str, Any]:
    """A cell with the other figures that the paper gives for it."""
    values = {name: value for name, value in asdict(cell).items() if name != "digits"}
    return values | {"elsewhere": [f"{other} ({other.place})" for other in elsewhere(cell)]}


FORMATS = {"md": as_markdown, "json": as_json, "csv": as_csv}
