"""`leco plan` on images, with a model trained for it, and on masks."""

import csv
import json
from dataclasses import replace
from pathlib import Path

import pytest
from tests.commands import assert_refused, leco

from leco.data.benchmarks import BENCHMARKS, Benchmark


def test_images_get_the_features_of_the_model_before_and_test_is_not_touched(tmp_path):
    call = ["plan", "digits-leco", "--size", 60, "--set", "training.batches.steps=40", "--draws", 5]
    call += ["--budget", 30, "--cost-collect", 0.5, "--json"]
    result = leco(*call, cwd=tmp_path)
    assert result.returncode == 0, result.stderr
    plan = json.loads(result.stdout)
    assert "mlp of stage" in plan["features"]
    assert plan["costs"]["relabel_from_ontology"]
    assert 0.4 < plan["costs"]["relabel"] < 0.65  # log2 of 3 or 4 classes, of log2 10
    results = [json.loads(path.read_text()) for path in tmp_path.glob("runs/stages/*/result.json")]
    assert [found["test"] for found in results] == [None]
    assert leco(*call, cwd=tmp_path).stdout == result.stdout
    report = leco("report", "runs", "-o", "report.html", cwd=tmp_path)
    assert report.returncode == 0, report.stderr
    assert "What to annotate next: digits-leco" in (tmp_path / "report.html").read_text()


def test_a_model_of_the_store_is_used(tmp_path):
    settings = ["--set", "training.batches.steps=40"]
    assert leco("run", "digits-leco", "--size", 60, "--method", "ce", *settings, cwd=tmp_path).returncode == 0
    before = sorted(tmp_path.glob("runs/stages/*"))
    result = leco("plan", "digits-leco", "--size", 60, *settings, "--draws", 5, "--budget", 30, cwd=tmp_path)
    assert "features: mlp of stage" in result.stdout
    assert sorted(tmp_path.glob("runs/stages/*")) == before


def test_the_model_that_was_trained_is_found_without_a_look_at_the_test_images(tmp_path):
    assert leco("init", "project", cwd=tmp_path).returncode == 0
    project = tmp_path / "project"
    settings = ["--set", "training.batches.steps=20", "--set", "training.network.backbone=wrn-10-1"]
    assert leco("run", "project/experiment.yaml", *settings, cwd=tmp_path).returncode == 0
    before = sorted(tmp_path.glob("runs/stages/*"))
    costs = ["--budget", 30, "--cost-collect", 10]  # so that relabelling is worth its price
    call = ["plan", "project/experiment.yaml", *settings, "--draws", 5, *costs, "--json", "-o", "plan.json"]
    plan = leco(*call, cwd=tmp_path)
    assert any(folder.name in json.loads(plan.stdout)["features"] for folder in before), plan.stderr
    with (project / "labels.csv").open() as file:
        held_out = [project / row["image"] for row in csv.DictReader(file) if row["split"] == "test"]
    for path in held_out:
        path.unlink()
    assert leco(*call, cwd=tmp_path).stdout == plan.stdout
    batch = ["batch", "export", "project/experiment.yaml", "--plan", "plan.json", *settings, "-o", "batch"]
    result = leco(*batch, cwd=tmp_path)
    assert result.returncode == 0, result.stderr
    assert sorted(tmp_path.glob("runs/stages/*")) == before
    with (tmp_path / "batch" / "batch.csv").open() as file:
        asked = {row["image"] for row in csv.DictReader(file)}
    assert all((project / sample).is_file() for sample in asked)


def test_a_plan_does_not_hang_on_where_test_rows_stand_nor_on_what_was_trained_before(tmp_path):
    assert leco("init", "project", cwd=tmp_path).returncode == 0
    manifest = tmp_path / "project" / "labels.csv"
    header, *rows = manifest.read_text().splitlines()
    held_out = [row for row in rows if row.endswith(",test")]
    others = [row for row in rows if row not in held_out]
    mixed = [row for number, row in enumerate(others) for row in [*held_out[number : number + 1], row]]
    assert sorted(mixed) == sorted(rows)
    manifest.write_text("\n".join([header, *mixed]) + "\n")
    settings = ["--set", "training.batches.steps=20", "--set", "training.network.backbone=wrn-10-1"]
    assert leco("run", "project/experiment.yaml", *settings, cwd=tmp_path).returncode == 0
    plans = []
    for runs in ("runs", "others"):
        call = ["plan", "project/experiment.yaml", *settings, "--draws", 5, "--budget", 30, "--json", "--runs", runs]
        plans.append(json.loads(leco(*call, cwd=tmp_path).stdout))
        del plans[-1]["features"]  # names the stage
    assert plans[0] == plans[1]
    (trained,) = (tmp_path / "others" / "stages").iterdir()
    learned = {
        json.loads((path / "config.json").read_text())["learned"]: path for path in tmp_path.glob("runs/stages/*")
    }
    weights = [path / "model.safetensors" for path in (trained, learned[trained.name])]
    assert weights[0].read_bytes() == weights[1].read_bytes()


def test_of_a_benchmark_the_test_samples_are_not_read(tmp_path, monkeypatch: pytest.MonkeyPatch):
    def untouchable(_: Benchmark) -> None:
        raise AssertionError("the test split was read")

    monkeypatch.setattr(Benchmark, "test", property(untouchable))
    result = leco(
        "plan",
        "digits-leco",
        "--size",
        60,
        "--set",
        "training.batches.steps=40",
        "--draws",
        5,
        "--budget",
        30,
        cwd=tmp_path,
    )
    assert result.returncode == 0, result.stderr
    with pytest.raises(AssertionError, match="was read"):
        leco("run", "digits-leco", "--size", 60, "--set", "training.batches.steps=40", cwd=tmp_path)


def test_masks_are_planned_by_the_image(vistas_root: Path, tmp_path, monkeypatch: pytest.MonkeyPatch):
    small = replace(BENCHMARKS["mapillary-leco-2.5k"], classes=(4, 6), size=10, image_size=40, evaluated=5)
    monkeypatch.setitem(BENCHMARKS._entries, small.name, small)
    call = ["plan", small.name, "--data", vistas_root, "--backbone", "pixels", "--draws", 5, "--budget", 5, "--json"]
    plan = json.loads(leco(*call, cwd=tmp_path).stdout)
    assert plan["now"]["newest"] == plan["now"]["relabellable"] == 10
    assert {row["class"]: row["labelled"] for row in plan["classes"]}["lane"] == 10  # an image counts once
    assert next(row for row in plan["classes"] if row["class"] == "ego")["expected"] is None  # does not count
    assert plan["now"]["macc"] > 0.4  # the images are their labels
    assert any("whole images" in line for line in plan["assumes"])


def test_wrong_backbones_are_refused(tmp_path):
    call = ["plan", "digits-leco", "--budget", 5, "--backbone"]
    assert_refused([*call, "resnet1888"], "'resnet1888' is not a backbone", tmp_path)
