"""The numbers of the paper, as data: every cell of its result tables, and where it disagrees with itself."""

from leco.paper.cell import Cell, Disagreement, cells, disagreements, value_of
from leco.paper.tables import TABLES, Table, table

__all__ = ["TABLES", "Cell", "Disagreement", "Table", "cells", "disagreements", "table", "value_of"]
