"""The linear head against scikit-learn's logistic regression and a naive loop, and on data that hold little."""

import math

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from scipy.optimize import minimize
from sklearn.linear_model import LogisticRegression
from tests.unit.methods.test_gaussian import COARSE, accuracy, blobs, certain

from leco import LecoError
from leco.methods.linear import _Rotated, fit_linear, linear_head, minimise


def coarse(labels):
    return torch.zeros(len(labels), 6).masked_fill(COARSE[labels].unsqueeze(1) != COARSE, -torch.inf)


def clouds(seed):
    """Features and fine classes, 900: even the two coarse classes overlap, so that old labels help."""
    random = torch.Generator().manual_seed(seed)
    centres = 0.3 * (torch.randn(2, 40, generator=random)[COARSE] + torch.randn(6, 40, generator=random))
    labels = torch.arange(6).repeat(150)
    return centres[labels] + torch.randn(900, 40, generator=random), labels


def centred(head):
    return head - head.mean(dim=1, keepdim=True)


@pytest.mark.parametrize("rotate", [False, True])
def test_with_newest_labels_the_solver_is_scikit_learns_logistic_regression(rotate):
    features, labels = blobs(0, 20)
    features = features.double()
    x, l2, spread = features, 0.01, None
    rotated = _Rotated.of(features)
    if rotate:
        x, spread = rotated.x, rotated.spread
        l2 *= float(rotated.axes[:, 0].square().sum())  # in the unit of the rotated features
    found = minimise(x, certain(labels, 6), torch.arange(120), torch.ones(120), l2, spread_r=spread, tolerance=1e-9)
    reference = LogisticRegression(C=1 / (120 * 0.01), solver="newton-cg", tol=1e-10, max_iter=10_000)
    reference.fit(features.numpy(), labels.numpy())
    weight, bias = rotated.unrotate(found) if rotate else (found[:-1].T, found[-1])
    np.testing.assert_allclose(weight, reference.coef_, atol=1e-4)
    np.testing.assert_allclose(bias - bias.mean(), reference.intercept_ - reference.intercept_.mean(), atol=1e-4)


def test_with_old_labels_the_solver_minimises_what_a_naive_loop_computes():
    features, labels = blobs(1, 4, dimensions=3)
    evidence = torch.cat([certain(labels[:12], 6), coarse(labels[12:])])
    evidence[15, evidence[15] == 0] = torch.tensor([0.2, 0.5, 0.9]).log()
    weights, offsets = torch.linspace(0.5, 1.5, 24), torch.linspace(-1, 1, 6).repeat(24, 1)
    x, rows, shifts = features.double().numpy(), evidence.double().exp().numpy(), offsets.double().numpy()

    def naive(parameters):
        head = parameters.reshape(4, 6)
        total = 0.0
        for sample in range(24):
            odds = [math.exp(x[sample] @ head[:3, c] + head[3, c] + shifts[sample, c]) for c in range(6)]
            likelihood = sum(odds[c] / sum(odds) * rows[sample, c] for c in range(6))
            total -= float(weights[sample]) * math.log(likelihood)
        return total / float(weights.sum()) + 0.05 / 2 * float((head[:3] ** 2).sum())

    expected = minimize(naive, np.zeros(24), options={"gtol": 1e-7})
    found = minimise(features.double(), evidence, torch.arange(24), weights, 0.05, offsets_nc=offsets)
    assert naive(found.numpy().ravel()) <= expected.fun + 1e-9
    reference = torch.from_numpy(expected.x.reshape(4, 6))
    torch.testing.assert_close(centred(found), centred(reference), rtol=0, atol=1e-3)


def test_old_labels_make_it_better():
    gains = []
    for seed in range(6):
        features, labels = clouds(seed)
        evidence = torch.cat([certain(labels[:30], 6), coarse(labels[30:600])])
        heads = linear_head(features[:600], evidence), linear_head(features[:30], evidence[:30])
        with_old, alone = (accuracy(head, features[600:], labels[600:]) for head in heads)
        gains.append(with_old - alone)
    assert sum(gains) / len(gains) > 0.02


@pytest.mark.parametrize(("right", "chosen"), [(True, 1.0), (False, 0.01)])
def test_cross_validation_chooses_how_much_old_labels_weigh(right, chosen):
    features, labels = clouds(3)
    old = labels[120:] if right else labels[120:].flip(0)
    evidence = torch.cat([certain(labels[:120], 6), coarse(old)])
    shares, strength = (0.01, 1.0), [1e-2]
    found = fit_linear(features, evidence, strengths=strength, history_shares=shares)
    fits = {share: fit_linear(features, evidence, strengths=strength, history_shares=[share]) for share in shares}
    losses = {share: float(F.cross_entropy(fit.held_out_mc, labels[:120])) for share, fit in fits.items()}
    assert min(losses, key=losses.get) == chosen
    torch.testing.assert_close(found.weight, fits[chosen].weight, rtol=0, atol=1e-4)
    torch.testing.assert_close(found.held_out_mc, fits[chosen].held_out_mc)


def test_frequent_classes_are_not_preferred():
    random = torch.Generator().manual_seed(0)
    labels = (torch.arange(220) < 20).long()  # a rare class and a frequent one that overlap
    features = torch.randn(220, 2, generator=random) + labels.unsqueeze(1)
    weight, bias = linear_head(features, certain(labels, 2))
    other = torch.randn(2_000, 2, generator=random) + 0.5  # midway
    predicted = (other @ weight.T + bias).argmax(dim=1)
    assert predicted.float().mean().item() == pytest.approx(0.5, abs=0.15)


