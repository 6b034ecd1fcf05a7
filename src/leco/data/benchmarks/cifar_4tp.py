"""cifar-4tp-leco: CIFAR-100 over four periods: kingdoms, groups, the 20 superclasses, the 100 classes.

The two upper levels are not part of CIFAR-100. They follow the nouns of WordNet 3.0: every class below `living` is a
kind of `living thing` (fruit as the plants that bear it), every class below `man-made` a kind of `artifact`, and
clouds, mountains, plains, forests and the sea neither. Groups are the next division that no superclass crosses: kinds
of `mammal`, `person`, `vertebrate` (fish and reptiles, among them the dinosaur), `invertebrate`, `plant`,
`instrumentality` (household, and apart from it vehicles) and `structure`. Five classes are where their superclass is:
mushrooms with the plants, caterpillars with the invertebrates, roads with the structures, and trains and lawn mowers
with the vehicles.
"""

from collections.abc import Mapping
from pathlib import Path

from leco.data.benchmarks.benchmark import Benchmark, Recipe, register
from leco.data.benchmarks.cifar import SETTINGS, build_levels, fetch
from leco.errors import LecoError

LEVELS = ("kingdoms", "groups", "superclasses", "classes")
KINGDOMS: Mapping[str, Mapping[str, tuple[str, ...]]] = {
    "living": {
        "mammals": (
            "aquatic_mammals",
            "large_carnivores",
            "large_omnivores_and_herbivores",
            "medium_mammals",
            "small_mammals",
        ),
        "people": ("people",),
        "fish_and_reptiles": ("fish", "reptiles"),
        "invertebrates": ("insects", "non-insect_invertebrates"),
        "plants": ("flowers", "fruit_and_vegetables", "trees"),
    },
    "man-made": {
        "household": ("food_containers", "household_electrical_devices", "household_furniture"),
        "structures": ("large_man-made_outdoor_things",),
        "vehicles": ("vehicles_1", "vehicles_2"),
    },
    "scenery": {"scenes": ("large_natural_outdoor_scenes",)},
}
_ABOVE = {
    superclass: (kingdom, group, superclass)
    for kingdom, groups in KINGDOMS.items()
    for group, superclasses in groups.items()
    for superclass in superclasses
}


def build(recipe: Recipe, root: Path) -> Benchmark:
    """Read the official python version of CIFAR-100, with two levels above its superclasses."""
    return build_levels(recipe, root, LEVELS, lineage)


def lineage(superclass: str) -> tuple[str, ...]:
    """Return the kingdom and the group of a superclass, and itself.

    >>> lineage("trees")
    ('living', 'plants', 'trees')
    """
    if superclass not in _ABOVE:
        raise LecoError(f"cifar-4tp-leco: {superclass!r} is not a superclass of CIFAR-100")
    return _ABOVE[superclass]


# As many samples of each class and period as iNat-4TP has labels: about 20, after validation.
register(Recipe("cifar-4tp-leco", "classification", (3, 9, 20, 100), 2_000, "CIFAR-100", build, SETTINGS, fetch=fetch))
