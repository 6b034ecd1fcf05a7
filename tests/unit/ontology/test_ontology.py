import numpy as np
import pytest
import torch
from hypothesis import given
from tests.ontologies import ontologies, two_versions

from leco import LecoError, Ontology, Transition, Version


def naive_shares(ontology: Ontology, new: str, old: str) -> list[list[float]]:
    """Compose the steps with loops over plain lists."""
    names = [version.name for version in ontology.versions]
    first, last = names.index(old), names.index(new)
    product = [[float(i == j) for j in range(len(ontology[old]))] for i in range(len(ontology[old]))]
    for step in ontology.steps[first:last]:
        dense = step.sparse.toarray()
        product = [
            [sum(dense[i][k] * product[k][j] for k in range(len(product))) for j in range(len(ontology[old]))]
            for i in range(dense.shape[0])
        ]
    return product


@given(ontologies())
def test_composition_equals_matrix_products_written_as_loops(ontology):
    for old in ontology.versions:
        shares = ontology.transition(ontology.newest.name, old.name).shares
        expected = torch.tensor(naive_shares(ontology, ontology.newest.name, old.name))
        torch.testing.assert_close(shares, expected.float().view_as(shares))


@given(ontologies(every_class_has_a_past=True))
def test_rows_sum_to_one_over_any_number_of_versions(ontology):
    for old in ontology.versions:
        sums = ontology.transition(ontology.newest.name, old.name).shares.sum(dim=1)
        torch.testing.assert_close(sums, torch.ones_like(sums))


@given(ontologies(least=4))
def test_composition_is_associative(ontology):
    steps = ontology.steps
    one = steps[0].then(steps[1]).then(steps[2])
    other = steps[0].then(steps[1].then(steps[2]))
    torch.testing.assert_close(one.shares, other.shares)


@given(ontologies(trees=True))
def test_a_tree_stays_a_tree_and_stores_one_entry_per_class(ontology):
    for old in ontology.versions:
        transition = ontology.transition(ontology.newest.name, old.name)
        assert transition.is_tree
        assert transition.sparse.nnz == len(ontology.newest)


def test_a_renamed_class_keeps_its_id_and_a_new_class_may_take_its_name():
    ontology = Ontology.from_dict(
        {
            "versions": [
                {"name": "v1", "classes": ["car", "truck"]},
                {"name": "v2", "classes": {"automobile": {"renamed": "car"}, "car": {"from": "truck"}, "truck": None}},
                {"name": "v3", "classes": {"automobile": None, "car": None, "truck": None}},
            ]
        }
    )
    assert ontology["v2"].ids == ("car", "car@v2", "truck")
    assert ontology["v3"].ids == ("car", "car@v2", "truck")
    assert ontology.translate(["automobile", "car"], "v3", "v1") == ["car", "truck"]


def test_translating_gives_names_for_names_and_indices_for_indices(street):
    names = ["school-bus", "special-subject", "drone", ""]
    assert street.translate(names, "v2", "v1") == ["bus", "child", "", ""]
    indices = street["v2"].encode(names)
    expected = [2, 3, -1, -1]
    assert street.translate(indices, "v2", "v1").tolist() == expected
    translated = street.translate(torch.from_numpy(indices), "v2", "v1")
    assert isinstance(translated, torch.Tensor)
    assert translated.tolist() == expected
    assert street.translate(torch.tensor([9], dtype=torch.uint8), "v2", "v1").tolist() == [-1]
    assert street.translate([["school-bus"], ["drone"]], "v2", "v1") == [["bus"], [""]]


def test_translation_at_the_same_version_changes_nothing(street):
    assert street.translate(["road", "drone"], "v2", "v2") == ["road", "drone"]


def test_versions_and_histories_made_by_hand_are_checked():
    with pytest.raises(LecoError, match="every class needs a unique id"):
        Version("v1", ("a", "a"))
    with pytest.raises(LecoError, match="every class needs a unique id"):
        Version("v1", ("a",), ids=("x", "y"))
    old, new = Version("v1", ("a", "b")), Version("v2", ("c",))
    with pytest.raises(LecoError, match=r"the shares of 'c' in v1 sum to 0.5, not 1"):
        Ontology("x", (old, new), (Transition(old, new, np.array([[0.5, 0]])),))


def test_it_shows_itself_in_one_line(street):
    assert repr(street) == "Ontology('street': v1 (8 classes) -> v2 (10 classes) -> v3 (9 classes))"
    assert repr(street["v2"]) == "Version('v2', 10 classes)"
    assert repr(street.transition("v2", "v1")) == "Transition(v2 -> v1, 10 links)"


def test_until_is_the_ontology_as_it_was(street):
    before = street.until("v2")
    assert [version.name for version in before.versions] == ["v1", "v2"]
    assert before.evidence().num_classes == len(street["v2"])
    assert street.until("v1").evidence().rows(["bus"], "v1").argmax().item() == 2


def test_unknown_versions_and_wrong_directions_are_named(street):
    with pytest.raises(LecoError, match=r"'v4' is not a version of street; valid: 'v1', 'v2', 'v3'"):
        street.transition("v4", "v1")
    with pytest.raises(LecoError, match="v1 is older than v2"):
        street.transition("v1", "v2")


def test_the_fingerprint_changes_with_any_class_share_or_order():
    original = two_versions(["a", "b"], {"c": {"from": {"a": 0.6, "b": 0.4}}, "d": {"from": "a"}})
    others = [
        two_versions(["b", "a"], {"c": {"from": {"a": 0.6, "b": 0.4}}, "d": {"from": "a"}}),
        two_versions(["a", "b"], {"c": {"from": {"a": 0.7, "b": 0.3}}, "d": {"from": "a"}}),
        two_versions(["a", "b"], {"d": {"from": "a"}, "c": {"from": {"a": 0.6, "b": 0.4}}}),
        two_versions(["a", "b"], {"c": {"from": {"a": 0.6, "b": 0.4}}, "e": {"from": "a"}}),
    ]
    assert len({original.fingerprint, *[other.fingerprint for other in others]}) == 5