def test_confidence_is_about_as_large_as_accuracy():
    features, labels = blobs(3, 200)
    weight, bias = linear_head(features[:300], certain(labels[:300], 6))
    confidence = (features[300:] @ weight.T + bias).softmax(dim=1).amax(dim=1).mean().item()
    assert confidence == pytest.approx(accuracy((weight, bias), features[300:], labels[300:]), abs=0.05)


def test_the_same_data_give_the_same_head_and_permuted_classes_a_permuted_one():
    features, labels = blobs(2, 12)
    evidence = torch.cat([certain(labels[:36], 6), coarse(labels[36:])])
    weight, bias = linear_head(features, evidence)
    again = linear_head(features, evidence)
    assert torch.equal(again[0], weight)
    assert torch.equal(again[1], bias)
    order = torch.tensor([3, 0, 5, 1, 4, 2])
    strength = fit_linear(features, evidence).strength
    fixed = [fit_linear(features, rows, strengths=[strength]) for rows in (evidence, evidence[:, order])]
    probs = [(features @ head.weight.T + head.bias) for head in fixed]
    torch.testing.assert_close(probs[0][:, order].argmax(dim=1), probs[1].argmax(dim=1))


@pytest.mark.parametrize("factor", [1e-6, 100.0, 1e15])
def test_probabilities_do_not_depend_on_unit_or_offset_of_features(factor):
    features, labels = blobs(2, 20)
    features, evidence = features.double(), certain(labels, 6)
    moved = factor * features + 3 * factor
    logits = [x @ w.T + b for x in (features, moved) for w, b in [linear_head(x, evidence)]]
    torch.testing.assert_close(logits[0].softmax(dim=1), logits[1].softmax(dim=1), rtol=0, atol=1e-3)


def test_samples_whose_labels_say_nothing_do_not_count():
    features, labels = blobs(6, 10)
    far_away = torch.cat([features, 50 + torch.randn(50, 12)])
    alone = linear_head(features, certain(labels, 6))
    for one, other in zip(
        alone, linear_head(far_away, torch.cat([certain(labels, 6), torch.zeros(50, 6)])), strict=True
    ):
        torch.testing.assert_close(one, other)


def test_a_class_that_no_label_allows_is_never_predicted():
    features, labels = blobs(4, 10)
    weight, bias = linear_head(features, certain(labels, 7))
    assert (features @ weight.T + bias).softmax(dim=1)[:, 6].max() == 0


def test_a_class_that_only_old_labels_allow_does_no_harm_to_others():
    features, labels = blobs(5, 30)
    known = labels != 5
    evidence = torch.where(known.unsqueeze(1), certain(labels, 6), coarse(labels))
    head = linear_head(features, evidence)
    assert head[1].isfinite().all()
    assert accuracy(head, features[known], labels[known]) > 0.95
    predicted = (features @ head[0].T + head[1]).argmax(dim=1)
    assert (COARSE[predicted] == COARSE[labels]).all()


@pytest.mark.parametrize("each", [1, 2])
def test_one_sample_of_each_class_is_enough(each):
    features, labels = blobs(5, each)
    assert accuracy(linear_head(features, certain(labels, 6)), features, labels) == 1


def test_a_class_with_one_label_is_never_held_out():
    features, labels = blobs(5, 5)
    evidence = torch.cat([certain(labels, 7), certain([6], 7)])
    held_out = fit_linear(torch.cat([features, features[:1] + 9]), evidence).held_out_mc
    assert held_out.isnan().any(dim=1).tolist() == [False] * 30 + [True]


@pytest.mark.parametrize(
    "features",
    [
        torch.tensor([[0.0, 1.0], [1.0, 0.0]]),
        torch.full((2, 2), 0.1),
        torch.tensor([[3e38, 0.0], [-3e38, 1.0]]),
        torch.randn(2, 5_000, generator=torch.Generator().manual_seed(0)),
        torch.tensor([[1.0, 2.0]] * 8 + [[2.0, 1.0]] * 8),
        torch.full((16, 3), 0.1),
    ],
    ids=["two samples", "constant", "huge", "wide", "repeated", "constant with folds"],
)
def test_little_data_give_a_finite_head(features):
    labels = (torch.arange(len(features)) >= len(features) // 2).long()
    weight, bias = linear_head(features, certain(labels, 2))
    assert weight.isfinite().all()
    assert bias.isfinite().all()
    if len(features.unique(dim=0)) > 1:
        assert accuracy((weight.double(), bias.double()), features.double(), labels) == 1


def test_a_single_class_is_always_predicted():
    weight, bias = linear_head(torch.randn(6, 3), torch.zeros(6, 1))
    assert weight.shape == (1, 3)
    assert bias.isfinite().all()


def test_a_few_newest_labels_among_many_old_ones_are_enough():
    features, labels = blobs(7, 40)
    evidence = coarse(labels)
    evidence[:6] = certain(labels[:6], 6)
    assert accuracy(linear_head(features, evidence), features, labels) > 0.5


@pytest.mark.parametrize(
    ("features", "evidence", "message"),
    [
        (torch.randn(4, 3), torch.tensor([[0.0, 0.0, -torch.inf]] * 4), "no label determines a newest class"),
        (torch.randn(4, 3), torch.zeros(4, 2), "no label determines a newest class"),
        (torch.full((4, 3), torch.nan), certain([0, 1, 0, 1], 2), "NaN or infinity"),
    ],
)
def test_what_cannot_be_fitted_is_refused(features, evidence, message):
    with pytest.raises(LecoError, match=message):
        linear_head(features, evidence)
