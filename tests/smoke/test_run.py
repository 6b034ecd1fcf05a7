"""`leco run`, on the embedded digits."""

import json
import os
import signal
import subprocess
import sys
import time
from functools import partial

import pytest
import torch
from safetensors.torch import load_file
from tests.commands import assert_refused, leco

from leco import LecoError
from leco.experiments.store import Store
from leco.training.checkpoint import _step_of

SHORT = ["--set", "training.steps=12", "--set", "training.evaluate_every=6"]


def command(*arguments: object) -> list[str]:
    return [sys.executable, "-m", "leco", "run", *map(str, arguments)]


leco_run = partial(leco, "run")


def test_a_run_trains_every_stage_once_and_shares_it(tmp_path):
    first = leco_run("digits-leco", "--method", "lpl+st-hard/cond", *SHORT, cwd=tmp_path)
    assert first.returncode == 0, first.stderr
    assert first.stdout.count("to do") == 3  # TP0, the teacher, the student
    stages = {path.name for path in (tmp_path / "runs" / "stages").iterdir()}
    second = leco_run("digits-leco", "--method", "ce", *SHORT, cwd=tmp_path)  # the teacher is this very run
    assert second.stdout.count("  there  ") == 2
    assert {path.name for path in (tmp_path / "runs" / "stages").iterdir()} == stages
    assert list((tmp_path / "runs" / "partial").iterdir()) == []


def test_a_result_holds_what_a_report_needs(tmp_path):
    leco_run("digits-leco", "--method", "lpl", *SHORT, cwd=tmp_path)
    results = [json.loads(path.read_text()) for path in tmp_path.glob("runs/stages/*/result.json")]
    newest = next(result for result in results if result["version"] == "v2")
    assert set(newest["test"]) == set(newest["validation"]) == {"v1", "v2"}
    assert 0 <= newest["test"]["v2"]["macc"] <= 1
    assert len(newest["test"]["v2"]["per_class"]) == 10
    assert newest["seed"] == 0
    assert newest["packages"]["torch"]
    assert newest["images_per_second"] > 0
    assert newest["seconds"] > 0
    assert newest["validation_score"] == newest["validation"]["v2"]["macc"]
    lines = [
        json.loads(line)
        for path in tmp_path.glob("runs/stages/*/metrics.jsonl")
        for line in path.read_text().splitlines()
    ]
    assert {line["step"] for line in lines} == {6, 12}


@pytest.mark.slow
def test_a_run_that_is_killed_goes_on_to_the_same_bits(tmp_path):
    arguments = ["digits-leco", "--method", "ce", "--set", "training.steps=150", "--set", "training.evaluate_every=50"]
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    for folder in (whole, killed):
        folder.mkdir()
    assert leco_run(*arguments, cwd=whole).returncode == 0
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "LECO_SAVE_EVERY": "0.1"}
    process = subprocess.Popen(command(*arguments), cwd=killed, env=environment, stdout=subprocess.DEVNULL)
    deadline = time.monotonic() + 120
    while not list(killed.glob("runs/partial/*/checkpoint-*.safetensors")) and time.monotonic() < deadline:
        time.sleep(0.02)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert list(killed.glob("runs/partial/*/checkpoint-*.safetensors"))
    assert leco_run(*arguments, cwd=killed).returncode == 0
    for path in whole.glob("runs/stages/*/model.safetensors"):
        one, other = load_file(path), load_file(killed / path.relative_to(whole))
        assert all(one[name].equal(other[name]) for name in one)
        results = [
            json.loads((base / "result.json").read_text())
            for base in (path.parent, (killed / path.relative_to(whole)).parent)
        ]
        assert results[0]["test"] == results[1]["test"]
        assert (path.parent / "metrics.jsonl").read_text() == (killed / path.relative_to(whole)).with_name(
            "metrics.jsonl"
        ).read_text()


def test_two_processes_do_not_work_on_one_stage(tmp_path):
    store = Store(tmp_path)
    refused = pytest.raises(LecoError, match="another process is working on this stage")
    with store.working("abc"), refused, store.working("abc"):
        pass
    assert store.result("abc") is None


def test_a_dry_run_trains_nothing(tmp_path):
    result = leco_run("digits-leco", "--dry-run", cwd=tmp_path)
    assert result.stdout.count("to do") == 3
    assert list(tmp_path.iterdir()) == []


