import math
from types import SimpleNamespace

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from tests.ontologies import ontologies

from leco import Ontology
from leco.methods import agrees, condition, evidence_nll, hard_pseudo_nll, joint_nll, soft_pseudo_nll
from leco.methods.losses import uniform_nll
from leco.methods.method import Method
from leco.methods.terms import NEW, newest_labels, terms
from leco.settings import LossSettings


def random_logits(data: st.DataObject, *shape: int) -> torch.Tensor:
    seed = data.draw(st.integers(0, 2**16))
    scale = data.draw(st.sampled_from([0.1, 1.0, 10.0]))
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)) * scale


def possible_labels(ontology: Ontology, version: str) -> torch.Tensor:
    rows = ontology.transition(ontology.newest.name, version).shares
    return torch.tensor([-1, *rows.sum(dim=0).nonzero().flatten().tolist()])


def naive_nll(logits: list[float], evidence: list[float]) -> float:
    """-log(softmax(z) . E), with loops, in double precision."""
    top = max(logits)
    weights = [math.exp(z - top) for z in logits]
    likelihood = sum(w / sum(weights) * math.exp(e) for w, e in zip(weights, evidence, strict=True))
    return -math.log(likelihood)


@given(ontologies(), st.data())
def test_partial_labels_equal_the_naive_marginal_likelihood(ontology, data):
    version = data.draw(st.sampled_from(ontology.versions)).name
    labels = possible_labels(ontology, version)
    rows = ontology.evidence().rows(labels, version)
    logits = random_logits(data, *rows.shape)
    expected = [naive_nll(z, e) for z, e in zip(logits.tolist(), rows.tolist(), strict=True)]
    torch.testing.assert_close(evidence_nll(logits, rows), torch.tensor(expected), atol=1e-5, rtol=1e-4)


@given(ontologies(), st.data())
def test_a_newest_label_is_cross_entropy(ontology, data):
    labels = torch.arange(len(ontology.newest))
    logits = random_logits(data, len(labels), len(labels))
    rows = ontology.evidence().rows(labels, ontology.newest.name)
    for reduction in ("none", "mean", "sum"):
        expected = F.cross_entropy(logits, labels, reduction=reduction)
        torch.testing.assert_close(evidence_nll(logits, rows, reduction), expected)


@given(ontologies(trees=True), st.data())
def test_partial_labels_on_a_tree_equal_the_papers_edge_matrix(ontology, data):
    oldest, newest = ontology.versions[0].name, ontology.newest.name
    edges = ontology.transition(newest, oldest).shares  # E, one-hot
    labels = torch.arange(len(ontology[oldest]))
    logits = random_logits(data, len(labels), len(ontology.newest))
    expected = F.nll_loss((logits.softmax(dim=1) @ edges).log(), labels, reduction="none")
    rows = ontology.evidence().rows(labels, oldest)
    finite = expected.isfinite() & (expected < 50)
    torch.testing.assert_close(evidence_nll(logits, rows)[finite], expected[finite], atol=1e-4, rtol=1e-4)


@given(ontologies(trees=True), st.data())
def test_conditioning_masks_and_renormalises(ontology, data):
    oldest, newest = ontology.versions[0].name, ontology.newest.name
    edges = ontology.transition(newest, oldest).shares
    labels = torch.arange(len(ontology[oldest]))
    logits = random_logits(data, len(labels), len(ontology.newest)).double()
    masked = logits.softmax(dim=1) * edges.T
    rows = ontology.evidence().rows(labels, oldest)
    torch.testing.assert_close(condition(logits, rows), masked / masked.sum(dim=1, keepdim=True))
    assert torch.equal(agrees(logits, rows), edges.T.bool().gather(1, logits.argmax(dim=1, keepdim=True)).squeeze(1))


def test_without_a_label_the_loss_and_its_gradient_are_exactly_zero():
    logits = torch.randn(4, 6, requires_grad=True)
    loss = evidence_nll(logits, torch.zeros(4, 6))
    assert torch.equal(loss, torch.zeros(4))
    loss.sum().backward()
    assert torch.equal(logits.grad, torch.zeros(4, 6))


