"""The head on frozen features, compared with scikit-learn's where possible."""

import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression
from tests.unit.planning.conftest import UNLABELLED, prepared

from leco.data.benchmarks import digits
from leco.planning.heads import fit_head, history_weight, logits


@pytest.fixture
def blobs() -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    classes = torch.arange(10).repeat(20)
    centres = torch.randn(10, 6, generator=generator)
    return centres[classes] + torch.randn(200, 6, generator=generator), classes


def test_with_newest_labels_it_is_logistic_regression(blobs):
    features, classes = blobs
    evidence = digits.ontology().evidence()
    head = fit_head(features, evidence.ids(classes, "v2"), torch.ones(200), evidence, prior=0.5)
    reference = LogisticRegression(C=1.0, tol=1e-8, max_iter=1_000).fit(features.numpy(), classes.numpy())
    expected = reference.predict_proba(features.numpy())
    np.testing.assert_allclose(logits(head, features).softmax(dim=1).numpy(), expected, atol=5e-3)


def test_old_labels_teach_the_old_distinction(blobs):
    features, classes = blobs
    ontology = digits.ontology()
    evidence = ontology.evidence()
    old = ontology.translate(classes, "v2", "v1")
    labels = evidence.ids(old, "v1")
    head = fit_head(features, labels, torch.ones(200), evidence, prior=0.1)
    predicted = ontology.translate(logits(head, features).argmax(dim=1), "v2", "v1")
    assert (predicted == old).float().mean() > 0.6  # chance is 0.4


def test_history_weighs_no_more_than_what_is_new():
    assert 40 * history_weight(10, 40) == 10
    assert history_weight(10, 4) == history_weight(10, 0) == 1


def test_samples_without_a_label_weigh_nothing(own):
    lines = (own / "labels.csv").read_text().splitlines()
    without = [line for line in lines if ",,," not in line]
    assert len(without) == len(lines) - UNLABELLED
    weight = prepared(own).context.head.history_weight
    (own / "labels.csv").write_text("\n".join(without) + "\n")
    assert prepared(own).context.head.history_weight == weight
