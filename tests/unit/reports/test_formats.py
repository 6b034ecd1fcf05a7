"""Reports as Markdown, LaTeX, CSV and HTML."""

import csv
import io
import re
from html.parser import HTMLParser

import pytest
from tests.stores import CLASSES, make_stages, write_store

from leco.data.benchmarks import NAMES
from leco.experiments.experiment import Training
from leco.experiments.relevance import USUAL, unused
from leco.model.card import plain
from leco.reports.details import ClassScore, Mistakes, class_scores, mistakes, mistakes_by_parent, ontology_of
from leco.reports.formats import _tex, to_csv, to_latex, to_markdown
from leco.reports.page import group_by_support, to_html
from leco.reports.plots import classes_dots
from leco.reports.report import make_report, task_of
from leco.reports.sections import Key
from leco.reports.stored import read_store


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    return write_store(tmp_path_factory.mktemp("runs"), make_stages(range(3)))


@pytest.fixture(scope="module")
def report(runs):
    return make_report(read_store(runs))


class Tags(HTMLParser):
    """Which tags a page has, and what it would load."""

    def __init__(self):
        super().__init__()
        self.tags, self.loaded = [], []

    def handle_starttag(self, tag, attributes):
        self.tags.append(tag)
        self.loaded += [value for name, value in attributes if name in ("src", "href", "srcset", "data", "action")]


def test_the_page_is_one_file_without_scripts(report):
    page = to_html(report)
    found = Tags()
    found.feed(page)
    assert {"script", "link", "iframe", "object"}.isdisjoint(found.tags)
    assert all(value.startswith(("data:image/", "#")) for value in found.loaded)
    assert "url(" not in page
    assert "@import" not in page


def test_class_names_are_escaped_in_the_page(report):
    page = to_html(report)
    assert CLASSES["v2"][0] not in page
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in page


def test_names_are_shown_as_they_are_in_figures():
    names = ["<script>", "$x$", "_hidden", "a&b", "名前", "tab\there"]
    svg = classes_dots({"$m$": [ClassScore(name, 1, 0.5) for name in names]}, "accuracy")
    assert "<script>" not in svg
    for text in ("&lt;script&gt;", "$x$", "_hidden", "a&amp;b", "名前", "tabhere", "$m$"):
        assert text in svg


def test_figures_follow_light_and_dark():
    svg = classes_dots({"ce": [ClassScore("a", 1, 0.5)]}, "accuracy")
    assert "prefers-color-scheme:dark" in svg
    assert "currentColor" in svg
    assert "#010203" not in svg


def test_the_page_holds_every_part(report):
    page = to_html(report)
    for heading in (
        "Table 2",
        "Table 3",
        "Table 4",
        "Table 12",
        "conclusions",
        "Learning curves",
        "Pseudo-labels over",
    ):
        assert heading in page
    for heading in ("Classes", "Where mistakes go", "Siblings that are confused most", "Ontology odd", "torch 2.6.0"):
        assert heading in page


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
    assert _tex("50 % & a_b ± {c} \\x ^") == r"50 \% \& a\_b $\pm$ \{c\} \textbackslash{}x \textasciicircum{}"


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


def test_mixed_budgets_make_parts_of_their_own(tmp_path):
    write_store(tmp_path, make_stages([0]))
    write_store(tmp_path, make_stages([0], steps=80))
    made = make_report(read_store(tmp_path))
    assert [part.title for part in made.parts] == ["cifar-leco-1k (1 of 2)", "cifar-leco-1k (2 of 2)"]
    assert all("±" not in to_csv(made) for _ in made.parts)
    for form in (to_html, to_markdown, to_latex, to_csv):
        assert form(made)


def test_parts_say_what_sets_them_apart(tmp_path):
    methods = {"ce": 0.5, "lpl+st-hard/cond": 0.6}
    stages = [*make_stages([0], methods), *make_stages([0], methods, balance=True)]
    write_store(tmp_path, list({stage.fingerprint: (stage, score) for stage, score in stages}.values()))
    made = make_report(read_store(tmp_path))
    assert [dict(part.facts)["further settings"] for part in made.parts] == ["balance False", "balance True"]
    assert {row["further_settings"] for row in csv.DictReader(io.StringIO(to_csv(made)))} == {
        "balance False",
        "balance True",
    }
    for part in made.parts:  # what has no guesses to balance stands in both
        assert {key.method for key in part.section.cells} == methods.keys()


def test_what_is_no_default_is_told_even_if_nothing_else_is_there(tmp_path):
    write_store(tmp_path, make_stages([0], adjust=0.5))
    (part,) = make_report(read_store(tmp_path)).parts
    assert dict(part.facts)["further settings"] == "adjust 0.5"


def test_usual_settings_are_the_defaults():
    defaults = Training().model_dump(mode="json")
    assert {name: defaults[name] for name in USUAL} == USUAL
    assert set(unused("ce", "none", "finetune")) < USUAL.keys()


def test_tasks_are_known_by_name():
    for name, recipe in NAMES.items():
        assert task_of(name) == recipe.task
    assert task_of("labels") is None


def test_an_empty_store_gives_an_empty_report(tmp_path):
    (tmp_path / "stages").mkdir()
    made = make_report(read_store(tmp_path))
    assert "no complete stage" in to_html(made)
    assert to_markdown(made)
    assert to_latex(made)
    assert len(to_csv(made).splitlines()) == 1


def test_a_report_without_details_has_no_figures(tmp_path):
    write_store(tmp_path, make_stages([0]))
    for path in (*tmp_path.glob("stages/*/metrics.jsonl"), *tmp_path.glob("stages/*/result.json")):
        path.write_text("broken")
    page = to_html(make_report(read_store(tmp_path)))
    assert "Table 2" in page
    assert "<figure>" not in page.split("<details")[0]


def test_the_data_of_a_segmentation_are_shown(tmp_path):
    stages = make_stages([0], benchmark="camvid-leco")
    write_store(tmp_path, stages, metric="miou")
    for path in tmp_path.glob("stages/*"):
        (path / "overlays.png").write_bytes(b"\x89PNG\r\n")
    made = make_report(read_store(tmp_path))
    assert made.parts[0].section.metric == "miou"
    assert "mean intersection over union" in to_markdown(made)
    assert "data:image/png;base64," in to_html(made)


def test_mistakes_within_the_parent_are_what_is_right_at_the_older_version(runs, report):
    section, key = report.parts[0].section, Key(1, "lpl")
    found = mistakes(section, key)
    new = class_scores(section, key, "v2")[0].value
    assert found.right == pytest.approx(new)
    assert found.within == pytest.approx(0.1)
    assert found.within_share == pytest.approx(0.1 / (1 - new))
    assert found.right + found.within + found.outside == pytest.approx(1)
    by_parent = mistakes_by_parent(section, key, ontology_of(section, runs))
    assert by_parent.keys() == {"a|b", "other"}
    assert by_parent["a|b"].within == pytest.approx(0.1)
    assert Mistakes(1.0, 0.0, 0.0).within_share is None


def test_equally_frequent_classes_are_in_one_group():
    classes = [ClassScore(str(i), support, i / 10) for i, support in enumerate([1, 2, 2, 2, 2, 2, 2, 2, 9, 10])]
    assert [name for name, _ in group_by_support(classes)] == ["1 to 2", "9 to 10"]
