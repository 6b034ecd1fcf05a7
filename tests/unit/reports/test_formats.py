"""Reports as Markdown, LaTeX and CSV."""

import csv
import io
import re

import pytest
from tests.stores import make_stages, write_store

from leco.reports.formats import MOST_PROBLEMS, escape_latex, to_csv, to_latex, to_markdown
from leco.reports.report import make_report
from leco.reports.stored import read_store
from leco.text import escape_markdown as plain


def test_markdown_tables_have_equally_many_cells_in_each_row(report):
    widths = []
    for block in to_markdown(report).split("\n\n"):
        rows = [line for line in block.splitlines() if line.startswith("|")]
        counts = {len(re.findall(r"(?<!\\)\|", row)) for row in rows}
        assert len(counts) <= 1, block
        widths += counts
    assert len(widths) >= 5


def test_names_are_escaped_in_markdown_and_latex():
    assert plain("a|b <i> *c* _d_\nnew") == r"a\|b \<i\> \*c\* \_d\_ new"
    assert escape_latex("50 % & a_b ± {c} \\x ^") == r"50 \% \& a\_b $\pm$ \{c\} \textbackslash{}x \textasciicircum{}"


def test_latex_tables_are_closed_and_have_equally_many_columns(report):
    text = to_latex(report)
    for name in ("table", "tabular"):
        assert text.count(f"\\begin{{{name}}}") == text.count(f"\\end{{{name}}}") > 0
    for columns, body in re.findall(r"\\begin\{tabular\}\{(\w+)\}(.*?)\\end\{tabular\}", text, re.DOTALL):
        for row in (line for line in body.splitlines() if line.endswith("\\\\")):
            assert len(re.findall(r"(?<!\\)&", row)) == len(columns) - 1


def test_the_csv_has_a_row_for_every_cell(report):
    rows = list(csv.DictReader(io.StringIO(to_csv(report))))
    assert len(rows) == len(report.parts[0].section.cells)
    lpl = next(row for row in rows if row["method"] == "lpl")
    assert float(lpl["mean"]) == pytest.approx(57, abs=1)
    assert lpl["n"] == "3"
    assert lpl["seeds"] == "0 1 2"
    assert float(lpl["paper"]) > 0


def test_a_table_has_scores_shares_and_the_papers_figures(report):
    text = to_markdown(report)
    assert "4 of 10 cells trained, 3 seeds." in text
    assert "| finetune | 49.8 ± 0.4 (paper 50.92 ± 0.89) | **49.8 ± 0.4** (paper 33.53 ± 0.57) | – (paper" in text
    assert "| none |  | 56.8 ± 0.4 (closes 58 %; paper 38.47 ± 0.52) |  |  | 61.8 ± 0.4 (paper 42.27" in text


def test_numbers_of_seeds_that_differ_are_marked(tmp_path):
    write_store(tmp_path, make_stages([0, 1]))
    write_store(tmp_path, make_stages([2], {"ce": 0.5}, cells=()))
    text = to_markdown(make_report(read_store(tmp_path)))
    assert "2 to 3 seeds, as marked" in text
    assert "(n 3; paper" in text


def test_problems_are_listed_up_to_a_limit(tmp_path):
    for number in range(MOST_PROBLEMS + 5):
        (tmp_path / "stages" / str(number)).mkdir(parents=True)
    lines = [line for line in to_markdown(make_report(read_store(tmp_path))).splitlines() if "left out" in line]
    assert len(lines) == MOST_PROBLEMS + 1
    assert lines[-1] == "- left out: … and 5 more"


@pytest.mark.parametrize("write", [to_markdown, to_latex, to_csv])
def test_an_empty_store_gives_an_empty_report(tmp_path, write):
    (tmp_path / "stages").mkdir()
    assert len([line for line in write(make_report(read_store(tmp_path))).splitlines() if line]) <= 2
