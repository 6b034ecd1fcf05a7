"""Class frequencies in the loss, against naive counts."""

import math

import torch

import leco
from leco.data.batches import Steps
from leco.data.periods import Annotated, Part
from leco.data.samples import InMemory, Samples
from leco.methods.terms import HISTORY, NEW
from leco.training.priors import log_priors, with_priors


def steps() -> Steps:
    """Six samples of v2 (four poodles, a husky, a cat), and five of v1 (three dogs, a cat, one without a label)."""
    content = {
        "name": "pets",
        "versions": [
            {"name": "v1", "classes": ["cat", "dog"]},
            {"name": "v2", "classes": {"cat": None, "husky": {"from": "dog"}, "poodle": {"from": "dog"}}},
        ],
    }
    ontology = leco.Ontology.from_dict(content)
    labels = {
        "v1": InMemory(torch.tensor([-1] * 6 + [1, 1, 1, 0, -1])),
        "v2": InMemory(torch.tensor([2, 2, 2, 2, 1, 0] + [-1] * 5)),
    }
    samples = Samples(InMemory(torch.zeros(11, 3)), dict(labels))
    nothing = Part("v2", torch.empty(0, dtype=torch.int64))
    history = (Part("v1", torch.arange(6, 10)), Part("v2", torch.tensor([10])))
    annotated = Annotated(Part("v2", torch.arange(6)), history, nothing)
    return Steps(samples, annotated, ontology.evidence(), 2, 0, steps=1)


def test_old_labels_count_for_the_classes_that_they_allow_at_the_frequencies_of_the_new_ones():
    found = log_priors(steps())
    cat, husky, poodle = 2, 2, 5  # one more than there are
    torch.testing.assert_close(found["new"].exp(), torch.tensor([cat, husky, poodle]) / 9)
    expected = torch.tensor([1 + 1 + 2 / 9, 1 + 3 * 2 / 7 + 2 / 9, 1 + 3 * 5 / 7 + 5 / 9])
    torch.testing.assert_close(found["history"].exp(), expected / expected.sum())


def test_half_the_strength_is_half_the_logarithm():
    whole, half = log_priors(steps()), log_priors(steps(), 0.5)
    assert all(torch.allclose(half[part], whole[part] / 2) for part in whole)


def test_only_logits_of_the_version_are_shifted_and_each_part_by_its_own_frequencies():
    outputs = {request: {"v1": torch.ones(2, 2), "v2": torch.ones(2, 3)} for request in (NEW, HISTORY)}
    priors = {"new": torch.tensor([0.0, 1.0, 2.0]), "history": torch.full((3,), -math.log(2))}
    found = with_priors(outputs, priors, "v2")
    assert found[NEW]["v2"].tolist() == [[1.0, 2.0, 3.0]] * 2
    torch.testing.assert_close(found[HISTORY]["v2"], torch.full((2, 3), 1 - math.log(2)))
    assert all(torch.equal(found[request]["v1"], torch.ones(2, 2)) for request in found)
    assert torch.equal(outputs[NEW]["v2"], torch.ones(2, 3))
