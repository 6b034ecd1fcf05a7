"""A plan in the report of its store."""

import json
from pathlib import Path

import pytest

from leco.reports.formats import to_markdown
from leco.reports.page import to_html
from leco.reports.report import make_report
from leco.reports.stored import read_store

ODD = "<script>alert(1)</script>"


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    point = {
        "kind": "mixture",
        "new": 20,
        "relabel": 50,
        "collect": 5,
        "cost": 40.0,
        "macc": 0.62,
        "low": 0.6,
        "high": 0.65,
    }
    row = {"class": ODD, "labelled": 7, "history": 9.0, "new": 1.5, "relabel": 3.5}
    plan = {
        **{"format": 1, "source": "e.yaml", "data": "labels", "task": "features", "versions": ["v1", "v2"], "seed": 0},
        **{"features": "the feature vectors themselves", "draws": 10, "budget": 40.0},
        "costs": {"new": 1.0, "relabel": 0.4, "collect": 0.0, "relabel_from_ontology": False},
        "now": {
            **{"newest": 100, "validation": 0, "history": 90, "relabellable": 80, "known_already": 7, "unlabelled": 3},
            **{"macc": 0.5, "low": 0.48, "high": 0.52},
        },
        **{"chosen": point, "decided": False, "rivals": ["relabel-old"], "alternatives": []},
        "break_even": {"ratio": 0.8, "low": 0.7, "high": 0.9},
        "relabel": [{"version": "v1", "class": "a|b", "count": 50, "of": 80, "cost": 0.4}],
        "classes": [
            row | {"accuracy": 0.25, "expected": 0.5, "low": 0.375, "high": 0.625},
            row | {"class": "unseen"} | dict.fromkeys(("accuracy", "expected", "low", "high")),
        ],
        "curve": [
            {"strategy": name, "cost": cost, "macc": 0.5 + cost / 400, "low": 0.5, "high": 0.7}
            for name in ("label-new", "relabel-old", "best")
            for cost in (10.0, 40.0)
        ],
        "assumes": ["that all is well"],
    }
    folder = tmp_path / "runs" / "plans" / "0123456789abcdef"
    folder.mkdir(parents=True)
    (folder / "plan-01234567.json").write_text(json.dumps(plan))
    (folder / "plan-broken.json").write_text(json.dumps({**plan, "chosen": {}}))
    return tmp_path / "runs"


def test_a_store_with_a_plan_alone_has_a_report(runs):
    report = make_report(read_store(runs))
    assert len(report.plans) == 1
    assert [problem.rpartition("/")[2] for problem in report.problems] == [
        "plan-broken.json: is damaged, or of another version of leco: chosen.macc: is missing; make a new one with "
        "`leco plan`"
    ]
    html, markdown = to_html(report), to_markdown(report)
    assert ODD not in html
    assert "&lt;script&gt;" in html
    for text in (html, markdown):
        for expected in ("62.0 % (60.0 to 65.0)", "not decided: relabel-old may be as good", "37.5 to 62.5", "0.80"):
            assert expected in text
    assert html.count("<img") == 1  # cost against accuracy
    assert "not measured" in html
