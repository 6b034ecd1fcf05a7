"""Remarks on what is valid, but may be a mistake."""

from tests.ontologies import two_versions

from leco import Ontology
from leco.ontology.lint import remarks


def remarks_on(ontology: Ontology) -> list[str]:
    return remarks(ontology, [ontology.changes(step.old.name, step.new.name) for step in ontology.steps])


def test_brand_new_and_removed_classes_are_remarked_on_and_likely_renames_asked_for():
    found = remarks_on(two_versions(["sidewalk", "road"], ["side-walk", "road"]))
    assert found[0].startswith("v2: brand-new, so no label of v1 can mean 'side-walk'")
    assert found[1].startswith("v2: nothing comes from 'sidewalk' of v1")
    assert found[2] == "v2: is 'side-walk' the old 'sidewalk'? Then write `renamed: sidewalk`"


def test_of_many_classes_the_first_are_named():
    (found,) = remarks_on(two_versions(["a"], ["a", *(f"new-{n}" for n in range(8))]))
    assert "can mean 'new-0', 'new-1', 'new-2', 'new-3', 'new-4', … and 3 more; " in found


def test_names_that_are_not_unique_and_a_single_version_are_remarked_on():
    classes = {"x": {"name": "Satyrium", "from": "a"}, "y": {"name": "Satyrium", "from": "b"}}
    assert remarks_on(two_versions(["a", "b"], classes)) == [
        "v2: several classes are named 'Satyrium'; use their ids in labels"
    ]
    assert remarks_on(two_versions(["a"], ["a"])) == []
    (single,) = remarks_on(two_versions(["a"], ["a"]).until("v1"))
    assert single.startswith("v1: is the only version")
