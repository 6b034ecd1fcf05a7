"""`leco run`, on the embedded digits."""

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterable
from functools import partial
from pathlib import Path

import pytest
from safetensors.torch import load_file
from tests.commands import assert_refused, leco
from tests.trainings import assert_consistent

from leco import LecoError
from leco.experiments.store import Store

SHORT = ["--set", "training.batches.steps=12", "--set", "training.batches.evaluate_every=6"]


def command(*arguments: object) -> list[str]:
    return [sys.executable, "-m", "leco", "run", *map(str, arguments)]


leco_run = partial(leco, "run")


def test_a_run_trains_every_stage_once_and_shares_it(tmp_path):
    first = leco_run("digits-leco", "--method", "lpl+st-hard/cond", *SHORT, cwd=tmp_path)
    assert first.returncode == 0, first.stderr
    assert first.stdout.count("to do") == 3  # TP0, the teacher, the student
    stages = {path.name for path in (tmp_path / "runs" / "stages").iterdir()}
    second = leco_run("digits-leco", "--method", "ce", *SHORT, cwd=tmp_path)  # the teacher is this very run
    assert second.stdout.count("  done   ") == 2
    assert {path.name for path in (tmp_path / "runs" / "stages").iterdir()} == stages
    assert list((tmp_path / "runs" / "partial").iterdir()) == []


def test_a_result_holds_what_a_report_needs(tmp_path):
    leco_run("digits-leco", "--method", "lpl", *SHORT, cwd=tmp_path)
    results = [json.loads(path.read_text()) for path in tmp_path.glob("runs/stages/*/result.json")]
    newest = next(result for result in results if result["version"] == "v2")
    assert set(newest["test"]) == set(newest["validation"]) == {"v1", "v2"}
    assert_consistent(newest["test"]["v2"])
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


def same_stages(one: Path, other: Path) -> None:
    """Weights, scores and metrics are the same to the last bit."""
    names = sorted(path.name for path in (one / "stages").iterdir())
    assert names == sorted(path.name for path in (other / "stages").iterdir())
    for name in names:
        folders = [base / "stages" / name for base in (one, other)]
        weights = [load_file(folder / "model.safetensors") for folder in folders]
        assert all(weights[0][key].equal(weights[1][key]) for key in weights[0])
        results = [json.loads((folder / "result.json").read_text()) for folder in folders]
        assert results[0]["test"] == results[1]["test"]
        assert results[0]["validation"] == results[1]["validation"]
        assert (folders[0] / "metrics.jsonl").read_text() == (folders[1] / "metrics.jsonl").read_text()


@pytest.mark.slow
def test_a_run_that_is_killed_again_and_again_ends_in_the_same_bits(tmp_path):
    """With a teacher, BatchNorm, checkpoints all the time, and the newest of them cut short after the first kill."""
    settings = ["training.batches.steps=60", "training.batches.evaluate_every=20", "training.network.backbone=wrn-10-1"]
    arguments = ["digits-leco", "--method", "lpl+st-hard/cond", *(part for s in settings for part in ("--set", s))]
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    assert leco_run(*arguments, "--runs", whole).returncode == 0
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "LECO_SAVE_EVERY": "0"}
    generator = random.Random(0)
    for turn in range(4):
        process = subprocess.Popen(command(*arguments, "--runs", killed), env=environment, stdout=subprocess.DEVNULL)
        before = {path: path.stat().st_mtime_ns for path in killed.glob("partial/*/checkpoint-*.safetensors")}
        deadline = time.monotonic() + 120
        while time.monotonic() < deadline and process.poll() is None:
            now = {path: path.stat().st_mtime_ns for path in _there(killed.glob("partial/*/checkpoint-*.safetensors"))}
            if now and now != before:
                break
            time.sleep(0.01)
        time.sleep(generator.random())
        process.kill()
        process.wait()
        checkpoints = sorted(
            killed.glob("partial/*/checkpoint-*.safetensors"), key=lambda path: path.stat().st_mtime_ns
        )
        if turn == 0 and len(checkpoints) > 1:
            checkpoints[-1].write_bytes(checkpoints[-1].read_bytes()[:1000])
    last = leco_run(*arguments, "--runs", killed)
    assert last.returncode == 0, last.stderr
    same_stages(whole, killed)


def _there(paths: Iterable[Path]) -> list[Path]:
    """Keep the paths that have not been moved meanwhile."""
    return [path for path in paths if path.exists()]


@pytest.mark.slow
def test_ctrl_c_saves_and_the_same_command_continues(tmp_path):
    arguments = ["digits-leco", "--method", "ce", "--set", "training.batches.steps=600"]
    whole, stopped = tmp_path / "whole", tmp_path / "stopped"
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    process = subprocess.Popen(
        command(*arguments, "--runs", stopped),
        env=environment,
        stderr=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        text=True,
    )
    deadline = time.monotonic() + 120
    while not list(stopped.glob("partial/*/metrics.jsonl")) and time.monotonic() < deadline:
        time.sleep(0.02)
    time.sleep(0.5)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "stopped and saved; the same command continues from the last checkpoint" in errors
    assert list(stopped.glob("partial/*/checkpoint-a.safetensors"))
    for runs in (whole, stopped):
        assert leco_run(*arguments, "--runs", runs).returncode == 0
    same_stages(whole, stopped)


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
    "a setting twice": (
        ["digits-leco", "--set", "training.batches.steps=3", "--set", "training.batches.steps=4"],
        "training.batches.steps: is given 2 times",
    ),
    "unknown method": (
        ["digits-leco", "--method", "lpl+st-hrd"],
        "'lpl+st-hrd' is not a method; did you mean 'lpl+st-hard'?",
    ),
    "unknown setting": (["digits-leco", "--set", "training.stesp=5"], "did you mean 'training.batches.steps'?"),
    "half a setting": (["digits-leco", "--set", "training.batches.steps"], "use KEY=VALUE"),
    "senseless value": (
        ["digits-leco", "--set", "training.batches.steps=0"],
        "training.batches.steps: Input should be greater than",
    ),
    "unknown strategy": (["digits-leco", "--strategy", "melt"], "strategy: Input should be"),
    "unknown budget": (
        ["cub-leco", "--budget", "huge"],
        "budget: cub-leco has no budget 'huge'; valid: 'paper', 'small'",
    ),
    "no such device": (["digits-leco", "--device", "tpu"], "'tpu' is not a device; did you mean 'cpu'?"),
    "unknown precision": (
        ["digits-leco", "--set", "training.network.precision=8-mixed"],
        "training.network.precision: Input should be",
    ),
    "nothing to accelerate": (
        ["digits-leco", "--set", "training.optimiser.nesterov=true", "--set", "training.optimiser.momentum=0"],
        "training.optimiser.nesterov: needs a momentum above 0",
    ),
    "odd batch": (["digits-leco", "--set", "training.batches.size=7"], "training.batches.size: must be even"),
    "no such file": (["nowhere.yaml"], "nowhere.yaml: no such file"),
    "bad seed": (["digits-leco", "--seed", "-1"], "seed: Input should be greater than or equal to 0, not -1"),
    "images for features": (
        ["digits-leco", "--set", "training.network.backbone=resnet1"],
        "'resnet1' is not a backbone; did you mean",
    ),
}


@pytest.mark.parametrize("case", BAD)
def test_a_wrong_call_gives_one_message_and_writes_nothing(case, tmp_path):
    arguments, message = BAD[case]
    assert_refused(["run", *arguments], message, tmp_path)
