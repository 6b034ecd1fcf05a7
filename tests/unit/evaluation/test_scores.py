import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import confusion_matrix, jaccard_score, recall_score
from tests.ontologies import ontologies

from leco import LecoError, Ontology
from leco.evaluation import at_version, confusion, mistake_severity, predict_at, scores


@given(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4)), min_size=1, max_size=60))
def test_scores_equal_scikit_learns(pairs):
    true, predicted = (torch.tensor(column) for column in zip(*pairs, strict=True))
    matrix = confusion(predicted, true, 5)
    assert matrix[:, :5].tolist() == confusion_matrix(true, predicted, labels=range(5)).tolist()
    found = scores(matrix, "abcde")
    present = sorted(set(true.tolist()))
    assert found.macc == pytest.approx(recall_score(true, predicted, labels=present, average="macro"))
    assert found.miou == pytest.approx(jaccard_score(true, predicted, labels=present, average="macro", zero_division=0))
    assert found.absent == tuple("abcde"[c] for c in range(5) if c not in present)


def test_matrices_of_batches_add_up_to_that_of_the_whole_set():
    true, predicted = torch.randint(-1, 4, (6, 8, 8)), torch.randint(4, (6, 8, 8))
    whole = confusion(predicted, true, 4)
    assert torch.equal(whole, sum(confusion(p, t, 4) for p, t in zip(predicted, true, strict=True)))
    assert whole.sum() == (true >= 0).sum()


def test_miou_is_over_the_whole_set_and_not_per_image():
    true, predicted = torch.tensor([[0, 0, 0, 1], [1, 1, 1, 1]]), torch.tensor([[0, 0, 0, 0], [1, 1, 1, 1]])
    assert scores(confusion(predicted, true, 2), "ab").miou == pytest.approx((3 / 4 + 4 / 5) / 2)


def test_absent_classes_are_left_out_of_the_means_and_named():
    found = scores(confusion(torch.tensor([0, 2]), torch.tensor([0, 0]), 3), ["cat", "dog", "eel"])
    assert found.macc == 0.5
    assert found.absent == ("dog", "eel")  # eel was predicted, but never true
    assert found.table()[1] == {"class": "dog", "support": 0, "accuracy": None, "iou": None}


@given(ontologies(), st.data())
def test_the_matrix_at_an_older_version_equals_translating_every_label(ontology, data):
    newest, old = ontology.newest, data.draw(st.sampled_from(ontology.versions))
    sample = st.integers(-1, len(newest) - 1)
    true = torch.tensor(data.draw(st.lists(sample, min_size=20, max_size=20)))
    predicted = torch.tensor(data.draw(st.lists(sample.filter(lambda i: i >= 0), min_size=20, max_size=20)))
    matrix = at_version(confusion(predicted, true, len(newest)), ontology.transition(newest.name, old.name))
    old_true, old_predicted = (ontology.translate(labels, newest.name, old.name) for labels in (true, predicted))
    assert torch.equal(matrix, confusion(old_predicted, old_true, len(old)))


def test_predicting_in_an_older_version_sums_what_the_children_have():
    classes = {"husky": {"from": "dog"}, "poodle": {"from": "dog"}, "terrier": {"from": "dog"}, "cat": None}
    ontology = Ontology.from_dict(
        {"versions": [{"name": "v1", "classes": ["dog", "cat"]}, {"name": "v2", "classes": classes}]}
    )
    probs = torch.tensor([[0.2, 0.2, 0.2, 0.4]])
    assert predict_at(probs, ontology.transition("v2", "v1")).tolist() == [0]
    with pytest.raises(LecoError, match=r"shape \(1, 9\) do not fit 4 classes"):
        predict_at(torch.zeros(1, 9), ontology.transition("v2", "v1"))


def test_predicting_a_brand_new_class_names_no_class_of_an_older_version(street):
    probs = torch.zeros(2, len(street["v2"]))
    probs[0, street["v2"].index("drone")] = 1.0
    probs[1, [street["v2"].index("drone"), street["v2"].index("road")]] = 0.5
    assert predict_at(probs, street.transition("v2", "v1")).tolist() == [-1, 0]


def test_a_predicted_brand_new_class_names_no_class_of_the_older_version(street):
    ontology = street.until("v2")
    drone, road = ontology.newest.index("drone"), ontology.newest.index("road")
    matrix = confusion(torch.tensor([drone, road]), torch.tensor([road, drone]), len(ontology.newest))
    older = at_version(matrix, ontology.transition("v2", "v1"))
    assert older[0, -1] == 1  # a road taken for a drone is a miss
    assert older.sum() == 1  # a drone is nothing that v1 could score


def test_severity_counts_the_versions_back_to_a_common_class():
    lineages = [("a", "aa", "aaa"), ("a", "aa", "aab"), ("a", "ab", "aba"), ("b", "ba", "baa")]
    ontology = Ontology.from_taxonomy("t", ["order", "family", "species"], lineages)
    true = torch.tensor([0, 0, 0, 0, 1])
    predicted = torch.tensor([0, 1, 2, 3, 1])
    assert mistake_severity(confusion(predicted, true, 4), ontology) == pytest.approx((1 + 2 + 3) / 3)
    assert math.isnan(mistake_severity(confusion(true, true, 4), ontology))
    nameless = torch.full_like(true, -1)
    assert mistake_severity(confusion(nameless, true, 4), ontology) == 3  # no class at all is the worst mistake


def test_shapes_and_values_that_do_not_fit_are_named():
    with pytest.raises(LecoError, match=r"shape \(2,\) do not fit labels of \(3,\)"):
        confusion(torch.zeros(2).long(), torch.zeros(3).long(), 2)
    with pytest.raises(LecoError, match=r"predictions must be integers, not torch\.float32"):
        confusion(torch.zeros(2), torch.zeros(2), 2)
    with pytest.raises(LecoError, match="prediction 7 is outside 0 to 1"):
        confusion(torch.tensor([7]), torch.tensor([0]), 2)
    with pytest.raises(LecoError, match=r"shape \(2, 3\) does not fit 3 classes"):
        scores(torch.zeros(2, 3), "abc")
    ontology = Ontology.from_taxonomy("t", ["a", "b"], [("x", "xa"), ("x", "xb")])
    with pytest.raises(LecoError, match=r"shape \(3, 4\) does not fit 2 classes"):
        mistake_severity(torch.zeros(3, 4), ontology)


def test_narrow_integers_count_as_well_as_wide_ones():
    labels = torch.arange(200, dtype=torch.uint8)
    assert torch.equal(confusion(labels, labels, 300), confusion(labels.long(), labels.long(), 300))
