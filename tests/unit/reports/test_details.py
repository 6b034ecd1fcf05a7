"""Details of cells."""

import pytest

from leco.paper import Key
from leco.reports.details import (
    Mistakes,
    best_on_validation,
    class_scores,
    curve,
    main_cells,
    mistakes,
    mistakes_by_parent,
    ontology_of,
)


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


def test_curves_are_means_over_seeds(report):
    section = report.parts[0].section
    scores = [record.score for record in section.cells[Key(1, "lpl")].values()]
    assert [(point.step, point.value) for point in curve(section, Key(1, "lpl"), "score")] == [
        (20, pytest.approx(sum(scores) / 6)),
        (40, pytest.approx(sum(scores) / 3)),
    ]
    assert curve(section, Key(1, "lpl"), "kept") == []  # has no pseudo-labels
    assert [point.value for point in curve(section, Key(1, "ce+st-hard"), "kept")] == [0.9, 0.9]


def test_figures_show_the_main_methods_and_the_best_one(report):
    section = report.parts[0].section
    assert best_on_validation(section) == Key(1, "lpl+st-hard/cond")
    assert list(main_cells(section)) == ["ce", "joint", "lpl", "lpl+st-hard/cond", "all-fine"]
