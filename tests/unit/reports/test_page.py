"""Reports as an HTML page."""

import json
from html.parser import HTMLParser

from tests.stores import CLASSES, make_stages, write_store

from leco.reports.details import ClassScore, group_by_frequency, group_means
from leco.reports.formats import to_markdown
from leco.reports.page import to_html
from leco.reports.report import make_report
from leco.reports.stored import read_store


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
    for heading in ("Classes", "Kinds of mistakes", "Most confused siblings", "Ontology odd", "torch 2.6.0"):
        assert heading in page


def test_a_report_without_details_has_no_figures(tmp_path):
    write_store(tmp_path, make_stages([0]))
    for path in tmp_path.glob("stages/*/metrics.jsonl"):
        path.unlink()
    for path in tmp_path.glob("stages/*/result.json"):
        path.write_text(json.dumps(json.loads(path.read_text()) | {"test": None}))
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


def test_an_empty_store_gives_an_empty_page(tmp_path):
    (tmp_path / "stages").mkdir()
    assert "no complete stage" in to_html(make_report(read_store(tmp_path)))


def test_equally_frequent_classes_are_in_one_group():
    classes = [ClassScore(str(i), support, i / 10) for i, support in enumerate([1, 2, 2, 2, 2, 2, 2, 2, 9, 10])]
    assert list(group_by_frequency(classes)) == ["1 to 2", "9 to 10"]


def test_classes_are_grouped_by_labels_where_these_are_known():
    classes = [ClassScore("a", 50, 0.5, 3), ClassScore("b", 50, 0.6, 0), ClassScore("c", 50, 0.8, 3.2)]  # of five seeds
    groups = group_by_frequency(classes)
    assert groups == {"0": ["b"], "3": ["a", "c"]}
    assert group_means(groups, classes) == [("0", 0.6), ("3", (0.5 + 0.8) / 2)]
