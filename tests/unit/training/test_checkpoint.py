"""Checkpoints that can be read, but do not fit: they are named, and the training goes on from another one."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from tests.commands import leco
from tests.trainings import train_digits

from leco.evaluation.evaluate import Judge
from leco.experiments.machine import Machine
from leco.experiments.run import make_training
from leco.training.checkpoint import Checkpoint, read_checkpoint, write_checkpoint
from leco.training.loop import Training

RUN = ["run", "digits-leco", "--size", 40, "--method", "ce", "--set", "training.batches.steps=6"]
RUN += ["--set", "training.network.backbone=wrn-10-1", "--runs", "runs"]


@pytest.fixture(scope="module")
def training(tmp_path_factory) -> Training:
    """A training after three of six steps."""
    trained = train_digits(
        tmp_path_factory.mktemp("trained"),
        {"training.batches.steps": "6", "training.network.backbone": "wrn-10-1"},
        method="ce",
        size=40,
    )
    stage = trained.stages.stages[0]
    machine = Machine("cpu")
    held_out = trained.periods.annotated(0, stage.annotation).validation
    judge = Judge(trained.periods, 0, held_out, machine.fabric("32-true"), stage.training.segmentation.window)
    made, *_ = make_training(stage, trained.store, machine, judge)
    for report in made.run():
        if report.step == 3:
            break
    return made


def renamed(tensors: dict[str, Any], old: str, new: str) -> dict[str, Any]:
    return {new if name == old else name: tensor for name, tensor in tensors.items()}


WEIGHT = "network/heads.0.weight"
MOMENTUM = "optimiser/heads.0.weight/momentum_buffer"
MISFITS: dict[str, Callable[[Checkpoint], Checkpoint]] = {
    "another shape": lambda c: replace(c, tensors=c.tensors | {WEIGHT: torch.zeros(3, 3)}),
    "another type": lambda c: replace(c, tensors=c.tensors | {WEIGHT: c.tensors[WEIGHT].double()}),
    "a missing tensor": lambda c: replace(c, tensors={n: t for n, t in c.tensors.items() if n != WEIGHT}),
    "a renamed tensor": lambda c: replace(c, tensors=renamed(c.tensors, WEIGHT, "network/head.weight")),
    "an extra tensor": lambda c: replace(c, tensors=c.tensors | {"network/more": torch.zeros(1)}),
    "an extra part": lambda c: replace(c, tensors=c.tensors | {"more": torch.zeros(1)}),
    "a momentum of another shape": lambda c: replace(c, tensors=c.tensors | {MOMENTUM: torch.zeros(7)}),
    "a momentum of nothing": lambda c: replace(c, tensors=renamed(c.tensors, MOMENTUM, "optimiser/x/momentum_buffer")),
    "a step too far": lambda c: replace(c, step=100_000),
    "a group too many": lambda c: replace(
        c, notes=c.notes.model_copy(update={"optimiser": {**c.notes.optimiser, "group 9/lr": 1.0}})
    ),
}


def test_the_checkpoint_of_a_training_fits_it(training, tmp_path):
    write_checkpoint(tmp_path, training.checkpoint())
    found, problems = read_checkpoint(tmp_path, training.misfit)
    assert problems == []
    assert found is not None
    assert found.step == 3
    assert MOMENTUM in found.tensors


@pytest.mark.parametrize("case", MISFITS)
def test_a_checkpoint_that_does_not_fit_is_named_and_passed_over(case, training, tmp_path):
    good = training.checkpoint()
    write_checkpoint(tmp_path, replace(good, step=1))
    write_checkpoint(tmp_path, MISFITS[case](good))
    found, (problem,) = read_checkpoint(tmp_path, training.misfit)
    assert found is not None
    assert found.step == 1
    assert problem.startswith(f"{tmp_path / 'checkpoint-b.safetensors'}: cannot be used (it does not fit: ")
    assert "\n" not in problem


def change_header(path: Path, **changes: Any) -> None:
    with safe_open(path, framework="pt") as file:
        header = json.loads(file.metadata()["leco"])
    save_file(load_file(path), path, metadata={"leco": json.dumps({**header, **changes})})


@pytest.mark.parametrize(
    "changes",
    [
        {"step": float("inf")},
        {"step": -5},
        {"step": "3"},
        {"notes": {}},
        {"notes": None},
        {"format": 1},
        {"digest": ""},
    ],
    ids=str,
)
def test_a_header_of_another_version_is_named_and_passed_over(changes, training, tmp_path):
    write_checkpoint(tmp_path, replace(training.checkpoint(), step=1))
    write_checkpoint(tmp_path, training.checkpoint())
    change_header(tmp_path / "checkpoint-b.safetensors", **changes)
    found, (problem,) = read_checkpoint(tmp_path, training.misfit)
    assert found is not None
    assert found.step == 1
    assert str(tmp_path / "checkpoint-b.safetensors") in problem


def test_a_run_starts_again_when_bits_flipped_in_both_checkpoints(tmp_path, training):
    """Not: "try a smaller learning rate"."""
    assert leco(*RUN, cwd=tmp_path).returncode == 0
    whole = {path.parent.name: path.read_bytes() for path in tmp_path.glob("runs/stages/*/model.safetensors")}
    (first, *_) = sorted(whole)
    folder = tmp_path / "runs" / "partial" / first
    (tmp_path / "runs" / "stages" / first).rename(folder)
    for name in ("result.json", "SHA256SUMS"):
        (folder / name).unlink()
    for step in (2, 3):
        write_checkpoint(folder, replace(training.checkpoint(), step=step))
    for path in folder.glob("checkpoint-*"):
        content = bytearray(path.read_bytes())
        content[-3] ^= 64
        path.write_bytes(content)
    again = leco(*RUN, cwd=tmp_path)
    assert again.returncode == 0, again.stderr
    assert again.stderr.count("it changed since it was written); continuing from step 0") == 2
    assert {path.parent.name: path.read_bytes() for path in tmp_path.glob("runs/stages/*/model.safetensors")} == whole
