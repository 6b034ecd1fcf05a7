"""Stages as they are stored, and lists of them."""

import json
import os

import pytest
from tests.stores import make_stages, write_stage, write_store

from leco import LecoError
from leco.paper import Key
from leco.reports.stored import list_stages, read_store


def test_a_stage_is_read_as_it_was_written(tmp_path):
    ((stage, score),) = [found for found in make_stages([0]) if str(found[0].method) == "lpl"]
    folder = write_stage(tmp_path, stage, score)
    (record,) = read_store(tmp_path).records
    assert record.fingerprint == folder.name == stage.fingerprint
    assert record.key == Key(1, "lpl")
    assert (record.benchmark, record.seed, record.version) == ("cifar-leco-1k", 0, "v2")
    assert (record.score, record.validation) == (score, score)
    assert record.previous == tuple(other.fingerprint for other in stage.previous)
    assert str(record) == "cifar-leco-1k TP1, lpl, finetune, label-new, lr 0.06, seed 0"


def test_folders_that_are_not_stages_are_left_out_with_a_message(tmp_path):
    runs = write_store(tmp_path, make_stages([0], methods={"ce": 0.5}, cells=()))
    good = len(read_store(runs).records)
    odd = json.loads(next((runs / "stages").glob("*/summary.json")).read_text())
    (runs / "stages" / "empty").mkdir()
    for name, content in (("cut", b'{"config": {'), ("bytes", b"\xff\xfe"), ("list", b"[1, 2]"), ("bare", b"{}")):
        (runs / "stages" / name).mkdir()
        (runs / "stages" / name / "summary.json").write_bytes(content)
    (runs / "stages" / "a file").write_text("not a folder")
    odd["config"]["training"]["optimiser"]["learning_rate"] = ["fast"]
    (runs / "stages" / "odd").mkdir()
    (runs / "stages" / "odd" / "summary.json").write_text(json.dumps(odd))
    odd["config"]["training"]["optimiser"]["learning_rate"] = [0.1]
    odd["config"]["training"]["batches"]["size"] = "many"
    (runs / "stages" / "size").mkdir()
    (runs / "stages" / "size" / "summary.json").write_text(json.dumps(odd))
    found = read_store(runs)
    assert len(found.records) == good
    messages = dict(problem.removeprefix(f"{runs}/stages/").split("/", 1) for problem in found.problems)
    assert messages.keys() == {"bare", "bytes", "cut", "empty", "list", "odd", "size"}
    assert messages["size"].endswith("config: training.batches.size: should be a whole number")
    assert messages["empty"] == "result.json: no such file"
    assert "summary.json: is damaged, or of another version of leco: Invalid JSON" in messages["cut"]
    assert "summary.json: is damaged, or of another version of leco: Invalid JSON" in messages["bytes"]
    assert messages["bare"] == "summary.json: is damaged, or of another version of leco: config: is missing"
    assert messages["odd"].endswith("config: training.optimiser.learning_rate: should be a list of numbers")
    assert {line.folder.name for line in list_stages(runs) if line.status == "broken"} == messages.keys()


def test_a_stage_that_diverged_is_named_so(tmp_path):
    runs = write_store(tmp_path, make_stages([0], methods={"ce": 0.5}, cells=()))
    (runs / "stages" / "fast").mkdir()
    (runs / "stages" / "fast" / "result.json").write_text(
        json.dumps({"stage": "TP1", "version": "v2", "seed": 0, "diverged": "loss is nan at step 3"})
    )
    assert [problem.rsplit("/", 1)[1] for problem in read_store(runs).problems] == [
        "fast: diverged: loss is nan at step 3"
    ]
    assert [line.status for line in list_stages(runs)] == ["diverged", "complete", "complete"]


def test_a_score_that_is_nan_is_none(tmp_path):
    ((stage, _), *_) = make_stages([0])
    write_stage(tmp_path, stage, float("nan"))
    (record,) = read_store(tmp_path).records
    assert record.score is None
    assert record.validation is None


def test_a_folder_without_runs_is_refused(tmp_path):
    with pytest.raises(LecoError, match=r"holds no runs: neither .*stages nor .*partial exists"):
        read_store(tmp_path)


def test_ten_thousand_stages_are_listed(tmp_path):
    folder = write_stage(tmp_path / "one", *make_stages([0])[0])
    summary = (folder / "summary.json").read_bytes()
    stages = tmp_path / "runs" / "stages"
    stages.mkdir(parents=True)
    for number in range(10_000):
        path = stages / f"{number:016x}"
        path.mkdir()
        os.link(folder / "summary.json", path / "summary.json")
    lines = list_stages(tmp_path / "runs")
    assert len(lines) == 10_000
    assert {line.status for line in lines} == {"complete"}
    assert {line.size for line in lines} == {len(summary)}
