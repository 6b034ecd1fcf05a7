import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given
from tests.ontologies import ontologies

from leco import Change, LecoError, Ontology, Transition, Version


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


def test_every_kind_of_change_is_found(street):
    assert street.changes("v1", "v2") == [
        Change("split", ("bus",), ("school-bus", "city-bus")),
        Change("carved", ("road",), ("road", "parking-aisle")),
        Change("carved", ("background",), ("traffic-cone", "background")),
        Change("merged", ("child", "police-officer"), ("special-subject",)),
        Change("renamed", ("car",), ("automobile",)),
        Change("added", (), ("drone",)),
        Change("removed", ("fax",), ()),
        Change("kept", ("sidewalk",), ("sidewalk",)),
    ]
    assert Change("ignored", ("drone",), ()) in street.changes("v2", "v3")
    assert Change("merged", ("road", "parking-aisle"), ("road",)) in street.changes("v2", "v3")


def test_changes_over_several_versions_see_through_the_ones_between(street):
    found = street.changes("v1", "v3")
    assert Change("kept", ("bus",), ("bus",)) in found  # split in v2, merged again in v3
    assert Change("split", ("car",), ("automobile", "truck")) not in found
    assert Change("carved", ("car",), ("automobile", "truck")) in found  # the id lives on under another name


def test_classes_that_trade_places_are_redrawn():
    content = {"a2": {"from": {"a": 0.9, "b": 0.1}}, "b2": {"from": {"a": 0.2, "b": 0.8}}}
    ontology = _two(["a", "b"], content)
    assert [change.kind for change in ontology.changes("v1", "v2")] == ["redrawn"]


def test_a_class_that_lost_a_part_on_the_way_is_not_called_renamed():
    parts = {"a1": {"from": "a"}, "a2": {"from": "a"}}
    for last in ({"name": "v3", "classes": ["a1"], "ignore": ["a2"]}, {"name": "v3", "classes": ["a1"]}):
        versions = [{"name": "v1", "classes": ["a"]}, {"name": "v2", "classes": parts}, last]
        assert Ontology.from_dict({"versions": versions}).changes("v1", "v3") == [Change("split", ("a",), ("a1",))]


def test_a_class_that_absorbed_a_brand_new_one_is_not_called_kept():
    versions = [["a", "b"], ["a", "b", "n"], {"a": {"from": ["a", "n"]}, "b": None}]
    content = [{"name": f"v{n}", "classes": classes} for n, classes in enumerate(versions, start=1)]
    found = Ontology.from_dict({"versions": content}).changes("v1", "v3")
    assert found == [Change("merged", ("a",), ("a",)), Change("kept", ("b",), ("b",))]


def test_an_empty_from_says_brand_new_in_spite_of_the_name():
    assert [change.kind for change in _two(["a"], {"a": {"from": []}}).changes("v1", "v2")] == ["added", "removed"]


def test_a_slash_in_a_repeated_name_is_refused_where_it_would_confuse():
    with pytest.raises(LecoError, match="'X/Y' would be the id of 2 classes"):
        Ontology.from_taxonomy("t", ["l1", "l2"], [("P", "X/Y"), ("X", "Y"), ("Q", "Y")])
    with pytest.raises(LecoError, match="lineage 1 of t"):
        Ontology.from_taxonomy("t", ["l1", "l2"], [("P", "Y"), ("X", None)])


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


def test_names_may_repeat_under_different_parents():
    lineages = [("Lycaenidae", "Satyrium", "S. w-album"), ("Orchidaceae", "Satyrium", "S. odorum")]
    ontology = Ontology.from_taxonomy("genera", ["family", "genus", "species"], lineages)
    assert ontology["genus"].classes == ("Satyrium", "Satyrium")
    assert ontology.translate(["S. odorum"], "species", "family") == ["Orchidaceae"]
    assert ontology.translate(["S. odorum"], "species", "genus") == ["Orchidaceae/Satyrium"]
    with pytest.raises(LecoError, match=r"names several classes of genus; use an id: 'Lycaenidae/Satyrium' or"):
        ontology["genus"].index("Satyrium")
    assert ontology["genus"].index("Orchidaceae/Satyrium") == 1


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


def test_one_child_of_another_kind_is_no_rename():
    assert [c.kind for c in _two(["genus"], {"species": {"from": "genus"}}).changes("v1", "v2")] == ["replaced"]
    assert [c.kind for c in _two(["genus"], {"species": {"renamed": "genus"}}).changes("v1", "v2")] == ["renamed"]


