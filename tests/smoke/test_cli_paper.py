"""`leco paper`, as a user would run it."""

import csv
import json
import re
import subprocess
import sys
from functools import partial

import pytest
from tests import commands

from leco.paper import TABLES, cells

leco = partial(commands.leco, "paper")


def test_without_a_name_it_lists_the_tables_and_the_disagreements():
    result = leco()
    assert result.returncode == 0, result.stderr
    for name in TABLES:
        assert f" {name} " in result.stdout
    assert "disagrees with itself on 7 results" in result.stdout
    assert "65.40 (introduction; the tables give this figure for cifar-leco-10k)" in result.stdout


@pytest.mark.parametrize("name", TABLES)
def test_every_table_fits_a_terminal_and_shows_all_its_cells(name):
    result = leco(name)
    assert result.returncode == 0, result.stderr
    body = result.stdout.splitlines()[1:]
    below = next((i for i, line in enumerate(body) if line.startswith(("* ", "Remarks"))), len(body))
    assert max(len(line) for line in body[:below]) <= 80
    shown = "\n".join(body[:below]).replace("*", " ").split()
    assert sum(bool(re.fullmatch(r"\d\d\.\d+(±\d\.\d+)?", word)) for word in shown) == len(cells(name))


def test_markdown_is_laid_out_as_in_the_paper_with_remarks_below():
    text = leco("baseline", "--format", "md").stdout
    assert "| benchmark | images/TP | strategy | TP0 | label-new | relabel-old | all-fine |" in text
    assert r"| cifar-leco-10k | 10,000 | finetune | 77.78 ± 0.27 | 65.83 ± 0.53\* | 65.30 ± 0.32 | 71.30" in text
    assert "65.83 ± 0.53 (Table 2, Table 9) or 65.83 ± 0.27 (Table 3, Table 10, Table 12)" in text


def test_json_and_csv_hold_the_cells_and_the_other_figures():
    read = json.loads(leco("losses-4tp", "--format", "json").stdout)
    assert (read["number"], read["label"], len(read["cells"])) == (6, "tab:full_4_tps", 36)
    assert len(read["disagreements"]) == 2
    rows = list(csv.DictReader(leco("2", "--format", "csv").stdout.splitlines()))
    assert len(rows) == 27
    assert (rows[1]["value"], rows[1]["std"], rows[1]["elsewhere"]) == ("65.83", "0.53", "65.83 ± 0.27 (Table 3)")
    assert (rows[2]["value"], rows[2]["annotation"]) == ("65.30", "relabel-old")


BAD = {
    "unknown table": (["basline"], "'basline' is not a table of results in the paper; did you mean 'baseline'?"),
    "unknown format": (["baseline", "--format", "jsn"], "--format: 'jsn' is not a format; did you mean 'json'?"),
    "no table": (["--format", "md"], "--format: needs a table; `leco paper` lists them"),
}


@pytest.mark.parametrize("case", BAD)
def test_a_wrong_call_gives_one_message(case, tmp_path):
    arguments, message = BAD[case]
    commands.assert_refused(["paper", *arguments], message, tmp_path)


def test_it_imports_neither_torch_nor_pandas():
    code = """
import sys
sys.argv = ["leco", "paper", "baseline"]
from leco.cli.main import app
try:
    app()
except SystemExit:
    pass
sys.exit(any(name in sys.modules for name in ("torch", "numpy", "pandas")))
"""
    assert subprocess.run([sys.executable, "-c", code], capture_output=True).returncode == 0
