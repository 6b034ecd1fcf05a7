import numpy as np
import pytest
import torch
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis

from leco import LecoError
from leco.methods import gaussian
from leco.methods.gaussian import gaussian_head

COARSE = torch.tensor([0, 0, 0, 1, 1, 1])  # of six fine classes


def certain(labels, classes):
    evidence = torch.full((len(labels), classes), -torch.inf)
    evidence[torch.arange(len(labels)), labels] = 0
    return evidence


def blobs(seed, each, dimensions=12):
    """Features and fine classes: two clouds of three classes that are close to each other."""
    random = torch.Generator().manual_seed(seed)
    centres = 3.0 * torch.randn(2, dimensions, generator=random)[COARSE]
    centres = centres + torch.randn(6, dimensions, generator=torch.Generator().manual_seed(99))
    labels = torch.arange(6).repeat(each)
    return centres[labels] + torch.randn(len(labels), dimensions, generator=random), labels


def accuracy(head, features, labels):
    weight, bias = head
    return ((features @ weight.T + bias).argmax(dim=1) == labels).float().mean().item()


def test_with_newest_labels_alone_it_is_linear_discriminant_analysis():
    features, labels = blobs(0, 10)
    weight, bias = gaussian_head(features, certain(labels, 6), prior_samples=0.0)
    reference = LinearDiscriminantAnalysis(solver="lsqr", shrinkage=gaussian.SHRINKAGE, priors=np.full(6, 1 / 6))
    reference.fit(features.double().numpy(), labels.numpy())
    ours = features @ weight.T + bias
    theirs = torch.from_numpy(reference.decision_function(features.double().numpy())).float()
    ours, theirs = (logits - logits.mean(dim=1, keepdim=True) for logits in (ours, theirs))
    temperature = theirs.norm() / ours.norm()
    assert temperature >= 1
    torch.testing.assert_close(temperature * ours, theirs, rtol=1e-3, atol=1e-3)


def test_old_labels_make_it_better():
    gains = []
    for seed in range(6):
        features, labels = blobs(seed, 60)
        few, history = slice(0, 18), slice(18, 258)
        old = torch.zeros(len(labels), 6).masked_fill(COARSE[labels].unsqueeze(1) != COARSE, -torch.inf)
        evidence = torch.cat([certain(labels[few], 6), old[history]])
        with_old = gaussian_head(features[:258], evidence)
        alone = gaussian_head(features[few], evidence[few])
        gains.append(accuracy(with_old, features[258:], labels[258:]) - accuracy(alone, features[258:], labels[258:]))
    assert sum(gains) / len(gains) > 0.02


def test_guesses_are_made_of_what_labels_allow_and_every_class_as_often(monkeypatch):
    features, labels = blobs(1, 30)
    old = torch.zeros(len(labels), 6).masked_fill(COARSE[labels].unsqueeze(1) != COARSE, -torch.inf)
    evidence = torch.cat([certain(labels[:30], 6), old[30:]])
    seen = []
    discriminants = gaussian._discriminants
    monkeypatch.setattr(
        gaussian, "_discriminants", lambda x, guesses, *rest: seen.append(guesses) or discriminants(x, guesses, *rest)
    )
    gaussian_head(features, evidence)
    guesses = seen[-1]
    assert (guesses[evidence.isinf()] == 0).all()
    torch.testing.assert_close(guesses.sum(dim=1), torch.ones(len(guesses), dtype=torch.float64))
    torch.testing.assert_close(guesses[30:].sum(dim=0), torch.full((6,), 25.0, dtype=torch.float64), rtol=0.02, atol=0)


def test_probabilities_do_not_depend_on_the_unit_of_features():
    features, labels = blobs(2, 20)
    heads = [gaussian_head(factor * features, certain(labels, 6)) for factor in (1.0, 100.0)]
    logits = [factor * features @ w.T + b for factor, (w, b) in zip((1.0, 100.0), heads, strict=True)]
    torch.testing.assert_close(logits[0].softmax(dim=1), logits[1].softmax(dim=1), rtol=1e-3, atol=1e-4)


def test_confidence_is_about_as_large_as_accuracy():
    features, labels = blobs(3, 200)
    weight, bias = gaussian_head(features[:300], certain(labels[:300], 6))
    confidence = (features[300:] @ weight.T + bias).softmax(dim=1).amax(dim=1).mean().item()
    assert confidence == pytest.approx(accuracy((weight, bias), features[300:], labels[300:]), abs=0.05)


@pytest.mark.parametrize("each", [2, 5])
def test_with_few_labels_it_is_underconfident_rather_than_overconfident(each):
    sure, right = [], []
    for seed in range(10):
        features, labels = blobs(seed, each + 50)
        few = 6 * each
        head = gaussian_head(features[:few], certain(labels[:few], 6))
        sure.append((features[few:] @ head[0].T + head[1]).softmax(dim=1).amax(dim=1).mean().item())
        right.append(accuracy(head, features[few:], labels[few:]))
    assert sum(sure) / 10 < sum(right) / 10 + 0.05


def test_means_are_drawn_towards_what_old_labels_allow(monkeypatch):
    seen = []
    discriminants = gaussian._discriminants
    monkeypatch.setattr(gaussian, "_discriminants", lambda *of: seen.append(of[2]) or discriminants(*of))
    features = torch.tensor([[0.0], [2.0], [10.0], [12.0], [1.0], [11.0]])
    evidence = certain([0, 1, 2, 3, 0, 2], 4)
    evidence[4, 1] = evidence[5, 3] = 0.0  # one is a 0 or a 1, the other a 2 or a 3
    gaussian_head(features, evidence)
    expected = torch.tensor([0.5 / 1.5, 2.5 / 1.5, 15.5 / 1.5, 17.5 / 1.5]) - features.mean()
    torch.testing.assert_close(seen[-1].squeeze(1).float(), expected, rtol=0, atol=0.02)


def test_samples_whose_labels_say_nothing_do_not_count():
    features, labels = blobs(6, 10)
    evidence = certain(labels, 6)
    far_away = torch.cat([features, 50 + torch.randn(500, 12)])
    alone = gaussian_head(features, evidence)
    for one, other in zip(alone, gaussian_head(far_away, torch.cat([evidence, torch.zeros(500, 6)])), strict=True):
        torch.testing.assert_close(one, other)


def test_an_offset_of_all_features_changes_nothing():
    features, labels = blobs(7, 20)
    probs = []
    for offset in (0.0, 1000.0):
        weight, bias = gaussian_head(features + offset, certain(labels, 6))
        probs.append(((features + offset) @ weight.T + bias).softmax(dim=1))
    torch.testing.assert_close(probs[0], probs[1], rtol=0, atol=0.01)


def test_a_class_that_no_label_allows_is_never_predicted():
    features, labels = blobs(4, 10)
    weight, bias = gaussian_head(features, certain(labels, 7))
    assert (features @ weight.T + bias).softmax(dim=1)[:, 6].max() == 0


def test_one_sample_of_each_class_is_enough():
    features, labels = blobs(5, 1)
    assert accuracy(gaussian_head(features, certain(labels, 6)), features, labels) == 1


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
        gaussian_head(features, evidence)
