from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from typing import Any

import pytest
import torch
from lightning_fabric import Fabric
from lightning_fabric.plugins import MixedPrecision
from tests.unit.training.test_loop import STEPS, make_training, same
from torch.amp import GradScaler

from leco import LecoError
from leco.devices import check_precision, gradient_scaler, make_fabric, precision_of, resolve_precision
from leco.training.checkpoint import read_checkpoint, write_checkpoint
from leco.training.loop import Training


class Scaled(MixedPrecision):
    """The scaler of float16 without float16, which not every CPU has."""

    def __init__(self) -> None:
        super().__init__("16-mixed", "cpu", GradScaler(device="cpu"))

    def forward_context(self) -> AbstractContextManager[Any]:
        return nullcontext()

    def convert_input(self, data: Any) -> Any:
        return data


def scaled_training(fabric: Fabric, **parts: Any) -> Training:
    plain = make_training("lpl+fixmatch/cond", **parts)
    return Training(replace(plain.job, fabric=fabric), plain.network, plain.validate)


@pytest.mark.parametrize("clip", [0.0, 0.1])
def test_scaled_gradients_train_the_same_and_resume_with_their_scale(clip, tmp_path):
    fabric = Fabric(accelerator="cpu", devices=1, plugins=[Scaled()])
    plain = list(make_training("lpl+fixmatch/cond", optimiser={"clip": clip}).run())
    whole = scaled_training(fabric, optimiser={"clip": clip})
    reports = list(whole.run())
    # The scale is a power of two, so nothing is rounded differently.
    assert [report.losses for report in reports] == [report.losses for report in plain]
    expected = whole.checkpoint()
    assert expected.notes.scaler["_growth_tracker"] == STEPS

    first = scaled_training(fabric, optimiser={"clip": clip})  # of the same fabric, which has to forget the run before
    steps = first.run()
    for _ in range(4):
        next(steps)
    checkpoint = first.checkpoint()
    assert checkpoint.notes.scaler["_growth_tracker"] == 4
    write_checkpoint(tmp_path, checkpoint)
    second = scaled_training(fabric, optimiser={"clip": clip})
    assert gradient_scaler(fabric).state_dict()["_growth_tracker"] == 0
    second.resume(read_checkpoint(tmp_path)[0])
    list(second.run())
    assert same(second.checkpoint(), expected)


def test_a_step_whose_gradients_overflow_is_left_out_and_the_scale_is_halved():
    fabric = Fabric(accelerator="cpu", devices=1, plugins=[Scaled()])
    training = scaled_training(fabric)
    scaler = training.scaler
    assert scaler is not None
    scale = scaler.get_scale()
    next(training.network.heads.parameters()).register_hook(lambda gradient: gradient * torch.inf)
    before = {name: tensor.clone() for name, tensor in training.network.named_parameters()}
    next(training.run())
    assert all(torch.equal(before[name], tensor) for name, tensor in training.network.named_parameters())
    assert scaler.get_scale() == scale / 2


def test_cpus_compute_in_float32_unless_told_otherwise():
    assert resolve_precision("cpu", "auto") == "32-true"
    assert precision_of(make_fabric("cpu", "auto")) == "32-true"
    assert precision_of(make_fabric("cpu", "32-tf32")) == "32-true"
    with pytest.raises(LecoError, match="16-mixed is for GPUs"):
        check_precision("cpu", "16-mixed")


def test_gpus_compute_in_what_they_were_made_for(monkeypatch):
    for capability, expected in [
        ((9, 0), "bf16-mixed"),
        ((8, 0), "bf16-mixed"),
        ((7, 0), "16-mixed"),
        ((6, 1), "32-true"),
    ]:
        monkeypatch.setattr(torch.cuda, "get_device_capability", lambda found=capability: found)
        assert resolve_precision("cuda", "auto") == expected
        assert resolve_precision("cuda", "32-true") == "32-true"