def test_the_mean_is_over_labelled_samples_only():
    logits = torch.randn(3, 2)
    evidence = torch.tensor([[0.0, -math.inf], [0.0, 0.0], [-math.inf, 0.0]])
    expected = F.cross_entropy(logits[[0, 2]], torch.tensor([0, 1]))
    torch.testing.assert_close(evidence_nll(logits, evidence, "mean"), expected)
    assert evidence_nll(logits, torch.zeros(3, 2), "mean") == 0


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16, torch.float64])
@pytest.mark.parametrize("size", [1.0, 1e2, 1e4])
def test_losses_and_gradients_are_finite_for_huge_logits(dtype, size):
    signs = torch.tensor([[1.0, -1.0, 1.0], [-1.0, -1.0, 1.0], [1.0, 1.0, 1.0], [-1.0, 1.0, -1.0]])
    evidence = torch.tensor(
        [[-math.inf, 0.0, -math.inf], [0.0, -0.3, -math.inf], [0.0, 0.0, 0.0], [0.0, 0.0, -math.inf]]
    )
    logits = (signs * size).to(dtype).requires_grad_()
    exact = [naive_or_limit(z, e) for z, e in zip(logits.tolist(), evidence.tolist(), strict=True)]
    loss = evidence_nll(logits, evidence)
    torch.testing.assert_close(loss.double(), torch.tensor(exact, dtype=torch.double), atol=1e-5, rtol=1e-6)
    loss.sum().backward()
    assert logits.grad.isfinite().all()
    conditioned = condition(logits.detach(), evidence)
    torch.testing.assert_close(conditioned.sum(dim=1), torch.ones(4, dtype=conditioned.dtype))
    assert (conditioned[evidence == -math.inf] == 0).all()


def naive_or_limit(logits: list[float], evidence: list[float]) -> float:
    """Log-sum-exp in double precision with the maximum subtracted: exact for logits of any size."""

    def lse(values: list[float]) -> float:
        top = max(values)
        return top + math.log(sum(math.exp(v - top) for v in values))

    return lse(logits) - lse([z + e for z, e in zip(logits, evidence, strict=True)])


def test_gradients_are_right_by_finite_differences():
    logits = torch.randn(3, 5, dtype=torch.double, requires_grad=True)
    evidence = torch.tensor([[0.0, 0.0, -math.inf, -math.inf, -0.4], [0.0] * 5, [-math.inf] * 4 + [0.0]]).double()
    assert torch.autograd.gradcheck(lambda z: evidence_nll(z, evidence), logits)


def test_joint_training_sums_the_heads_and_skips_missing_labels():
    coarse, fine = torch.randn(4, 3), torch.randn(4, 6)
    coarse_labels, fine_labels = torch.tensor([0, 2, 1, 1]), torch.tensor([5, -1, -1, 0])
    per_sample = joint_nll([coarse, fine], [coarse_labels, fine_labels])
    expected = F.cross_entropy(coarse, coarse_labels, reduction="none")
    expected += F.cross_entropy(fine, fine_labels, ignore_index=-1, reduction="none")
    torch.testing.assert_close(per_sample, expected)
    mean = joint_nll([coarse, fine], [coarse_labels, fine_labels], reduction="mean")
    torch.testing.assert_close(
        mean, F.cross_entropy(coarse, coarse_labels) + F.cross_entropy(fine, fine_labels, ignore_index=-1)
    )
    assert joint_nll([fine], [torch.full((4,), -1)], reduction="mean") == 0
    with pytest.raises(ValueError, match="2 heads, 1 label"):
        joint_nll([coarse, fine], [coarse_labels])


