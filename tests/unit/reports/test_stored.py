"""Stages as they are stored."""

import json
import os

import pytest
from tests.stores import make_stages, write_stage, write_store

from leco import LecoError
from leco.experiments.store import guess_metric
from leco.reports.listing import list_stages
from leco.reports.stored import read_store


def test_a_stage_without_a_summary_reads_the_same(tmp_path):
    stages = make_stages([0])
    new = read_store(write_store(tmp_path / "new", stages))
    old = read_store(write_store(tmp_path / "old", stages, summary=False))
    assert len(new.records) == len(stages)
    for one, other in zip(new.records, old.records, strict=True):
        assert vars(one) | {"folder": None} == vars(other) | {"folder": None}


def test_folders_that_are_no_stages_are_left_out_and_told_about(tmp_path):
    runs = write_store(tmp_path, make_stages([0], methods={"ce": 0.5}, cells=()))
    good = len(read_store(runs).records)
    odd = json.loads(next((runs / "stages").glob("*/summary.json")).read_text())
    (runs / "stages" / "empty").mkdir()
    for name, content in (("cut", b'{"config": {'), ("bytes", b"\xff\xfe"), ("list", b"[1, 2]"), ("bare", b"{}")):
        (runs / "stages" / name).mkdir()
        (runs / "stages" / name / "summary.json").write_bytes(content)
    (runs / "stages" / "a file").write_text("not a folder")
    odd["config"]["training"]["learning_rate"] = "fast"
    (runs / "stages" / "odd").mkdir()
    (runs / "stages" / "odd" / "summary.json").write_text(json.dumps(odd))
    found = read_store(runs)
    assert len(found.records) == good
    assert sorted(problem.split(": ")[0].rsplit("/", 1)[1] for problem in found.problems) == [
        *("bare", "bytes", "cut", "empty", "list", "odd")
    ]
    assert any("config.json is missing" in problem for problem in found.problems)
    assert sum(line.status == "broken" for line in list_stages(runs)) == 6


def test_a_score_that_is_no_number_is_none(tmp_path):
    ((stage, _), *_) = make_stages([0])
    write_stage(tmp_path, stage, float("nan"))
    (record,) = read_store(tmp_path).records
    assert record.score is None
    assert record.validation is None


def test_a_folder_that_is_no_store_is_refused(tmp_path):
    with pytest.raises(LecoError, match="holds no runs"):
        read_store(tmp_path)


def test_the_metric_of_older_results_is_the_one_that_models_were_chosen_by():
    result = {"validation_score": 0.2, "validation": {"v": {"macc": 0.4, "miou": 0.2}}}
    assert guess_metric({"version": "v", "material": "own 01"}, result) == "miou"
    assert guess_metric({"version": "v", "material": "own 01"}, result | {"validation_score": 0.4}) == "macc"
    nothing = {"validation_score": None, "validation": None}
    assert guess_metric({"version": "v", "material": "mapillary-leco-9k 01"}, nothing) == "miou"


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
