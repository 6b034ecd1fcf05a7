"""The paper's results as data: every cell of its tables, its conclusions, and where it disagrees with itself."""

from leco.paper.cell import FIRST, Cell, Disagreement, Key, cells, disagreements, value_of
from leco.paper.tables import TABLES, Table, table

__all__ = ["FIRST", "TABLES", "Cell", "Disagreement", "Key", "Table", "cells", "disagreements", "table", "value_of"]
