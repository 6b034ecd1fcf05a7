"""Rows of the tables in docs/explanation/performance.md, and points of its figures.

Scripts print them; under `make bench`, they also go to the file named in the environment variable LECO_BENCH, as lines
of JSON.
"""

import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any


def row(table: str, measured: str, result: str, *, goal: str = "", limit: str = "") -> None:
    """Add a row to a table: what was measured, the result, what it should be, and what limits it."""
    print(f"{measured}: {result}" + (f" (goal {goal})" if goal else ""), flush=True)
    _note({"table": table, "measured": measured, "result": result, "goal": goal, "limit": limit})


def line(figure: str, name: str, points: Mapping[int, float]) -> None:
    """Add a line to a figure, as values over sizes."""
    _note({"figure": figure, "name": name, "x": list(points), "y": list(points.values())})


def _note(found: dict[str, Any]) -> None:
    if path := os.environ.get("LECO_BENCH"):
        command = " ".join([Path(sys.argv[0]).name, *sys.argv[1:]])
        with Path(path).open("a") as file:
            file.write(json.dumps(found | {"script": command}, ensure_ascii=False) + "\n")
