"""What is supposed of an ontology, and what is left to a person."""

import pytest

from leco import Ontology, strict_yaml
from leco.ontology.guess import guess, related
from leco.ontology.schema import guessed_origins, parse

PETS = {"v1": ["cat", "dog", "fax"], "v2": ["cat", "dog-poodle", "ferret", "husky"]}


def test_equal_names_are_kept_and_the_rest_is_left_open_if_strict():
    found = guess("pets", PETS, {}, strict=True)
    ontology = parse(found.content)
    assert ontology.transition("v2", "v1").origins(ontology["v2"].index("cat")) == {0: 1.0}
    (step,) = found.steps
    assert step.kept == ("cat",)
    assert step.open == {"dog-poodle": ["dog"], "ferret": [], "husky": []}
    assert step.orphans == ("dog", "fax")
    for name in step.open:
        assert not ontology.transition("v2", "v1").origins(ontology["v2"].index(name))


def test_what_is_to_be_filled_in_stands_in_comments_and_nothing_is_decided_by_them():
    text = guess("pets", PETS, {}, strict=True).to_yaml()
    assert "dog-poodle:  # not in v1: brand-new, or {from: dog}?" in text
    assert "    # ignore: [dog, fax]" in text
    assert parse(strict_yaml.read(text)).fingerprint == parse(guess("pets", PETS, {}, strict=True).content).fingerprint
    uncommented = text.replace("    # ignore: [dog, fax]", "    ignore: [dog, fax]")
    assert parse(strict_yaml.read(uncommented)).newest.ignored == ("dog", "fax")


def test_samples_labelled_twice_decide_where_there_are_enough():
    pairs = [("dog", "husky")] * 9 + [("cat", "husky")] + [("dog", "dog-poodle")] * 2
    pairs += [("cat", "ferret"), ("fax", "ferret")] * 20
    found = guess("pets", PETS, {("v1", "v2"): pairs}, strict=True)
    classes = found.content["versions"][1]["classes"]
    assert classes["husky"] == {"from": "dog"}
    assert classes["ferret"] == {"from": {"cat": 0.5, "fax": 0.5}}
    assert classes["dog-poodle"] is None  # seen twice: too rarely to decide
    (step,) = found.steps
    assert "9 of 10 samples" in step.inferred["husky"]
    assert step.orphans == ()
    assert "husky: {from: dog}  # inferred: 9 of 10 samples labelled in both were dog" in found.to_yaml()


def test_a_name_that_contains_that_of_an_old_class_decides_and_is_marked():
    found = guess("pets", PETS, {})
    (step,) = found.steps
    assert step.guessed == {"dog-poodle": {"from": "dog"}}
    assert step.open == {"ferret": [], "husky": []}
    assert step.orphans == ("fax",)
    text = found.to_yaml()
    assert "      dog-poodle: {from: dog, guessed: true}\n" in text
    ontology = parse(strict_yaml.read(text))
    assert ontology.translate(["dog-poodle"], "v2", "v1") == ["dog"]
    assert parse(strict_yaml.read(text.replace(", guessed: true", ""))).fingerprint == ontology.fingerprint


def test_origins_that_samples_labelled_twice_decide_are_marked_too():
    found = guess(
        "pets", PETS, {("v1", "v2"): [("dog", "husky")] * 9 + [("cat", "ferret")] * 22 + [("fax", "ferret")] * 18}
    )
    classes = found.content["versions"][1]["classes"]
    assert classes["husky"] == {"from": "dog", "guessed": True}
    assert classes["ferret"] == {"from": {"cat": 0.55, "fax": 0.45}, "guessed": True}
    assert "husky: {from: dog, guessed: true}  # inferred: 9 of 9 samples" in found.to_yaml()
    assert guessed_origins(strict_yaml.read(found.to_yaml())) == [
        "dog-poodle from dog",
        "ferret from cat and fax",
        "husky from dog",
    ]


def test_few_samples_that_contradict_the_name_leave_it_open():
    (step,) = guess("pets", PETS, {("v1", "v2"): [("cat", "dog-poodle")] * 2}).steps
    assert step.guessed == {}
    assert step.open["dog-poodle"] == ["cat", "dog"]
    (step,) = guess("pets", PETS, {("v1", "v2"): [("dog", "dog-poodle")] * 2}).steps
    assert step.guessed == {"dog-poodle": {"from": "dog"}}


def test_an_old_class_with_other_children_was_not_renamed():
    versions = {"v1": ["cat", "side_walk"], "v2": ["cat", "Sidewalk", "kerb"]}
    assert guess("n", versions, {}).steps[0].guessed == {"Sidewalk": {"renamed": "side_walk"}}
    (step,) = guess("n", versions, {("v1", "v2"): [("side_walk", "kerb")] * 9}).steps
    assert step.guessed == {"Sidewalk": {"from": "side_walk"}}


def test_shares_sum_to_one_for_whoever_reads_them():
    pairs = [("cat", "ferret"), ("fax", "ferret"), ("dog", "ferret")] * 20
    found = guess("pets", PETS, {("v1", "v2"): pairs})
    assert parse(strict_yaml.read(found.to_yaml())).transition("v2", "v1").sparse.sum(axis=1).max() == pytest.approx(1)


def test_a_name_that_was_kept_though_its_samples_disagree_is_marked():
    found = guess("pets", PETS, {("v1", "v2"): [("dog", "cat")] * 20})
    assert found.content["versions"][1]["classes"]["cat"] is None
    assert "cat:  # kept by name, but 20 of 20 samples labelled in both were dog" in found.to_yaml()


def test_three_versions_are_compared_one_after_the_other():
    found = guess("n", {"a": ["x"], "b": ["x", "y"], "c": ["y"]}, {})
    assert [(step.old, step.new, step.orphans) for step in found.steps] == [("a", "b", ()), ("b", "c", ("x",))]
    assert isinstance(parse(strict_yaml.read(found.to_yaml())), Ontology)


def test_odd_names_survive_being_written():
    odd = ["no", "1.0", "a: b", "# c", "<b>d</b>", "é 'f' \"g\"", "h\\", "{i}", "- j", "ключ"]
    found = guess("odd: {name}", {"v#1": [*odd, "z"], "1.1": odd}, {})
    ontology = parse(strict_yaml.read(found.to_yaml()))
    assert list(ontology.newest.classes) == odd
    assert [version.name for version in ontology.versions] == ["v#1", "1.1"]


@pytest.mark.parametrize(
    ("name", "expected"),
    [("dog-poodle", ["dog"]), ("Dog_Poodle", ["dog"]), ("schoolbus", ["bus"]), ("zzz", [])],
)
def test_relatives_share_words(name, expected):
    assert related(name, ["cat", "dog", "bus", "hotdog"]) == expected
