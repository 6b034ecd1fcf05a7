"""cifar-4tp-leco: CIFAR-100 over four periods: kingdoms, groups, the 20 superclasses, the 100 classes.

The two upper levels are not part of CIFAR-100. They follow WordNet, in which all classes below `living` are kinds of
`living thing`, those below `man-made` kinds of `artifact`, and clouds, mountains, plains, forests and the sea neither.
Groups are the next division that no superclass crosses. So mushrooms are with the plants, among CIFAR's fruit and
vegetables, and a dinosaur is a reptile; people are apart from the mammals, as in WordNet.
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
