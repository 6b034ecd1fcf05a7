"""`leco run`, on the embedded digits."""

import json
import os
import signal
import subprocess
import sys
import time
from functools import partial

import pytest
from safetensors.torch import load_file
from tests.commands import assert_refused, leco

from leco import LecoError
from leco.data.benchmarks import load
from leco.experiments.config import Training, experiment, training_defaults
from leco.experiments.stages import plan
from leco.experiments.store import Store

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
    assert second.stdout.count("there") == 2
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
    "unknown budget": (["cub-leco", "--budget", "huge"], "'huge' is no budget; valid: 'paper', 'small'"),
    "segmentation": (["camvid-leco"], "segmentation is not trained yet"),
}


@pytest.mark.parametrize("case", BAD)
def test_a_wrong_call_gives_one_message_and_writes_nothing(case, tmp_path):
    arguments, message = BAD[case]
    assert_refused(["run", *arguments], message, tmp_path)


def test_stages_differ_where_anything_they_depend_on_does(tmp_path):
    benchmark = load("digits-leco", tmp_path)

    def last(seed: int = 0, **changes: object) -> str:
        wanted = experiment("digits-leco", "small", {"seed": seed, **changes}, {})
        return plan(wanted, benchmark, benchmark.split(seed))[-1].fingerprint

    fingerprints = [last(), last(seed=1), last(method="lpl"), last(strategy="scratch"), last(annotation="all-fine")]
    assert len(set(fingerprints)) == 5
    assert last() == last()


def test_the_papers_settings_are_the_defaults():
    cifar = Training(**training_defaults("cifar-leco-10k", "classification", "paper"))
    assert (cifar.model, cifar.steps, cifar.batch_size, cifar.weight_decay) == ("wrn-28-2", 160_000, 64, 5e-4)
    assert (cifar.momentum, cifar.average, cifar.evaluate_every, cifar.norm_momentum) == (0.9, 0.999, 1_000, 0.001)
    inat = Training(**training_defaults("inat-leco", "classification", "paper"))
    assert (inat.model, inat.steps, inat.batch_size, inat.weight_decay) == ("resnet50", 250_000, 30, 1e-3)
