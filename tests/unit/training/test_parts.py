"""Batches in parts and recomputed activations: the gradients of a whole batch, in less memory."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from tests.unit.training.test_loop import make_training, same
from torch import Tensor, nn

from leco import LecoError
from leco.methods.method import ALL_METHODS
from leco.training.checkpoint import read_checkpoint, write_checkpoint
from leco.training.loop import Training
from leco.training.parts import is_out_of_memory

FROZEN = {"frozen_norm": True}
METHODS = [str(method) for method in ALL_METHODS]


def assert_close(one: Training, other: Training) -> None:
    """Weights, averages and what was reported are equal up to rounding."""
    ours, theirs = one.checkpoint(), other.checkpoint()
    for name, tensor in ours.tensors.items():
        torch.testing.assert_close(theirs.tensors[name], tensor, rtol=1e-4, atol=1e-6)
    assert theirs.notes.means == pytest.approx(ours.notes.means, rel=1e-4)


def short(method: str, **parts: Any) -> Training:
    return make_training(method, steps=3, **{"network": FROZEN, **parts})


@pytest.mark.parametrize("method", METHODS)
def test_a_batch_in_parts_has_the_gradients_of_the_whole(method):
    """Of eight samples of each kind, three parts have three, three and two."""
    whole, parts = short(method), short(method, batches={"parts": 3, "evaluate_every": 5})
    whole.job.steps.masks = parts.job.steps.masks = (some_unlabelled,)  # so that parts have different counts
    list(whole.run()), list(parts.run())
    assert_close(whole, parts)


def some_unlabelled(batch: Any, *_: object) -> Any:
    batch.rows[batch.ids % 3 == 0] = 0
    for labels in batch.labels.values():
        labels[batch.ids % 3 == 0] = -1
    return batch


class Limited(nn.Module):
    """A backbone on a pretended device whose memory does not hold the activations of so many images."""

    def __init__(self, inside: nn.Module, most: int) -> None:
        super().__init__()
        self.inside, self.most, self.num_features = inside, most, inside.num_features
        self.refused: list[int] = []

    def forward(self, images: Tensor) -> Tensor:
        features: Tensor = self.inside(images)
        if torch.is_grad_enabled() and len(images) > self.most:
            self.refused.append(len(images))
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")
        return features


def limited(method: str, most: int, says: Callable[[str], object], **parts: Any) -> Training:
    plain = short(method, **parts)
    plain.network.backbone = Limited(plain.network.backbone, most)
    return Training(plain.job, plain.network, None, says)


def test_a_batch_that_does_not_fit_is_halved_until_it_does_with_the_same_result_and_one_message():
    said: list[str] = []
    whole, small = limited("lpl+st-soft/cond", 8, said.append), limited("lpl+st-soft/cond", 3, said.append)
    list(whole.run())
    assert said == []
    list(small.run())
    assert said == ["step 0: out of memory; continuing with training.batches.parts=4"]
    assert small.network.backbone.refused == [8, 4]
    assert_close(whole, small)


def test_with_batchnorm_activations_are_recomputed_before_batches_are_divided():
    said: list[str] = []
    small = limited("lpl", 3, said.append, network={})
    list(small.run())
    assert small.network.backbone.refused == [8, 8, 4]
    (message,) = said
    assert message == (
        "step 0: out of memory; continuing with training.network.recompute=true and training.batches.parts=4, "
        "whose parts BatchNorm normalises one by one"
    )


def test_a_resumed_run_saves_as_much_memory_as_before_and_ends_in_the_same_bits(tmp_path):
    said: list[str] = []
    whole, first = limited("lpl", 2, said.append), limited("lpl", 2, said.append)
    list(whole.run())
    next(first.run())
    write_checkpoint(tmp_path, first.checkpoint())
    second = limited("lpl", 2, said.append)
    second.resume(read_checkpoint(tmp_path)[0])
    list(second.run())
    assert second.network.backbone.refused == []
    assert len(said) == 2
    assert same(whole.checkpoint(), second.checkpoint())


def test_a_network_that_takes_not_even_one_sample_is_an_error_of_the_user():
    with pytest.raises(LecoError, match="out of memory even in 8 parts of a batch; use a smaller network"):
        list(limited("lpl", 0, print).run())


def test_other_errors_are_not_taken_for_a_lack_of_memory(monkeypatch):
    training = short("ce")
    monkeypatch.setattr(training.network.backbone, "forward", lambda _: torch.zeros(3) + torch.zeros(4))
    with pytest.raises(RuntimeError, match="must match the size"):
        list(training.run())


@pytest.mark.parametrize(
    "message", ["CUDA error: out of memory", "MPS backend out of memory", "CUBLAS_STATUS_ALLOC_FAILED when calling"]
)
def test_a_lack_of_memory_is_recognised_whoever_reports_it(message):
    assert is_out_of_memory(RuntimeError(message))


def test_the_memory_of_the_machine_counts_too():
    with pytest.raises(RuntimeError) as caught:
        torch.empty(2**60, dtype=torch.uint8)
    assert is_out_of_memory(caught.value)


@pytest.mark.parametrize("method", ["lpl+fixmatch/cond", "joint+st-hard"])
def test_recomputed_activations_change_no_bit(method):
    """BatchNorm's statistics, which see every batch once, included."""
    whole, recomputed = make_training(method), make_training(method, network={"recompute": True})
    reports = [[report.losses for report in training.run()] for training in (whole, recomputed)]
    assert reports[0] == reports[1]
    ours, theirs = whole.checkpoint(), recomputed.checkpoint()
    assert all(torch.equal(tensor, theirs.tensors[name]) for name, tensor in ours.tensors.items())