def test_hard_pseudo_labels_are_cross_entropy_with_rejects_counted_in_the_mean():
    logits, labels, keep = torch.randn(4, 3), torch.tensor([0, 1, 2, 0]), torch.tensor([True, False, True, False])
    each = F.cross_entropy(logits, labels, reduction="none")
    torch.testing.assert_close(hard_pseudo_nll(logits, labels), each)
    torch.testing.assert_close(hard_pseudo_nll(logits, labels, keep, reduction="mean"), (each * keep).sum() / 4)
    ignored = torch.tensor([0, 255, 2, 255])
    mean = hard_pseudo_nll(logits, ignored, ignore_index=255, reduction="mean")
    torch.testing.assert_close(mean, each[[0, 2]].mean())


def test_soft_pseudo_labels_are_cross_entropy_with_the_teachers_gradient_cut():
    student, teacher = torch.randn(4, 3, 2, requires_grad=True), torch.randn(4, 3, 2, requires_grad=True)
    loss = soft_pseudo_nll(student, teacher.softmax(dim=1), reduction="mean")
    torch.testing.assert_close(loss, F.cross_entropy(student, teacher.softmax(dim=1).detach()))
    loss.backward()
    assert teacher.grad is None
    hard = F.one_hot(torch.tensor([0, 2]), 3).float()
    logits = torch.randn(2, 3)
    torch.testing.assert_close(soft_pseudo_nll(logits, hard), hard_pseudo_nll(logits, torch.tensor([0, 2])))


def test_a_hard_zero_in_the_target_is_harmless_at_huge_logits():
    logits = torch.tensor([[1e4, -1e4]], requires_grad=True)
    loss = soft_pseudo_nll(logits, torch.tensor([[1.0, 0.0]]), reduction="sum")
    loss.backward()
    assert loss == 0
    assert logits.grad.isfinite().all()


def test_a_forbidden_class_of_the_student_costs_nothing_where_the_target_is_zero():
    loss = soft_pseudo_nll(torch.tensor([[-math.inf, 0.0]]), torch.tensor([[0.0, 1.0]]))
    assert loss.item() == 0


@pytest.mark.parametrize("function", [evidence_nll, condition, agrees, soft_pseudo_nll])
def test_rows_of_another_shape_are_not_broadcast(function):
    with pytest.raises(ValueError, match=r"logits of shape \(3, 4\) do not fit rows of shape \(1, 4\)"):
        function(torch.zeros(3, 4), torch.zeros(1, 4))


def test_an_unknown_reduction_is_refused():
    with pytest.raises(ValueError, match="'none', 'mean' or 'sum', not 'average'"):
        evidence_nll(torch.zeros(1, 2), torch.zeros(1, 2), reduction="average")


@pytest.mark.parametrize("shape", [(6, 4), (3, 4, 2, 5)])
def test_uniform_loss_is_the_cross_entropy_with_all_classes_averaged(shape):
    logits = 3 * torch.randn(shape, generator=torch.Generator().manual_seed(0))
    each = [F.cross_entropy(logits, torch.full((shape[0], *shape[2:]), c), reduction="none") for c in range(shape[1])]
    torch.testing.assert_close(uniform_nll(logits), torch.stack(each).mean(dim=0))


@pytest.mark.parametrize("smoothing", [0.0, 0.1, 0.7])
def test_smoothed_labels_cost_what_torch_says_and_missing_ones_nothing(street, smoothing):
    evidence = street.evidence()
    labels = torch.tensor([0, 3, -1, 7, 5])
    logits = torch.randn(len(labels), len(street.newest), generator=torch.Generator().manual_seed(0))
    step = SimpleNamespace(new=SimpleNamespace(rows=evidence.ids(labels, street.newest.name)))
    (mean,) = newest_labels({NEW: {street.newest.name: logits}}, step, evidence, smoothing).means
    expected = F.cross_entropy(logits, labels, ignore_index=-1, reduction="sum", label_smoothing=smoothing)
    torch.testing.assert_close(mean.total, expected)
    assert mean.count == 4


def test_terms_smooth_the_newest_labels_only():
    plain, smooth = (terms(Method("lpl"), loss=LossSettings(label_smoothing=share)) for share in (0.0, 0.2))
    assert [term.loss.keywords.get("smoothing") for term in plain] == [0.0, None]
    assert [term.loss.keywords.get("smoothing") for term in smooth] == [0.2, None]
