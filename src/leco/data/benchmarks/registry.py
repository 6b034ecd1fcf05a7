"""All benchmarks by name."""

from dataclasses import replace
from pathlib import Path

from leco.data.benchmarks import camvid, cifar, cub, digits, inat, mapillary
from leco.data.benchmarks.benchmark import Benchmark, Kind, Recipe
from leco.errors import LecoError, nearest

_CIFAR = "CIFAR-100"
_INAT = "Semi-iNat 2021"
_MAPILLARY = "Mapillary Vistas 2.0"
_CUB = "CUB-200 features"

_RECIPES = [
    Recipe("digits-leco", "classification", (3, 10), 200, "nothing", digits.build, "digits"),
    Recipe("cifar-leco-1k", "classification", (20, 100), 1_000, _CIFAR, cifar.build, "cifar", fetch=cifar.fetch),
    Recipe("cifar-leco-2k", "classification", (20, 100), 2_000, _CIFAR, cifar.build, "cifar", fetch=cifar.fetch),
    Recipe("cifar-leco-10k", "classification", (20, 100), 10_000, _CIFAR, cifar.build, "cifar", fetch=cifar.fetch),
    # The pool has 101,000 images: there validation is a fifth of the period itself.
    Recipe("inat-leco", "classification", (123, 810), 50_000, _INAT, inat.build, "inat", "within"),
    Recipe("inat-4tp-leco", "classification", (123, 339, 729, 810), 25_000, _INAT, inat.build, "inat", "within"),
    Recipe("cub-leco", "features", (13, 37, 200), 1_598, _CUB, cub.build, "features"),
    Recipe("cub-leco-2tp", "features", (13, 200), 2_397, _CUB, cub.build, "features"),
    Recipe("camvid-leco", "segmentation", (11, 31), 146, "CamVid", camvid.build, "segmentation"),
    # The paper tunes nothing on Mapillary, and keeps no validation set.
    Recipe(
        "mapillary-leco-2.5k", "segmentation", (66, 124), 2_500, _MAPILLARY, mapillary.build, "segmentation", "none"
    ),
    Recipe("mapillary-leco-9k", "segmentation", (66, 124), 9_000, _MAPILLARY, mapillary.build, "segmentation", "none"),
]
_RECIPES = [replace(recipe, inferred=recipe.needs == _MAPILLARY) for recipe in _RECIPES]

NAMES = {recipe.name: recipe for recipe in _RECIPES}
_SHORT = {"cifar-leco": "cifar-leco-10k", "mapillary-leco": "mapillary-leco-2.5k"}  # the sizes of Table 1


def recipe(name: str) -> Recipe:
    """Find a benchmark by name."""
    name = _SHORT.get(name, name)
    if name not in NAMES:
        raise LecoError(f"{name!r} is no benchmark{nearest(name, NAMES)}")
    return NAMES[name]


def load(name: str, root: Path, size: int | None = None, transition: Kind = "tree") -> Benchmark:
    """Load a benchmark from the folder `root`; `size` sets another number of samples per period.

    `transition` is for Mapillary, where it is inferred: every class's majority parent, or the measured shares.
    """
    found = recipe(name)
    if transition != "tree" and not found.inferred:
        raise LecoError(f"{name}: its ontology is given, not inferred: there is no {transition!r} transition to choose")
    found = replace(found, size=found.size if size is None else size, transition=transition)
    benchmark = found.build(found, root)
    expected, classes = found.classes, tuple(len(version) for version in benchmark.ontology.versions)
    if classes != expected:
        raise LecoError(f"{found.name} should have {expected} classes, but the data in {root} have {classes}")
    return benchmark
