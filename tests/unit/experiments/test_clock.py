"""A time limit: the steps that fit into it are decided once, and kept."""

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.unit.experiments.test_auto import vectors, write_project

import leco
from leco import LecoError
from leco.experiments import clock
from leco.experiments.experiment import AUTO_METHOD, experiment, seconds_of
from leco.experiments.machine import Machine
from leco.experiments.stages import HEAD_WITH_OLD, NEW_ALONE, REGRESSION, WITH_OLD, Plan
from leco.experiments.store import Store
from leco.experiments.timing import SECONDS_OF_HEADS, Pace, Reading, add_up
from leco.experiments.train import Run

RANDOM = {"training.network.weights": "random"}


@pytest.fixture
def paced(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Steps that take an eighth of a second; the methods that were measured."""
    measured: list[str] = []

    def measure(stage: Any, *_: object) -> Pace:
        measured.append(str(stage.method))
        return Pace(0.125, 0.0)

    monkeypatch.setattr(clock, "measure", measure)
    return measured


def planned(file: Path, time: str, settings: dict[str, str] | None = None, runs: str = "runs") -> Plan:
    wanted = experiment(str(file), {"time": time}, settings or {})
    return Run.prepare(wanted, wanted.dataset(file.parent), Store(file.parent / runs), device="cpu").plan


def steps(made: Plan) -> set[int]:
    """Steps of the networks' trainings."""
    return {stage.training.batches.steps for stage in made.stages if not stage.on_features}


def decisions(folder: Path) -> list[Path]:
    return sorted((folder / "runs" / "auto").glob("*.json"))


@pytest.mark.parametrize(
    ("text", "seconds"), [("90s", 90), ("30m", 1_800), ("2h", 7_200), ("1.5h", 5_400), ("0.001s", 0.001), (" 5m ", 300)]
)
def test_durations_have_a_unit(text, seconds):
    assert seconds_of(text) == pytest.approx(seconds)


@pytest.mark.parametrize(
    "text", ["", "soon", "0m", "0.0h", "30", "m", "-5m", "1e3s", "5 m", "5d", "nan", "1h30m", "٣m"]
)
def test_what_is_no_duration_is_refused(text):
    with pytest.raises(ValueError, match=re.escape(f"time: must be a duration such as 90s, 30m or 2h, not {text!r}")):
        seconds_of(text)


@pytest.mark.parametrize("minutes", [10, 20])
def test_a_time_is_shared_by_both_networks_and_the_last_training(minutes, paced, tmp_path):
    made = planned(write_project(tmp_path), f"{minutes}m")
    assert list(made.trials) == [REGRESSION, HEAD_WITH_OLD, NEW_ALONE, WITH_OLD]
    (found,) = steps(made)
    naive = (0.85 * 60 * minutes - 60) / (3 * 0.125)  # without the time to embed some small images
    assert naive - 100 < found < naive + 100
    assert paced == ["ce", AUTO_METHOD]
    assert [stage.training.batches.steps for stage in made.stages if stage.on_features] == [1, 1]


def test_evaluations_take_time_too(monkeypatch, tmp_path):
    file = write_project(tmp_path, test=3, val=1)  # 15 and 5 images
    monkeypatch.setattr(clock, "measure", lambda *_: Pace(0.125, 2.0))
    wanted = experiment(str(file), {"time": "10m"}, {"training.batches.evaluate_every": "1000000"})
    wanted = wanted.model_copy(update={"training": wanted.training.change(network={"weights": "random"})})
    made = Run.prepare(wanted, wanted.dataset(tmp_path), Store(tmp_path / "runs"), device="cpu")
    counts = [(0, 0), (15, 5), (15, 5)]  # of each training, test and validation
    held_out = [len(made.periods.annotated(period, "label-new").validation.indices) for period in (0, 1, 1)]
    assert held_out[1:] == [count for _, count in counts[1:]]
    scored = sum(test + 2 * validation for (test, _), validation in zip(counts, held_out, strict=True))
    assert steps(made.plan) == {int((0.85 * 600 - 2 * scored) / 0.125 / 3)}


@pytest.mark.parametrize(("val", "trainings"), [(0, 3), (2, 2)])
def test_estimates_include_the_last_training_on_all_labels(val, trainings, tmp_path):
    file = write_project(tmp_path, val=val)
    wanted = experiment(str(file), {}, {})
    made = Run.prepare(wanted, wanted.dataset(tmp_path), Store(tmp_path / "runs"), device="cpu")
    found = add_up(made.plan, made.periods, Reading(0.0, 0.0, kept=True), {"ce": Pace(5.0, 0.0), "lpl": Pace(5.0, 0.0)})
    assert found.seconds == 2 * SECONDS_OF_HEADS + trainings * 4 * 5.0  # both heads, and four steps each


def test_validation_that_was_given_leaves_more_time(paced, tmp_path):
    (with_refit,) = steps(planned(write_project(tmp_path / "a"), "10m"))
    (without,) = steps(planned(write_project(tmp_path / "b", val=2), "10m"))
    assert without == pytest.approx(1.5 * with_refit, rel=0.02)


def test_networks_with_random_weights_share_it_with_earlier_periods(paced, tmp_path):
    made = planned(write_project(tmp_path), "10m", RANDOM)
    assert [stage.period for stage in made.stages] == [0, 1, 1]
    assert steps(made) == {int(0.85 * 600 / 0.125 / 3)}
    assert sorted(set(paced)) == ["ce", "lpl+st-hard/cond"]


def test_several_learning_rates_are_measured_once_and_share_it(paced, tmp_path):
    made = planned(write_project(tmp_path), "10m", RANDOM | {"training.optimiser.learning_rate": "0.1,0.01"})
    assert len(paced) == 2
    assert steps(made) == {int(0.85 * 600 / 0.125 / len(made.stages))}


def test_the_number_is_decided_once(paced, tmp_path, monkeypatch):
    file = write_project(tmp_path)
    first = planned(file, "10m")
    monkeypatch.setattr(clock, "measure", None)
    assert [stage.fingerprint for stage in planned(file, "10m").stages] == [s.fingerprint for s in first.stages]
    (path,) = decisions(tmp_path)
    assert json.loads(path.read_text()) == {"format": 1, "time": "10m", "steps": steps(first).pop()}
    with pytest.raises(TypeError):  # another time is measured
        planned(file, "11m")


def test_other_data_settings_and_times_are_decided_apart(paced, tmp_path):
    file = write_project(tmp_path)
    for number, (time, settings) in enumerate([("10m", {}), ("12m", {}), ("10m", {"training.batches.size": "16"})]):
        planned(file, time, settings)
        assert len(decisions(tmp_path)) == number + 1


def test_more_than_enough_time_has_an_end(paced, tmp_path):
    assert steps(planned(write_project(tmp_path), "999h")) == {20_000}


def test_in_a_short_time_only_heads_are_fitted(paced, tmp_path):
    file = write_project(tmp_path)
    made = planned(file, "20s")
    assert list(made.trials) == [REGRESSION, HEAD_WITH_OLD]
    assert json.loads(decisions(tmp_path)[0].read_text())["steps"] == 0
    wanted = experiment(str(file), {"time": "20s"}, {})
    run = Run.prepare(wanted, wanted.dataset(tmp_path), Store(tmp_path / "runs"), device="cpu")
    model = run.train(Machine("cpu"))
    assert [trial.name for trial in model.description.trials] == [REGRESSION, HEAD_WITH_OLD]


def test_without_heads_a_short_time_is_refused_and_nothing_is_kept(paced, tmp_path):
    with pytest.raises(LecoError, match=r"time: 10 s is too short: 50 steps take 19 s; allow more"):
        planned(write_project(tmp_path), "10s", RANDOM)
    assert decisions(tmp_path) == []


@pytest.mark.parametrize(
    "content", ["", "[]", "{}", '{"steps": -1}', '{"steps": 1.5}', '{"steps": true}', '{"steps": 1000000}']
)
def test_a_damaged_decision_is_named(content, paced, tmp_path):
    file = write_project(tmp_path)
    planned(file, "10m")
    (path,) = decisions(tmp_path)
    path.write_text(content)
    with pytest.raises(LecoError, match=f"{path.name}: is damaged, .*; delete it, and the speed is measured again"):
        planned(file, "10m")


def test_what_is_in_the_place_of_a_decision_is_named_before_anything_is_measured(paced, tmp_path):
    file = write_project(tmp_path)
    planned(file, "10m")
    (path,) = decisions(tmp_path)
    measured = len(paced)
    path.unlink()
    path.symlink_to(tmp_path / "missing")
    with pytest.raises(LecoError, match=f"{path.name}: no such file"):
        planned(file, "10m")
    path.unlink()
    path.parent.rmdir()
    path.parent.touch()
    with pytest.raises(LecoError, match="auto: is not a folder; choose another folder for runs"):
        planned(file, "10m")
    assert len(paced) == measured


def test_vectors_take_no_time(paced, tmp_path):
    model = leco.train(vectors([0, 0, 1, 1]), time="1s", store=tmp_path, progress=False)
    assert [trial.name for trial in model.description.trials] == [REGRESSION, HEAD_WITH_OLD]
    assert paced == []


def test_a_hidden_layer_has_the_steps_that_fit_and_heads_if_none_do(paced, tmp_path):
    data = vectors([0, 0, 1, 1])
    short = leco.train(data, network={"backbone": "mlp"}, time="9s", store=tmp_path, progress=False)
    assert [trial.name for trial in short.description.trials] == [REGRESSION, HEAD_WITH_OLD]
    long = leco.train(data, network={"backbone": "mlp"}, time="30s", store=tmp_path, progress=False)
    assert len(long.description.trials) == 4
    kept = [json.loads(path.read_text()) for path in (tmp_path / "auto").glob("*.json")]
    assert {found["time"]: found["steps"] for found in kept} == {"9s": 0, "30s": int(0.85 * 30 / 0.125 / 3)}


def test_one_period_of_random_weights_reserves_time_for_the_last_training(paced, tmp_path):
    features = np.random.default_rng(0).normal(size=(40, 3))
    data = leco.Dataset.from_arrays(features, ["a", "b"] * 20)
    leco.train(data, network={"backbone": "mlp"}, time="20s", store=tmp_path, progress=False)
    (path,) = (tmp_path / "auto").glob("*.json")
    assert json.loads(path.read_text())["steps"] == int(0.85 * 20 / 0.125 / 2)


def test_several_processes_do_not_measure(paced, tmp_path, monkeypatch):
    file = write_project(tmp_path)
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(LecoError, match=r"time: .* set training\.batches\.steps under torchrun"):
        planned(file, "10m")


def test_real_steps_are_measured_without_leaving_anything_behind(tmp_path):
    file = write_project(tmp_path)
    made = planned(file, "10m", RANDOM)
    assert 50 <= steps(made).pop() <= 20_000
    assert [path.name for path in (tmp_path / "runs").iterdir()] == ["auto"]