BAD = {
    "unknown method": (
        ["digits-leco", "--method", "lpl+st-hrd"],
        "'lpl+st-hrd' is no method; did you mean 'lpl+st-hard'?",
    ),
    "unknown setting": (["digits-leco", "--set", "training.stesp=5"], "did you mean 'training.steps'?"),
    "half a setting": (["digits-leco", "--set", "training.steps"], "say KEY=VALUE"),
    "senseless value": (["digits-leco", "--set", "training.steps=0"], "training.steps: Input should be greater than"),
    "unknown strategy": (["digits-leco", "--strategy", "melt"], "strategy: Input should be"),
    "unknown budget": (["cub-leco", "--budget", "huge"], "budget: 'huge' is none; valid: 'paper', 'small'"),
    "no such device": (["digits-leco", "--device", "tpu"], "'tpu' is no device; did you mean 'cpu'?"),
    "half precision on a CPU": (
        ["digits-leco", "--device", "cpu", "--set", "training.precision=16-mixed"],
        "precision 16-mixed needs a GPU",
    ),
    "odd batch": (["digits-leco", "--set", "training.batch_size=7"], "batch_size must be even"),
    "no such file": (["nowhere.yaml"], "nowhere.yaml: there is no such file"),
    "bad seed": (["digits-leco", "--seed", "-1"], "seed: Input should be greater than or equal to 0, not -1"),
    "segmentation": (["camvid-leco"], "segmentation is not trained yet"),
}


@pytest.mark.parametrize("case", BAD)
def test_a_wrong_call_gives_one_message_and_writes_nothing(case, tmp_path):
    arguments, message = BAD[case]
    assert_refused(["run", *arguments], message, tmp_path)


def test_ctrl_c_saves_and_the_same_command_goes_on(tmp_path):
    arguments = ["digits-leco", "--method", "ce", "--set", "training.steps=5000", "--runs", tmp_path / "runs"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    process = subprocess.Popen(command(*arguments), env=environment, stderr=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 120
    while not list(tmp_path.glob("runs/partial/*/metrics.jsonl")) and time.monotonic() < deadline:
        time.sleep(0.05)
    time.sleep(1)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "stopped and saved; the same command goes on from the last checkpoint" in errors
    (saved,) = tmp_path.glob("runs/partial/*/checkpoint-a.safetensors")
    step = _step_of(saved)
    assert 0 < step < 5000
    again = leco_run(*arguments, "--dry-run")
    assert again.returncode == 0


def test_a_run_in_two_processes_finds_what_one_finds(tmp_path):
    """Same batches, same gradients, BatchNorm over all: after a few steps they differ by rounding only."""
    settings = ["training.steps=3", "training.average=0", "training.model=wrn-10-1", "training.norm_momentum=0.05"]
    arguments = ["digits-leco", "--method", "lpl+st-soft/cond", *(part for s in settings for part in ("--set", s))]
    one, two = tmp_path / "one", tmp_path / "two"
    assert leco_run(*arguments, "--runs", one).returncode == 0
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    torchrun = [
        sys.executable,
        "-m",
        "torch.distributed.run",
        "--standalone",
        "--nproc_per_node=2",
        "-m",
        "leco",
        "run",
    ]
    result = subprocess.run(
        [*torchrun, *arguments, "--runs", two], env=environment, capture_output=True, text=True, timeout=300
    )
    assert result.returncode == 0, result.stderr
    assert result.stdout.count("kept in") == 1  # one process speaks
    stages = sorted(path.name for path in (one / "stages").iterdir())
    assert stages == sorted(path.name for path in (two / "stages").iterdir())
    for stage in stages:
        weights, others = (load_file(base / "stages" / stage / "model.safetensors") for base in (one, two))
        for name in weights:
            torch.testing.assert_close(weights[name], others[name], rtol=1e-3, atol=1e-4)
        results = [json.loads((base / "stages" / stage / "result.json").read_text()) for base in (one, two)]
        assert [r["processes"] for r in results] == [1, 2]
        assert results[0]["pseudo_labels"] == pytest.approx(results[1]["pseudo_labels"])
        version = results[0]["version"]
        scores = [r["test"][version]["macc"] for r in results]
        assert scores[0] == pytest.approx(scores[1], abs=0.01)
        losses = [(base / "stages" / stage / "metrics.jsonl").read_text() for base in (one, two)]
        means = [json.loads(text)["means"] for text in losses]
        assert means[0] == pytest.approx(means[1], rel=1e-4)
