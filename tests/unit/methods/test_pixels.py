"""Losses from row ids, block by block, against the dense definitions."""

from functools import partial

import pytest
import torch
from torch import Tensor

from leco import Ontology
from leco.methods import agrees, condition, evidence_nll, pixels, soft_pseudo_nll
from leco.methods.pixels import blocks

WIDE = Ontology.from_taxonomy("wide", ["v1", "v2"], [(str(c // 3), f"c{c}") for c in range(40)])
# Always block by block, however few logits there are.
label_nll, guess, soft_guess_nll = (
    partial(function, few=-1) for function in (pixels.label_nll, pixels.guess, pixels.soft_guess_nll)
)
SHAPES = {"samples": (7,), "pixels": (3, 5, 4), "one": (1,), "none": (0,)}


def case(ontology: Ontology, shape: tuple[int, ...], scale: float = 3.0) -> tuple[Tensor, Tensor]:
    """Logits, and row ids of all versions with some that are unlabelled."""
    generator = torch.Generator().manual_seed(len(shape))
    evidence = ontology.evidence()
    possible = torch.tensor([0, *(i for i in range(1, len(evidence)) if evidence.starts[i] < evidence.starts[i + 1])])
    rows = possible[torch.randint(len(possible), shape, generator=generator)]
    logits = torch.randn(shape[0], evidence.num_classes, *shape[1:], generator=generator, dtype=torch.float64) * scale
    return logits, rows


@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
@pytest.mark.parametrize("which", ["street", "wide"])
def test_a_label_costs_what_its_dense_evidence_does(which, shape, reduction, street):
    ontology = street if which == "street" else WIDE
    evidence = ontology.evidence()
    logits, rows = case(ontology, shape)
    found, expected = (z.requires_grad_() for z in (logits.clone(), logits.clone()))
    loss = label_nll(found, rows, evidence, reduction)
    dense = evidence_nll(expected, evidence.gather(rows).double(), reduction)
    torch.testing.assert_close(loss, dense, rtol=1e-6, atol=1e-7)
    weights = torch.rand_like(loss)
    (loss * weights).sum().backward()
    (dense * weights).sum().backward()
    torch.testing.assert_close(found.grad, expected.grad, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("scale", [1e4, 1e-3])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_neither_huge_logits_nor_half_precision_hurt(scale, dtype, street):
    evidence = street.evidence()
    logits, rows = case(street, (64,), scale)
    low = logits.to(dtype).requires_grad_()
    loss = label_nll(low, rows, evidence)
    assert loss.dtype == torch.float32
    torch.testing.assert_close(
        loss.double(), evidence_nll(low.detach().double(), evidence.gather(rows)), rtol=1e-3, atol=1e-3
    )
    loss.sum().backward()
    assert low.grad.isfinite().all()
    assert (low.grad[rows == 0] == 0).all()


def test_memory_may_lie_in_any_order(street):
    evidence = street.evidence()
    logits, rows = case(street, (3, 5, 4))
    moved = logits.contiguous(memory_format=torch.channels_last)
    torch.testing.assert_close(label_nll(moved, rows, evidence), label_nll(logits, rows, evidence))
    strided = torch.stack([logits, logits], dim=-1)[..., 0]
    torch.testing.assert_close(label_nll(strided, rows.int(), evidence), label_nll(logits, rows, evidence))


def test_nothing_but_the_logits_is_kept_for_the_backward_pass(street):
    evidence = street.evidence()
    logits, rows = case(street, (2, 40, 40))
    kept: list[Tensor] = []
    leaf = logits.requires_grad_()
    with torch.autograd.graph.saved_tensors_hooks(lambda t: kept.append(t) or t, lambda t: t):
        label_nll(leaf, rows, evidence, "mean")
    large = [t for t in kept if t.numel() >= logits.numel()]
    assert [t.data_ptr() for t in large] == [logits.data_ptr()]


def test_blocks_cover_everything_once():
    for shape, size in (((5, 3), 7), ((2, 3, 11, 4), 30), ((4, 3, 2, 2), 10_000), ((3, 5, 7), 1)):
        seen = torch.zeros(shape[0], *shape[2:])
        for at in blocks(shape, size):
            seen[at] += 1
        assert (seen == 1).all()


@pytest.mark.parametrize("refine", ["plain", "filter", "cond"])
@pytest.mark.parametrize("shape", [(9,), (2, 6, 5)])
def test_guesses_are_those_of_the_dense_definitions(refine, shape, street):
    evidence = street.evidence()
    logits, rows = case(street, shape)
    found = guess(logits, rows, evidence, refine)
    dense = evidence.gather(rows).double()
    probs = condition(logits, dense) if refine == "cond" else logits.softmax(dim=1)
    torch.testing.assert_close(found.confidence, probs.amax(dim=1))
    assert torch.equal(found.labels, probs.argmax(dim=1))
    assert torch.equal(found.agrees, agrees(logits, dense))


@pytest.mark.parametrize("refine", ["plain", "cond"])
@pytest.mark.parametrize("shape", [(9,), (2, 6, 5)])
def test_soft_targets_cost_what_the_dense_definition_says(refine, shape, street):
    evidence = street.evidence()
    (logits, rows), (teacher, _) = case(street, shape), case(street, shape, scale=1.0)
    keep = torch.rand(shape, generator=torch.Generator().manual_seed(0)) < 0.7
    dense = evidence.gather(rows).double()
    probs = condition(teacher, dense) if refine == "cond" else teacher.softmax(dim=1)
    found, expected = (logits.clone().requires_grad_() for _ in range(2))
    loss = soft_guess_nll(found, teacher, rows, evidence, refine, keep=keep, reduction="mean")
    reference = soft_pseudo_nll(expected, probs, keep, reduction="mean")
    torch.testing.assert_close(loss, reference)
    loss.backward()
    reference.backward()
    torch.testing.assert_close(found.grad, expected.grad)


def test_few_logits_cost_the_same():
    evidence = WIDE.evidence()
    (logits, rows), (teacher, _) = case(WIDE, (9,)), case(WIDE, (9,), scale=1.0)
    losses = (
        lambda few: label_nll(logits, rows, evidence, few=few),
        lambda few: soft_guess_nll(logits, teacher, rows, evidence, "cond", few=few),
        lambda few: torch.stack([part.double() for part in guess(logits, rows, evidence, "cond", few=few)]),
    )
    for loss in losses:
        torch.testing.assert_close(loss(1_000), loss(-1))


def test_shapes_that_do_not_fit_are_refused(street):
    evidence = street.evidence()
    with pytest.raises(ValueError, match="do not fit row ids"):
        label_nll(torch.zeros(2, evidence.num_classes), torch.zeros(3, dtype=torch.int64), evidence)


@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
@pytest.mark.parametrize("which", ["street", "wide"])
def test_a_masked_divergence_is_summed_over_the_classes_that_a_label_allows(which, shape, street):
    ontology = street if which == "street" else WIDE
    evidence = ontology.evidence()
    (logits, rows), (others, _) = case(ontology, shape), case(ontology, shape, scale=1.0)
    found, expected = (z.requires_grad_() for z in (logits.clone(), logits.clone()))
    loss = pixels.masked_divergence(found, others, rows, evidence, few=-1)
    probs, edges = others.softmax(dim=1), evidence.gather(rows).double().exp()
    dense = (edges * probs * (probs.log() - expected.log_softmax(dim=1))).sum(dim=1)
    torch.testing.assert_close(loss, dense, rtol=1e-6, atol=1e-6)
    weights = torch.rand_like(loss)
    (loss * weights).sum().backward()
    (dense * weights).sum().backward()
    torch.testing.assert_close(found.grad, expected.grad, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("refine", ["plain", "cond"])
def test_of_samples_that_all_have_a_label_only_the_classes_that_it_allows_are_looked_at(refine):
    names = [(f"a{number // 2}", f"b{number}") for number in range(40)]
    evidence = Ontology.from_taxonomy("pairs", ["v1", "v2"], names).evidence()
    generator = torch.Generator().manual_seed(0)
    rows = torch.randint(1, len(evidence), (30,), generator=generator)
    logits, teacher = (4 * torch.randn(30, 40, generator=generator) for _ in range(2))
    teacher[0, :38], teacher[0, 38:] = 1e4, -1e4  # far from what a label may allow
    rows[0] = evidence.ids(["a19"], "v1")
    gradients, values, guesses = [], [], []
    for complete in (False, True):
        student = logits.clone().requires_grad_()
        soft = soft_guess_nll(student, teacher, rows, evidence, refine, complete=complete, few=-1)
        both = soft + label_nll(student, rows, evidence, few=-1)  # which share log-probabilities
        both.sum().backward()
        gradients.append(student.grad)
        values.append(both.detach())
        guesses.append(guess(teacher, rows, evidence, refine, complete=complete, few=-1))
    torch.testing.assert_close(values[1], values[0])
    torch.testing.assert_close(gradients[1], gradients[0])
    assert torch.equal(guesses[1].labels, guesses[0].labels)
    assert torch.equal(guesses[1].agrees, guesses[0].agrees)
    torch.testing.assert_close(guesses[1].confidence, guesses[0].confidence)
