"""`leco.train`: the driver that Python, the command line, grids and the estimator share."""

import inspect
import json
import signal
import threading
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from tests.commands import leco as command

import leco
from leco import LecoError
from leco.experiments import train as driver
from leco.settings import PARTS, AverageSettings, BatchSettings
from leco.training.finish import HEADS

SHORT = {"steps": 6, "size": 16, "evaluate_every": 3}


@pytest.fixture
def digits() -> leco.Dataset:
    return leco.benchmark("digits-leco", size=40)


def weights(store: Path) -> dict[str, dict[str, torch.Tensor]]:
    return {path.parent.name: load_file(path) for path in sorted(store.glob("stages/*/model.safetensors"))}


def assert_same(one: Path, other: Path) -> None:
    first, second = weights(one), weights(other)
    assert first.keys() == second.keys()
    for stage, tensors in first.items():
        assert all(torch.equal(tensors[name], second[stage][name]) for name in tensors)


def test_python_and_the_command_line_train_the_same_stages_in_the_same_bits(digits, tmp_path):
    torch.set_num_threads(1)
    leco.train(digits, method="lpl+st-hard/cond", batches=SHORT, store=tmp_path / "python", device="cpu")
    settings = [part for name, value in SHORT.items() for part in ("--set", f"training.batches.{name}={value}")]
    arguments = ["--size", "40", "--method", "lpl+st-hard/cond", "--runs", str(tmp_path / "command"), "--device", "cpu"]
    result = command("run", "digits-leco", *arguments, *settings, cwd=tmp_path)
    assert result.returncode == 0, result.stderr
    assert_same(tmp_path / "python", tmp_path / "command")


def test_own_data_get_the_same_defaults_from_python_and_from_a_file(tmp_path):
    from leco.experiments.experiment import defaults_for, experiment

    np.save(tmp_path / "x.npy", np.random.default_rng(0).normal(size=(12, 4)))
    rows = [f"x.npy#{n},{'a' if n % 2 else 'b'},v1" for n in range(12)]
    (tmp_path / "labels.csv").write_text("\n".join(["features,label,version", *rows]) + "\n")
    (tmp_path / "ontology.yaml").write_text("versions:\n  - {name: v1, classes: [a, b]}\n")
    (tmp_path / "experiment.yaml").write_text("data: {manifest: labels.csv, ontology: ontology.yaml}\n")
    data = leco.Dataset.from_manifest(tmp_path / "labels.csv", tmp_path / "ontology.yaml")
    from_file = experiment(str(tmp_path / "experiment.yaml"), {}, {}).training
    assert leco.Settings.model_validate(defaults_for(data, {})) == from_file
    assert (from_file.network.backbone, from_file.batches.steps) == ("linear", 2_000)


def test_all_parts_of_the_settings_are_arguments():
    assert PARTS.keys() <= inspect.signature(leco.train).parameters.keys()


def test_a_time_is_checked_and_only_for_auto(digits, tmp_path):
    for time, problem in (("soon", "must be a duration such as 90s"), ("30m", "time: is for the method auto")):
        with pytest.raises(LecoError, match=problem):
            leco.train(digits, method="ce", time=time, store=tmp_path)


def test_parts_are_mappings_or_typed(digits, tmp_path):
    for part in (SHORT, BatchSettings(**SHORT)):
        leco.train(digits, method="ce", batches=part, store=tmp_path, progress=False)
    assert len(weights(tmp_path)) == 2  # the second call trained nothing


def test_a_call_that_is_repeated_only_looks_up_its_result(digits, tmp_path):
    first = leco.train(digits, method="ce", batches=SHORT, store=tmp_path, progress=False)
    before = {path: path.stat().st_mtime_ns for path in tmp_path.glob("stages/*/*")}
    again = leco.train(digits, method="ce", batches=SHORT, store=tmp_path, progress=False)
    assert {path: path.stat().st_mtime_ns for path in tmp_path.glob("stages/*/*")} == before
    assert again.scores["test"]["v2"].macc == first.scores["test"]["v2"].macc


def test_ctrl_c_saves_and_the_same_call_continues_in_the_same_bits(digits, tmp_path, monkeypatch):
    torch.set_num_threads(1)
    leco.train(digits, method="ce", batches=SHORT, store=tmp_path / "whole", progress=False)
    original, seen = driver.run_stage, []

    def interrupted(stage, periods, store, machine, watch, **options):
        def stop_after_two(stage, report):
            seen.append(report.step)
            if len(seen) == 2:
                signal.raise_signal(signal.SIGINT)

        return original(stage, periods, store, machine, stop_after_two, **options)

    monkeypatch.setattr(driver, "run_stage", interrupted)
    with pytest.raises(KeyboardInterrupt):
        leco.train(digits, method="ce", batches=SHORT, store=tmp_path / "twice", progress=False)
    assert list((tmp_path / "twice" / "partial").glob("*/checkpoint-*.safetensors"))
    monkeypatch.setattr(driver, "run_stage", original)
    leco.train(digits, method="ce", batches=SHORT, store=tmp_path / "twice", progress=False)
    assert_same(tmp_path / "whole", tmp_path / "twice")


def test_training_works_outside_the_main_thread(digits, tmp_path):
    found = []

    def work() -> None:
        found.append(leco.train(digits, method="ce", batches=SHORT, store=tmp_path, progress=False))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert len(found) == 1


def test_progress_is_lines_where_nobody_looks_at_a_terminal(digits, tmp_path, capsys):
    leco.train(digits, method="ce", batches=SHORT, store=tmp_path)
    lines = capsys.readouterr().err.splitlines()
    assert len([line for line in lines if line.startswith("TP1 ce, lr 0.05: step ")]) == 2
    leco.train(digits, method="ce", batches=SHORT, store=tmp_path / "quiet", progress=False)
    assert capsys.readouterr().err == ""


