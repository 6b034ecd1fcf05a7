"""The paper's benchmarks, and small ones that run anywhere; each reads the official layout of its data."""

from leco.data.benchmarks.benchmark import Benchmark, Recipe
from leco.data.benchmarks.registry import NAMES, load, recipe

__all__ = ["NAMES", "Benchmark", "Recipe", "load", "recipe"]
