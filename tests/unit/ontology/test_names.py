"""Origins that follow from names: which ones are sure, and which ones are not."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leco import strict_yaml
from leco.ontology.guess import guess
from leco.ontology.names import origins_by_name
from leco.ontology.schema import parse


def origin(new: str, *old: str, kept: tuple[str, ...] = ()) -> dict[str, str] | None:
    return origins_by_name([*old, *kept], [new], kept).get(new)


@pytest.mark.parametrize(
    ("new", "old"),
    [
        ("husky dog", "dog"),
        ("dog-husky", "dog"),
        ("Dog_Husky", "dog"),
        ("DogHusky", "dog"),
        ("SUVPickup", "suv"),
        ("maple_tree", "trees"),
        ("school buses", "bus"),
        ("horse, white", "Horses"),
        ("object--traffic-light--other", "object--traffic-light"),
        ("Quercus alba", "Quercus"),
    ],
)
def test_a_name_that_begins_or_ends_with_the_words_of_an_old_one_comes_from_it(new, old):
    assert origin(new, old, "unrelated") == {"from": old}


@pytest.mark.parametrize(
    ("new", "old"),
    [
        ("side_walk", "Sidewalk"),
        ("T-Shirts", "t shirt"),
        ("Zebra Crossing", "zebra-crossings"),
        ("refridgerator", "refrigerator"),
        ("conveyer belt", "conveyor_belt"),
    ],
)
def test_a_name_that_is_spelled_a_little_differently_is_renamed(new, old):
    assert origin(new, old, "unrelated") == {"renamed": old}


@pytest.mark.parametrize(
    ("new", "old"),
    [
        ("carpet", "car"),  # not a whole word
        ("t-shirt", "shirt"),  # a compound
        ("eScooter", "scooter"),
        ("non-dog", "dog"),
        ("street without cars", "cars"),
        ("who do you work for", "work"),  # in the middle
        ("dog", "husky dog"),  # wider than the old class
        ("pine", "pin"),
        ("river", "rider"),  # short words are often one letter from another
        ("fountain", "mountain"),  # so are words with another first letter
        ("vehicles_2", "vehicles_1"),
        ("hepatitis b", "hepatitis a"),
        ("grade a b", "a"),
        ("---", "--"),
    ],
)
def test_what_is_merely_similar_decides_nothing(new, old):
    assert origin(new, old, "unrelated") is None


def test_the_longest_contained_name_wins_if_it_contains_the_others():
    assert origin("hot dog bun", "dog", "hot dog") == {"from": "hot dog"}
    assert origin("husky dog", "dog", "hot dog") == {"from": "dog"}
    assert origin("dog cat", "dog", "cat") is None
    assert origin("hot dog bun", "bun", "hot dog") is None


def test_a_class_that_is_kept_is_the_origin_of_no_other():
    assert origin("hot dog", kept=("dog",)) is None
    assert origin("hot dog bun", "dog", kept=("hot dog",)) is None
    assert origin("DOG", kept=("dog",)) is None
    assert origin("shower curtain", "shower", kept=("curtain",)) is None


def test_a_class_that_is_renamed_is_the_origin_of_no_other():
    assert origins_by_name(["Dog"], ["dogs", "hot dog"], kept=[]) == {"dogs": {"renamed": "Dog"}}


def test_two_classes_of_the_same_spelling_leave_it_open():
    assert origins_by_name(["dog"], ["Dog", "DOG"], kept=[]) == {}
    assert origin("Dogs", "dog", "DOG") is None
    assert origin("husky dog", "dog", "DOG") is None


def test_another_old_class_with_more_words_in_common_leaves_it_open():
    assert origin("type II spiral cell", "cell", "type 2 spiral cell") is None
    assert origin("support for water transport", "water transport", "support for all transport") is None


WORD = st.sampled_from(
    ["dog", "dogs", "Dog", "hot", "bun", "cat", "box", "boxes", "refrigerator", "refridgerator", "no"]
)
NAME = st.builds(lambda sep, parts: sep.join(parts), st.sampled_from(" -_"), st.lists(WORD, min_size=1, max_size=4))
CLASSES = st.lists(NAME | st.text("abé-_ 1B", min_size=1).filter(lambda t: t == t.strip()), min_size=1, unique=True)


@given(CLASSES, CLASSES)
def test_a_guessed_origin_is_one_old_class_that_is_neither_kept_nor_renamed_twice(old, new):
    found = guess("n", {"v1": old, "v2": new}, {})
    (step,) = found.steps
    assert set(step.kept) | set(step.guessed) | set(step.open) == set(new)
    assert not set(step.guessed) & {*step.kept, *step.open}
    for spec in step.guessed.values():
        (parent,) = spec.values()
        assert parent in old
        assert parent not in new
    renamed = [spec["renamed"] for spec in step.guessed.values() if "renamed" in spec]
    assert len(renamed) == len(set(renamed))
    assert not set(renamed) & {spec["from"] for spec in step.guessed.values() if "from" in spec}
    ontology = parse(strict_yaml.read(found.to_yaml()))
    for name in step.guessed:
        assert len(ontology.transition("v2", "v1").origins(ontology["v2"].index(name))) == 1


@given(CLASSES, CLASSES, st.randoms())
def test_the_order_of_the_classes_does_not_matter(old, new, random):
    kept = [name for name in new if name in old]
    rest = [name for name in new if name not in old]
    found = origins_by_name(old, rest, kept)
    random.shuffle(old)
    random.shuffle(rest)
    assert origins_by_name(old, rest, kept) == found