def test_loggers_write_beside_the_metrics(digits, tmp_path):
    leco.train(digits, method="ce", batches=SHORT, store=tmp_path, log=["csv"], progress=False)
    for folder in (tmp_path / "stages").iterdir():
        lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
        rows = [row.split(",") for row in (folder / "metrics.csv").read_text().splitlines()[1:]]
        scores = [float(value) for _, name, value in rows if name == "score"]
        assert scores == [line["score"] for line in lines]


def test_training_starts_from_a_saved_model_of_an_older_version(digits, tmp_path):
    ontology = digits.ontology
    pool = digits.benchmark.pool
    features = pool.inputs.read(torch.arange(60)).flatten(1).float().numpy()
    labels = ontology["v1"].handles
    old = [labels[index] for index in pool.labels["v1"].read(torch.arange(60)).tolist()]
    first = leco.Dataset.from_arrays(features, old, "v1", ontology=ontology.until("v1"))
    model = leco.train(first, method="ce", batches=SHORT, store=tmp_path / "a", progress=False)
    model.save(tmp_path / "old")
    new = [ontology["v2"].handles[index] for index in pool.labels["v2"].read(torch.arange(60)).tolist()]
    both = leco.Dataset.from_arrays(features, new, "v2", ontology=ontology)
    newer = leco.train(both, method="ce", batches=SHORT, start=tmp_path / "old", store=tmp_path / "b", progress=False)
    assert newer.versions == ("v1", "v2")
    assert newer.description.training["start"]


BAD = {
    "unknown method": ({"method": "lpll"}, "'lpll' is not a method; did you mean 'lpl'"),
    "unknown setting": ({"batches": {"stesp": 4}}, "batches.stesp: is not a setting; did you mean 'steps'"),
    "flat setting": ({"optimiser": {"lr": 4}}, "optimiser.lr: is not a setting"),
    "wrong value": ({"batches": {"steps": 0}}, "batches.steps: Input should be greater than or equal to 1"),
    "unknown optimiser": ({"optimiser": {"name": "adam"}}, "'adam' is not registered; did you mean 'adamw'"),
    "unknown schedule": ({"optimiser": {"schedule": "cosin"}}, "'cosin' is not registered; did you mean 'cosine'"),
    "unknown head": ({"finish": {"head": "gausian"}}, "'gausian' is not registered; did you mean 'gaussian'"),
    "unknown logger": ({"log": ["csw"]}, "'csw' is not a registered logger; did you mean 'csv'"),
    "unknown budget": ({"budget": "tiny"}, "digits-leco has no budget 'tiny'"),
    "unknown device": ({"device": "tpu"}, "tpu"),
    "a number as a part": ({"batches": 4}, "batches: must be a mapping or BatchSettings or None, not 4"),
    "another part": (
        {"batches": AverageSettings()},
        "batches: must be a mapping or BatchSettings or None, not AverageSettin",
    ),
    "an address": ({"store": "s3://bucket/runs"}, "store: must be the path of a local file or folder"),
    "no name": ({"store": ""}, "store: must be the path of a local file or folder"),
    "a number as a device": ({"device": 5}, "device: must be a string, not 5"),
    "a number as a logger": ({"log": 5}, "log: must be a string or a list, not 5"),
    "loggers in a list of lists": (
        {"log": [["csv"]]},
        r"log: must be one or several names of loggers, not \[\['csv'\]\]",
    ),
    "a name that is too long": ({"store": "r" * 300}, "^store: r*: File name too long; name another path"),
    "half a worker": ({"workers": 0.5}, "workers: must be a whole number, not 0.5"),
}


@pytest.mark.parametrize("case", BAD)
def test_a_wrong_call_is_refused_before_anything_is_written(case, digits, tmp_path):
    changes, message = BAD[case]
    with pytest.raises(LecoError, match=message):
        leco.train(digits, **{"batches": SHORT, "store": tmp_path / "runs", **changes}, progress=False)
    assert not list(tmp_path.glob("runs/stages/*"))


def test_own_data_refuse_annotation_strategies(tmp_path):
    data = leco.Dataset.from_arrays([[1.0], [2.0]], ["a", "b"])
    with pytest.raises(LecoError, match="'all-fine' is for benchmarks"):
        leco.train(data, annotation="all-fine", store=tmp_path)


def test_own_data_refuse_budgets_and_names_are_no_datasets(tmp_path):
    data = leco.Dataset.from_arrays([[1.0], [2.0]], ["a", "b"])
    with pytest.raises(LecoError, match="budget: 'small' is for benchmarks"):
        leco.train(data, budget="small", store=tmp_path)
    with pytest.raises(LecoError, match=r"data: must be a leco\.Dataset, not 'digits-leco'"):
        leco.train("digits-leco", store=tmp_path)


def test_a_store_with_a_file_in_the_place_of_a_folder_is_refused_before_training(digits, tmp_path):
    (tmp_path / "stages").touch()
    with pytest.raises(LecoError, match="stages: is not a folder"):
        leco.train(digits, batches=SHORT, store=tmp_path, progress=False)


def test_a_registered_head_of_the_wrong_shape_is_named(digits, tmp_path, monkeypatch):
    monkeypatch.setitem(HEADS._entries, "flat", lambda features, evidence: torch.zeros(2, 3))
    with pytest.raises(LecoError, match=r"finish\.head: its weight is \(3,\), but must have the shape"):
        leco.train(digits, batches=SHORT, finish={"head": "flat"}, store=tmp_path, progress=False)
