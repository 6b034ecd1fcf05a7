"""Properties that every loss has, one test each."""

import math
from collections.abc import Callable

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from leco.methods import agrees, condition, evidence_nll, hard_pseudo_nll, joint_nll, soft_pseudo_nll

CLASSES = 6


def _evidence(logits: Tensor, order: Tensor) -> Tensor:
    """Evidence that allows a third of the classes, by their original number."""
    row = torch.full((CLASSES,), -math.inf)
    row[:2] = torch.tensor([0.0, -0.4])
    shape = (1, CLASSES, *[1] * (logits.dim() - 2))
    return row[order].view(shape).expand_as(logits).to(torch.promote_types(logits.dtype, torch.float32))


def _labels(logits: Tensor, order: Tensor) -> Tensor:
    """Class number 3, wherever the order has put it."""
    return torch.full((logits.shape[0], *logits.shape[2:]), int((order == 3).nonzero()))


def _target(logits: Tensor, order: Tensor) -> Tensor:
    probs = torch.tensor([0.5, 0.0, 0.25, 0.25, 0.0, 0.0])[order]
    return probs.view(1, CLASSES, *[1] * (logits.dim() - 2)).expand(logits.shape)


LOSSES: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "evidence": lambda z, order: evidence_nll(z, _evidence(z, order)),
    "joint": lambda z, order: joint_nll([z, z], [_labels(z, order), _labels(z, order)]),
    "hard": lambda z, order: hard_pseudo_nll(z, _labels(z, order)),
    "soft": lambda z, order: soft_pseudo_nll(z, _target(z, order)),
    "condition": lambda z, order: condition(z, _evidence(z, order)).max(dim=1).values,
    "agrees": lambda z, order: agrees(z, _evidence(z, order)).float(),
}
SAME = torch.arange(CLASSES)


def logits_of(seed: int, *shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)) * 3


@pytest.mark.parametrize("name", LOSSES)
@given(seed=st.integers(0, 1_000), order=st.permutations(range(CLASSES)))
def test_permuting_the_classes_changes_nothing(name, seed, order):
    logits, permutation = logits_of(seed, 4, CLASSES), torch.tensor(order)
    torch.testing.assert_close(LOSSES[name](logits[:, permutation], permutation), LOSSES[name](logits, SAME))


@pytest.mark.parametrize("name", LOSSES)
def test_pixels_are_just_more_samples(name):
    logits = logits_of(0, 2, CLASSES, 3, 4)
    flat = LOSSES[name](logits.movedim(1, -1).reshape(-1, CLASSES), SAME)
    torch.testing.assert_close(LOSSES[name](logits, SAME), flat.view(2, 3, 4))


@pytest.mark.parametrize("name", LOSSES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
@pytest.mark.parametrize("size", [1.0, 1e4])
def test_huge_logits_and_half_precision_give_finite_values_and_gradients(name, dtype, size):
    logits = (torch.where(logits_of(1, 8, CLASSES) > 0, size, -size)).to(dtype).requires_grad_()
    loss = LOSSES[name](logits, SAME)
    exact = LOSSES[name](logits.detach().double(), SAME)
    assert loss.isfinite().all()
    torch.testing.assert_close(loss.double(), exact.double(), atol=1e-5, rtol=1e-6)
    if loss.requires_grad:
        loss.sum().backward()
        assert logits.grad.isfinite().all()


@pytest.mark.parametrize("name", ["evidence", "joint", "hard", "soft"])
def test_a_loss_is_never_negative_and_zero_at_best(name):
    sure = torch.full((1, CLASSES), -1e4)
    sure[0, 3 if name in ("joint", "hard") else 0] = 1e4
    assert LOSSES[name](logits_of(2, 1_000, CLASSES) * 10, SAME).min() >= 0
    if name != "soft":
        assert LOSSES[name](sure, SAME).item() == 0


@pytest.mark.parametrize("name", LOSSES)
def test_an_empty_batch_gives_an_empty_result(name):
    assert LOSSES[name](torch.zeros(0, CLASSES), SAME).shape == (0,)


def test_ignored_pixels_count_in_no_mean():
    logits = logits_of(3, 2, CLASSES, 2, 2)
    ignore = torch.tensor([[[True, False], [False, False]], [[True, True], [False, True]]])
    labels = torch.where(ignore, -1, 3)
    one_hot = torch.nn.functional.one_hot(labels.clamp(min=0), CLASSES).movedim(-1, 1).float()
    hard = hard_pseudo_nll(logits, labels, reduction="mean")
    torch.testing.assert_close(soft_pseudo_nll(logits, one_hot, ignore=ignore, reduction="mean"), hard)
    torch.testing.assert_close(hard, hard_pseudo_nll(logits, labels)[~ignore].mean())