def test_versions_and_histories_made_by_hand_are_checked():
    with pytest.raises(LecoError, match="every class needs an id, and no two the same"):
        Version("v1", ("a", "a"))
    with pytest.raises(LecoError, match="every class needs an id"):
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
    original = _two(["a", "b"], {"c": {"from": {"a": 0.6, "b": 0.4}}, "d": {"from": "a"}})
    others = [
        _two(["b", "a"], {"c": {"from": {"a": 0.6, "b": 0.4}}, "d": {"from": "a"}}),
        _two(["a", "b"], {"c": {"from": {"a": 0.7, "b": 0.3}}, "d": {"from": "a"}}),
        _two(["a", "b"], {"d": {"from": "a"}, "c": {"from": {"a": 0.6, "b": 0.4}}}),
        _two(["a", "b"], {"c": {"from": {"a": 0.6, "b": 0.4}}, "e": {"from": "a"}}),
    ]
    assert len({original.fingerprint, *[other.fingerprint for other in others]}) == 5


@pytest.mark.parametrize(
    ("labels", "expected"),
    [
        (["bus", "", None, float("nan"), "road"], [1, -1, -1, -1, 0]),
        (pd.Series(["bus", None, "void"]), [1, -1, -1]),
        (np.array([1, -1], dtype=np.int8), [1, -1]),
        (np.array(["road", "bus"]), [0, 1]),
        ([], []),
        (["bus", float("nan")], [1, -1]),
        (pd.Series([1, None]), [1, -1]),
        (pd.Series([1, None], dtype="Int64"), [1, -1]),
        (pd.Series(["bus", None], dtype="string"), [1, -1]),
        (np.ma.array([0, 1], mask=[False, True]), [0, -1]),
        ([np.float32(1), np.float32("nan")], [1, -1]),
        ([[0, 1], [1, -1]], [[0, 1], [1, -1]]),
    ],
)
def test_labels_are_encoded_whatever_holds_them(labels, expected):
    version = Version("v1", ("road", "bus"), ignored=("void",))
    assert version.encode(labels).tolist() == expected


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        (["road", "buss"], r"position 1: 'buss' is not a class of v1; did you mean 'bus'\?"),
        ([0, 2], "label 2 at position 1 is not a class index of v1: valid are 0 to 1"),
        ([-2], "label -2 at position 0"),
        ([0.5], r"label 0.5 at position 0 is neither"),
        ([True, False], "neither a class name"),
        ([0, None, 7], "label 7 at position 2"),
        ([["road", "bus"], ["road", "x"]], r"label at position \(1, 1\): 'x' is not a class"),
        ([10**30], "at position 0 is not a class index"),
        (np.array([2**64 - 1], dtype=np.uint64), "label 18446744073709551615 at position 0"),
        ([np.zeros(2), np.zeros(3)], "neither a class name"),
        ("road", "labels of v1 must be a sequence, not 'road'"),
    ],
)
def test_a_label_that_is_no_class_is_named_with_its_place(labels, message):
    with pytest.raises(LecoError, match=message):
        Version("v1", ("road", "bus")).encode(labels)


def test_a_transition_refuses_shares_that_are_no_probabilities():
    old, new = Version("v1", ("a", "b")), Version("v2", ("c", "d"))
    with pytest.raises(LecoError, match=r"shares of 'd' in v1 must be positive and sum to 1 at most, not 0.9, 0.4"):
        Transition(old, new, np.array([[1, 0], [0.9, 0.4]]))
    with pytest.raises(LecoError, match=r"shares of 'c'"):
        Transition(old, new, np.array([[1.5, -0.5], [1, 0]]))
    with pytest.raises(LecoError, match="do not fit 2 classes of v2 by 2 of v1"):
        Transition(old, new, np.eye(3))


def test_a_dense_table_of_a_huge_ontology_is_refused():
    big = Version("big", tuple(str(i) for i in range(20_000)))
    with pytest.raises(LecoError, match=r"would need 1.6 GB; use .sparse or .parents"):
        _ = Transition.identity(big).shares


def test_projecting_probabilities_is_a_product_with_the_shares(street):
    transition = street.transition("v3", "v1")
    probs = torch.rand(4, len(street.newest), 2, 3).softmax(dim=1)
    expected = torch.einsum("nchw,cd->ndhw", probs, transition.shares)
    torch.testing.assert_close(transition.project(probs), expected)


def _two(old: object, new: object) -> Ontology:
    return Ontology.from_dict({"versions": [{"name": "v1", "classes": old}, {"name": "v2", "classes": new}]})
