"""The paper's benchmarks, and small ones that run anywhere; each file has a reader, a recipe and its settings."""

from leco.data.benchmarks import camvid, cifar, cifar_4tp, cub, digits, inat, mapillary  # noqa: F401 (they register themselves)
from leco.data.benchmarks.benchmark import BENCHMARKS, Benchmark, Recipe, load, recipe, register

__all__ = ["BENCHMARKS", "Benchmark", "Recipe", "load", "recipe", "register"]
