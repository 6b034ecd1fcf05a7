"""Runs in several processes give the results of a single one, even if processes are killed."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from tests import processes
from tests.commands import leco

from leco.data.benchmarks import BENCHMARKS

TORCHRUN = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
ONE_THREAD = {"OMP_NUM_THREADS": "1"}
CASES = {2: ("soft", "freeze", "lp-ft", "pixels", "recompute", "parts", "shard"), 4: ("soft", "parts", "shard")}


@pytest.fixture
def vistas(vistas_root: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(BENCHMARKS, "_entries", dict(BENCHMARKS._entries))
    processes.shrink_vistas()
    torch.set_num_threads(1)
    return vistas_root


@pytest.mark.slow
def test_two_and_four_processes_give_the_results_of_one(tmp_path, vistas):
    """Same batches, same gradients, BatchNorm over all: after a few steps they differ by rounding only."""
    for number, cases in CASES.items():
        alone, runs = tmp_path / f"alone-{number}", tmp_path / str(number)
        for case in cases:
            processes.run(case, alone, vistas)
        command = [*TORCHRUN, f"--nproc_per_node={number}", "-m", "tests.processes", str(runs), str(vistas), *cases]
        result = subprocess.run(command, env={**os.environ, **ONE_THREAD}, capture_output=True, text=True, timeout=600)
        assert result.returncode == 0, result.stderr
        assert_same_stages(alone, runs, number)


def assert_same_stages(alone: Path, shared: Path, number: int) -> None:
    """The stages of one process, and those that a number of processes trained together, are equal up to rounding."""
    stages = sorted(path.name for path in (alone / "stages").iterdir())
    assert stages == sorted(path.name for path in (shared / "stages").iterdir())
    for stage in stages:
        folders = [base / "stages" / stage for base in (alone, shared)]
        weights, others = (load_file(folder / "model.safetensors") for folder in folders)
        for name in weights:
            torch.testing.assert_close(weights[name], others[name], rtol=1e-3, atol=3e-4)
        results = [json.loads((folder / "result.json").read_text()) for folder in folders]
        assert [r["processes"] for r in results] == [1, number]
        sharded = json.loads((folders[1] / "config.json").read_text())["training"]["network"]["shard"]
        assert [r.get("sharded", False) for r in results] == [False, sharded]
        assert results[0]["pseudo_labels"] == pytest.approx(results[1]["pseudo_labels"], rel=1e-3)
        score = results[0]["metric"]
        scores = [r["test"][r["version"]][score] for r in results]
        assert scores[0] == pytest.approx(scores[1], abs=0.01)
        lines = [(folder / "metrics.jsonl").read_text().splitlines()[-1] for folder in folders]
        means = [json.loads(line)["means"] for line in lines]
        assert means[0] == pytest.approx(means[1], rel=1e-3)


def test_a_batch_that_processes_cannot_share_is_refused_before_anything_is_trained(tmp_path, monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "3")
    result = leco("run", "digits-leco", "--set", "training.batches.size=64", "--runs", tmp_path / "runs")
    assert result.returncode == 2
    assert "half of 64 cannot be divided among 3 processes; use 66" in result.stderr
    assert not (tmp_path / "runs").exists()


@pytest.mark.slow
@pytest.mark.parametrize(("case", "number"), [("more pixels", 1), ("more shards", 2)])
def test_a_killed_run_ends_in_the_same_bits(case, number, tmp_path, vistas):
    start = [*TORCHRUN, f"--nproc_per_node={number}"] if number > 1 else [sys.executable]
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    command = {runs: [*start, "-m", "tests.processes", str(runs), str(vistas), case] for runs in (whole, killed)}
    environment = {**os.environ, **ONE_THREAD}

    def complete(runs: Path) -> None:
        result = subprocess.run(command[runs], env=environment, capture_output=True, text=True, timeout=300)
        assert result.returncode == 0, result.stderr

    complete(whole)
    with subprocess.Popen(command[killed], env={**environment, "LECO_SAVE_EVERY": "0"}) as process:
        while not list(killed.glob("partial/*/checkpoint-b.safetensors")):
            assert process.poll() is None
            time.sleep(0.02)
        process.terminate() if number > 1 else process.kill()  # torchrun ends its processes
    assert list(killed.glob("partial/*/checkpoint-*"))
    complete(killed)
    stages = sorted(path.name for path in (whole / "stages").iterdir())
    assert stages == sorted(path.name for path in (killed / "stages").iterdir())
    for stage in stages:
        pictures = ["overlays.png"] if "pixels" in case else []
        for file in ("model.safetensors", "metrics.jsonl", *pictures):
            assert (whole / "stages" / stage / file).read_bytes() == (killed / "stages" / stage / file).read_bytes()


@pytest.mark.slow
@pytest.mark.parametrize("number", [2, 4])
def test_the_command_trains_in_several_processes_from_an_empty_store(number, tmp_path):
    settings = ["--set", "training.batches.steps=4", "--set", "training.batches.size=16"]
    command = [
        *TORCHRUN,
        f"--nproc_per_node={number}",
        "-m",
        "leco",
        "run",
        "digits-leco",
        "--size",
        "40",
        "--method",
        "ce",
        *settings,
    ]
    result = subprocess.run(
        command, cwd=tmp_path, env={**os.environ, **ONE_THREAD}, capture_output=True, text=True, timeout=300
    )
    assert result.returncode == 0, result.stderr
    assert result.stdout.count("bundle: ") == 1
