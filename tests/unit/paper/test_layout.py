"""The paper's tables as rows and columns, against its source where it is at hand: every number is in its place."""

import re
from itertools import product

import pytest

from leco.methods.method import ALL_METHODS
from leco.paper import FIRST, TABLES, Key, cells
from leco.paper.formats import as_text
from leco.paper.layout import arrange, narrow, printed

PRINTED = [name for name in TABLES if name != "text"]
NUMBER = re.compile(r"(\d+\.\d+)(?!\d|k)(?:\s*\$?\s*(?:\\pm|±)\s*\$?\s*(\d+\.\d+))?")


@pytest.mark.parametrize("name", TABLES)
def test_both_forms_hold_every_cell_once(name):
    grids = ([printed(name)], narrow(name).values())
    for form in grids:
        found = [cell for grid in form for row in grid.rows for cell in row.entries if cell is not None]
        assert len(found) == len(cells(name))
        assert set(found) == set(cells(name))


@pytest.mark.parametrize("name", [name for name in PRINTED if TABLES[name].layout in ("losses", "hierarchy")])
def test_narrow_tables_have_a_row_for_cells_without_pseudo_labels(name):
    for grid in narrow(name).values():
        assert grid.rows[0].labels == ("none",)
        for row in grid.rows:
            for cell in filter(None, row.entries):
                assert row.labels[0] in (cell.method if "+" in cell.method else "none")


def test_entries_are_laid_out_as_the_narrow_table_of_all_combinations():
    keys = [FIRST, Key(1, annotation="all-fine"), *(Key(1, str(method)) for method in ALL_METHODS)]
    grid = arrange(((key, key.method) for key in keys), "combinations")
    theirs = narrow("combinations")["cifar-leco-1k"]
    assert grid.labels == theirs.labels
    assert set(grid.columns) == set(theirs.columns)
    assert {row.labels for row in grid.rows} == {row.labels for row in theirs.rows}
    placed = {row.labels: dict(zip(grid.columns, row.entries, strict=True)) for row in grid.rows}
    for row in theirs.rows:
        for column, cell in zip(theirs.columns, row.entries, strict=True):
            assert placed[row.labels][column] == (cell and cell.method)


def tabular(source: str, name: str) -> str:
    blocks = re.findall(r"\\begin\{table\*?\}.*?\\end\{table\*?\}", source, re.DOTALL)
    (block,) = [block for block in blocks if f"\\label{{{TABLES[name].label}}}" in block]
    (inside,) = re.findall(r"\\begin\{tabular\}.*?\\end\{tabular\}", block, re.DOTALL)
    return inside


@pytest.mark.parametrize("name", PRINTED)
def test_a_table_has_the_numbers_of_the_paper_in_their_order(name, paper_source):
    ours = [NUMBER.search(str(cell)).groups() for row in printed(name).rows for cell in row.entries if cell]
    assert ours == [match.groups() for match in NUMBER.finditer(tabular(paper_source, name))]
    assert len(ours) == len(cells(name))


@pytest.mark.parametrize("name", PRINTED)
def test_a_table_has_the_benchmarks_of_the_paper_in_their_order(name, paper_source):
    text = tabular(paper_source, name)
    ours = [(row[0], int(row[1].replace(",", ""))) for row in as_text(printed(name))[1:] if row[0]]
    if "combinations" in name:
        found = [(f"{setup.lower()}", float(size) * 1000) for setup, size in re.findall(r"\{(\w+)-([\d.]+)k\}", text)]
        ours = [(benchmark.split("-")[0].replace("cifar", "cifar100"), size) for benchmark, size in ours]
    else:
        sizes = [int(size) for size in re.findall(r"\{(\d{4,})\}", text)]
        found = list(zip((n.lower() for n in re.findall(r"\\it ([\w-]+)\}", text)), sizes, strict=True))
        ours = [(re.match(r"[\w-]+?-leco", benchmark)[0], size) for benchmark, size in ours]
    assert ours == found


WORDS = {
    **{"FinetunePrev": "finetune", "FinetuneNew": "finetune", "FreezePrev": "freeze", "TrainScratch": "scratch"},
    **{"TrainRandom": "random", "LabelNew": "label-new", "RelabelOld": "relabel-old", "AllFine": "all-fine"},
    **{"ST-Hard": "st-hard", "ST-Soft": "st-soft", "PL": "pl", "FixMatch": "fixmatch"},
    **{"Filter": "filter", "Cond": "cond", "Joint": "joint", "LPL": "lpl"},
}


def words_of(text: str) -> list[str]:
    return [WORDS[word] for word in re.findall(rf"(?<![A-Za-z-])(?:{'|'.join(WORDS)})(?![A-Za-z-])", text)]


@pytest.mark.parametrize("name", [name for name in PRINTED if "combinations" not in name])
def test_a_table_has_the_rows_and_columns_of_the_paper(name, paper_source):
    made = printed(name)
    headings, *rows = as_text(made)
    labels = [*headings, *(label for row in rows for label in row[: len(made.labels)])]
    ours = [part for label in labels for part in re.split(r"[+/]", label) if part in WORDS.values()]
    assert ours == words_of(tabular(paper_source, name))


@pytest.mark.parametrize(
    ("name", "pseudo"),
    [("combinations", ["pl", "fixmatch", "st-hard", "st-soft"]), ("combinations-mapillary", ["st-hard"])],
)
def test_the_tables_of_all_combinations_have_the_rows_and_columns_of_the_paper(name, pseudo, paper_source):
    headings, *rows = as_text(printed(name))
    coarse = ["ce", "lpl", "joint"]
    assert headings[3:] == ["TP0", "all-fine", *coarse, *(f"{c}+{p}" for p, c in product(pseudo, coarse))]
    groups = sum(1 for row in rows if row[0])
    assert [row[2] for row in rows] == ["plain", "filter", "cond"] * groups
    header = ["all-fine", "label-new", *pseudo, *["lpl", "joint"] * (1 + len(pseudo))]
    assert words_of(tabular(paper_source, name)) == header + ["filter", "cond"] * groups
