"""Changes between two versions, and differences between two histories."""

import copy

import pytest
from tests.conftest import STREET
from tests.ontologies import two_versions

from leco import Change, LecoError, Ontology
from leco.ontology.changes import differences, require_same


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
    ontology = two_versions(["a", "b"], content)
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
    assert [change.kind for change in two_versions(["a"], {"a": {"from": []}}).changes("v1", "v2")] == [
        "added",
        "removed",
    ]


def test_one_child_of_another_kind_is_no_rename():
    assert [c.kind for c in two_versions(["genus"], {"species": {"from": "genus"}}).changes("v1", "v2")] == ["replaced"]
    assert [c.kind for c in two_versions(["genus"], {"species": {"renamed": "genus"}}).changes("v1", "v2")] == [
        "renamed"
    ]


def changed(change) -> Ontology:
    content = copy.deepcopy(STREET)
    change(content["versions"])
    return Ontology.from_dict(content)


def rename(version: dict, old: str, new: str) -> None:
    version["classes"] = [new if name == old else name for name in version["classes"]]


CASES = {
    "a version is missing": (lambda v: v.pop(), ["version v3 is missing"]),
    "a version was put in": (
        lambda v: v.insert(1, {"name": "v1.5", "classes": list(v[0]["classes"])}),
        ["version v1.5 was inserted"],
    ),
    "a class is missing": (lambda v: v[0]["classes"].remove("fax"), ["v1: 'fax' is missing"]),
    "a class was added": (lambda v: v[2]["classes"].update(tram=None), ["v3: 'tram' was added"]),
    "a class took the place of another": (lambda v: rename(v[0], "fax", "telex"), ["v1: 'fax' was renamed to 'telex'"]),
    "a class has another name": (
        lambda v: v[2]["classes"].update(truck={"from": "automobile", "name": "lorry", "id": "truck"}),
        ["v3: 'truck' was renamed to 'lorry'"],
    ),
    "another order": (lambda v: v[0]["classes"].reverse(), ["v1: the order of classes differs"]),
    "other labels are ignored": (lambda v: v[1].pop("ignore"), ["v2: the ignored labels differ: none"]),
    "another parent": (
        lambda v: v[1]["classes"].update({"city-bus": {"from": "road"}}),
        ["v2: 'city-bus' comes from 'road', not 'bus'"],
    ),
    "other shares": (
        lambda v: v[1]["classes"]["special-subject"].update({"from": {"child": 0.5, "police-officer": 0.5}}),
        ["v2: 'special-subject' comes from 'child' (0.5) and 'police-officer' (0.5), not 'child' (0.7) and "
         "'police-officer' (0.3)"],
    ),
    "no parent": (
        lambda v: v[1]["classes"].update({"traffic-cone": None}),
        ["v2: 'traffic-cone' comes from nothing, not 'background'"],
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_a_difference_is_described(case, street):
    change, expected = CASES[case]
    found = differences(street, changed(change))
    assert found[: len(expected)] == expected
    with pytest.raises(LecoError, match="mine does not match the ontology of yours: "):
        require_same(street, changed(change), "mine", "yours")


def test_later_versions_do_not_count(street):
    assert differences(street.until("v2"), street) == []
    assert differences(street, street) == []
    require_same(street.until("v1"), street, "mine", "yours")


def test_long_lists_are_cut(street):
    versions = [{"name": name, "classes": ["a"]} for name in ("v1", "v2")]
    with pytest.raises(
        LecoError, match=r"v1: 'road' was renamed to 'a'; v1: 'sidewalk' is missing; .*; … and \d+ more"
    ):
        require_same(street, Ontology.from_dict({"versions": versions}), "mine", "yours")
