"""Data frames as the rows of a manifest."""

import reprlib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from leco.data.manifest.table import Table
from leco.dataset.labels import is_missing
from leco.errors import LecoError


def as_table(frame: Any) -> Table:
    """Convert a data frame or a mapping of columns to a table of text."""
    for method in ("to_pydict", "to_dict"):  # Arrow; pandas, polars
        if hasattr(frame, method) and not isinstance(frame, type):
            convert = getattr(frame, method)
            try:
                frame = convert(orient="list")
            except TypeError:
                frame = convert(as_series=False) if "polars" in type(frame).__module__ else convert()
            break
    if not isinstance(frame, Mapping):
        raise LecoError(f"from_table: pass a data frame or a mapping of columns, not {type(frame).__name__}")
    for name, values in frame.items():
        if isinstance(values, str | bytes) or not isinstance(values, Iterable):
            raise LecoError(f"from_table: the column {name!r} must be a list of values, not {reprlib.repr(values)}")
    columns = {str(name): [_as_cell(value) for value in values] for name, values in frame.items()}
    if len({len(cells) for cells in columns.values()}) > 1:
        raise LecoError("from_table: the columns differ in length")
    return Table(Path("table"), columns)


def _as_cell(value: Any) -> str:
    return "" if is_missing(value) else str(value).strip()
