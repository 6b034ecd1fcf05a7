"""`leco plan` on images, with a model trained for it, and on masks."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from tests.commands import assert_refused, leco

from leco.data.benchmarks import mapillary, registry
from leco.planning import subsamples


@pytest.fixture(autouse=True)
def _few_levels(monkeypatch: pytest.MonkeyPatch) -> None:
    """Four levels instead of twelve."""
    monkeypatch.setattr(subsamples, "NEW_LEVELS", (1.0, 0.5))
    monkeypatch.setattr(subsamples, "OLD_LEVELS", (1.0, 0.0))


def test_images_get_the_features_of_the_model_before_and_test_is_not_touched(tmp_path):
    call = ["plan", "digits-leco", "--size", 60, "--set", "training.steps=40", "--draws", 5]
    call += ["--budget", 30, "--cost-collect", 0.5, "--json"]
    result = leco(*call, cwd=tmp_path)
    assert result.returncode == 0, result.stderr
    plan = json.loads(result.stdout)
    assert "mlp of stage" in plan["features"]
    assert "trained for this plan" in plan["features"]
    assert plan["costs"]["relabel_from_ontology"]
    assert 0.4 < plan["costs"]["relabel"] < 0.65  # log2 of 3 or 4 classes, of log2 10
    results = [json.loads(path.read_text()) for path in tmp_path.glob("runs/stages/*/result.json")]
    assert [found["test"] for found in results] == [None]
    assert leco(*call, cwd=tmp_path).stdout == result.stdout
    report = leco("report", "runs", "-o", "report.html", cwd=tmp_path)
    assert report.returncode == 0, report.stderr
    assert "What to annotate next: digits-leco" in (tmp_path / "report.html").read_text()


def test_a_model_of_the_store_is_used(tmp_path):
    settings = ["--set", "training.steps=40"]
    assert leco("run", "digits-leco", "--size", 60, "--method", "ce", *settings, cwd=tmp_path).returncode == 0
    before = sorted(tmp_path.glob("runs/stages/*"))
    result = leco("plan", "digits-leco", "--size", 60, *settings, "--draws", 5, "--budget", 30, cwd=tmp_path)
    assert "of the store; a head on them" in " ".join(result.stdout.split())
    assert sorted(tmp_path.glob("runs/stages/*")) == before


def test_masks_are_planned_by_the_image(vistas_root: Path, tmp_path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(mapillary, "_LONGER_EDGE", 40)
    small = replace(registry.NAMES["mapillary-leco-2.5k"], classes=(4, 6), size=10)
    monkeypatch.setitem(registry.NAMES, small.name, small)
    call = ["plan", small.name, "--data", vistas_root, "--backbone", "pixels", "--draws", 5, "--budget", 5, "--json"]
    plan = json.loads(leco(*call, cwd=tmp_path).stdout)
    assert plan["now"]["newest"] == plan["now"]["relabellable"] == 10
    assert {row["class"]: row["labelled"] for row in plan["classes"]}["lane"] == 10  # an image counts once
    assert next(row for row in plan["classes"] if row["class"] == "ego")["expected"] is None  # does not count
    assert plan["now"]["macc"] > 0.4  # the images are their labels
    assert any("whole images" in line for line in plan["assumes"])


def test_wrong_backbones_are_refused(tmp_path):
    call = ["plan", "digits-leco", "--budget", 5, "--backbone"]
    assert_refused([*call, "resnet1888"], "'resnet1888' is no backbone", tmp_path)
