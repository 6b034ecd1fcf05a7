"""The head that is chosen, and the evidence for it."""

import pytest
import torch
from tests.unit.methods.test_gaussian import blobs, certain
from tests.unit.methods.test_linear import clouds, coarse

from leco.methods.choice import (
    NEWEST_ALONE,
    average,
    averaged_head,
    choose,
    choose_head,
    fit_gaussian,
    mean_over_classes,
)
from leco.methods.linear import Fitted, fit_linear

LABELS = torch.arange(4).repeat(10)


def predicting(wrong):
    """A head whose held-out predictions are right, but for some samples."""
    predicted = LABELS.clone()
    predicted[wrong] = (predicted[wrong] + 1) % 4
    logits = torch.nn.functional.one_hot(predicted, 4).double()
    return Fitted(torch.zeros(4, 2), torch.zeros(4), logits)


def test_the_preferred_head_is_chosen_unless_another_is_clearly_better():
    heads = {"a": predicting(range(9)), "b": predicting(range(8)), "alone": predicting(range(12))}
    assert choose(heads, LABELS, "alone") == "a"
    assert choose(heads | {"a": predicting(range(11)), "b": predicting(range(2))}, LABELS, "alone") == "b"


def test_a_head_that_is_worse_than_the_baseline_is_not_chosen():
    heads = {"a": predicting(range(5)), "alone": predicting(range(4))}
    assert choose(heads, LABELS, "alone") == "alone"
    assert choose(heads, LABELS, "a") == "a"


def test_without_held_out_samples_the_baseline_is_kept():
    features = torch.tensor([[0.0], [1.0], [0.1]])
    evidence = torch.cat([certain([0, 1], 2), torch.tensor([[0.0, -0.5]])])
    name, head = choose_head(features, evidence)
    alone = fit_linear(features[:2], evidence[:2])
    assert name == NEWEST_ALONE
    torch.testing.assert_close((head.weight, head.bias), (alone.weight, alone.bias))


def test_the_standard_error_is_that_of_repeated_draws():
    random = torch.Generator().manual_seed(0)
    labels = torch.tensor([0] * 10 + [1] * 40)
    draws = torch.rand(4_000, 50, generator=random) < 0.3
    means, errors = zip(*(mean_over_classes(draw.double(), labels) for draw in draws), strict=True)
    assert torch.tensor(errors).mean().item() == pytest.approx(torch.tensor(means).std().item(), rel=0.05)


def test_old_labels_are_used_where_they_help():
    features, labels = clouds(0)
    evidence = torch.cat([certain(labels[:60], 6), coarse(labels[60:600])])
    name, head = choose_head(features[:600], evidence)
    assert name != NEWEST_ALONE
    logits = features[600:] @ head.weight.T + head.bias
    assert (logits.argmax(dim=1) == labels[600:]).float().mean() > 0.5


def test_an_average_of_equal_heads_predicts_as_each_of_them():
    features, labels = blobs(1, 10)
    one = fit_linear(features, certain(labels, 6))
    both = average([one, one], labels)
    torch.testing.assert_close(both.weight, one.weight, rtol=1e-3, atol=1e-4)
    torch.testing.assert_close(both.held_out_mc, one.held_out_mc, rtol=1e-3, atol=1e-4)


def test_the_averaged_head_is_the_average_of_a_linear_and_a_gaussian_one():
    features, labels = blobs(2, 20)
    evidence = torch.cat([certain(labels[:60], 6), coarse(labels[60:])])
    expected = average([fit_linear(features, evidence), fit_gaussian(features, evidence)], labels[:60])
    torch.testing.assert_close(averaged_head(features, evidence), (expected.weight, expected.bias))
