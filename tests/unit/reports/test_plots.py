"""Figures as SVG."""

import re

from leco.reports.details import ClassScore, Point
from leco.reports.plots import classes_dots, curves


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


def test_long_names_make_a_legend_of_fewer_columns():
    def columns(length):
        names = [str(number) * length for number in range(6)]
        svg = curves({name: [Point(1, 0.5), Point(2, 0.6)] for name in names}, "%")
        places = [re.search(rf'x="([\d.]+)"[^>]*>{name}<', svg)[1] for name in names]
        return len(set(places))

    assert [columns(length) for length in (2, 27, 60)] == [4, 2, 1]
