"""What differs between two histories, in words."""

import copy

import pytest
from tests.conftest import STREET

from leco import LecoError, Ontology
from leco.ontology.changes import differences, require_same


def changed(change) -> Ontology:
    content = copy.deepcopy(STREET)
    change(content["versions"])
    return Ontology.from_dict(content)


def rename(version: dict, old: str, new: str) -> None:
    version["classes"] = [new if name == old else name for name in version["classes"]]


CASES = {
    "a version is missing": (lambda v: v.pop(), ["there is no version v3"]),
    "a version was put in": (
        lambda v: v.insert(1, {"name": "v1.5", "classes": list(v[0]["classes"])}),
        ["the version v1.5 was put in"],
    ),
    "a class is missing": (lambda v: v[0]["classes"].remove("fax"), ["v1: 'fax' is missing"]),
    "a class was added": (lambda v: v[2]["classes"].update(tram=None), ["v3: 'tram' was added"]),
    "a class took the place of another": (lambda v: rename(v[0], "fax", "telex"), ["v1: 'fax' is called 'telex'"]),
    "a class has another name": (
        lambda v: v[2]["classes"].update(truck={"from": "automobile", "name": "lorry", "id": "truck"}),
        ["v3: 'truck' is called 'lorry'"],
    ),
    "another order": (lambda v: v[0]["classes"].reverse(), ["v1: the classes are in another order"]),
    "other labels are ignored": (lambda v: v[1].pop("ignore"), ["v2: other labels are ignored: none"]),
    "another parent": (
        lambda v: v[1]["classes"].update({"city-bus": {"from": "road"}}),
        ["v2: 'city-bus' comes from 'road', not from 'bus'"],
    ),
    "other shares": (
        lambda v: v[1]["classes"]["special-subject"].update({"from": {"child": 0.5, "police-officer": 0.5}}),
        ["v2: 'special-subject' comes from 'child' (0.5) and 'police-officer' (0.5), not from 'child' (0.7) and "
         "'police-officer' (0.3)"],
    ),
    "no parent": (
        lambda v: v[1]["classes"].update({"traffic-cone": None}),
        ["v2: 'traffic-cone' comes from none, not from 'background'"],
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_a_difference_is_told(case, street):
    change, expected = CASES[case]
    found = differences(street, changed(change))
    assert found[: len(expected)] == expected
    with pytest.raises(LecoError, match="mine has another ontology than yours: "):
        require_same(street, changed(change), "mine", "yours")


def test_later_versions_do_not_count(street):
    assert differences(street.until("v2"), street) == []
    assert differences(street, street) == []
    require_same(street.until("v1"), street, "mine", "yours")


def test_long_lists_are_cut(street):
    versions = [{"name": name, "classes": ["a"]} for name in ("v1", "v2")]
    with pytest.raises(LecoError, match=r"v1: 'road' is called 'a'; v1: 'sidewalk' is missing; .*; and \d+ more"):
        require_same(street, Ontology.from_dict({"versions": versions}), "mine", "yours")
