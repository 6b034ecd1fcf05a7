"""Benchmarks and their recipes, by name."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

from torch import Tensor

from leco.data.periods import Split, Validation, make_split
from leco.data.samples import Column, InMemory, Samples
from leco.data.views.sets import ViewSet
from leco.errors import LecoError, nearest
from leco.ontology.ontology import Ontology
from leco.registry import Registry
from leco.settings import Settings

Kind = Literal["tree", "soft"]


@dataclass(frozen=True)
class Recipe:
    """Everything about a benchmark that is known without reading its data, including settings for training."""

    name: str
    modality: str
    classes: tuple[int, ...]  # per period
    size: int  # training samples per period
    needs: str  # the dataset it is made from, in messages
    build: "Callable[[Recipe, Path], Benchmark]"
    settings: Mapping[str, Mapping[str, Any]]  # by budget, nested as in `experiment.yaml`
    validation: Validation = "on top"
    fetch: Callable[[Path], Path] | None = None  # downloads the data, if the licence allows it
    inferred: bool = False  # whether the transition is inferred from labels in both versions
    transition: Kind = "tree"  # how it is inferred
    image_size: int = 0  # pixels that files are scaled to, where a benchmark reads files of any size
    evaluated: int = 0  # classes of the newest version that count, if not all


BENCHMARKS: Registry[Recipe] = Registry("benchmark")
_SHORT = {"cifar-leco": "cifar-leco-10k", "mapillary-leco": "mapillary-leco-2.5k"}  # the sizes of Table 1


def register(recipe: Recipe) -> None:
    """Register a benchmark under its name."""
    BENCHMARKS.register(recipe.name, recipe.build.__module__)(recipe)


def recipe(name: str) -> Recipe:
    """Find a benchmark by name."""
    name = _SHORT.get(name, name)
    if name not in BENCHMARKS:
        raise LecoError(f"{name!r} is not a benchmark{nearest(name, BENCHMARKS)}")
    return BENCHMARKS[name]


def budget_of(name: str, settings: Settings) -> str:
    """Name of the budget with the same network, steps and batch size: `paper`, `small`, or `other`.

    `demo` for a benchmark with a single budget, and an empty string for your own data.
    """
    if name not in BENCHMARKS:
        return ""
    budgets = BENCHMARKS[name].settings
    if len({id(values) for values in budgets.values()}) == 1:
        return "demo"
    mine = (settings.network.backbone, settings.batches.steps, settings.batches.size)
    for budget, values in budgets.items():
        known = Settings.model_validate(dict(values))
        if mine == (known.network.backbone, known.batches.steps, known.batches.size):
            return budget
    return "other"


def load(name: str, root: Path, size: int | None = None, transition: Kind = "tree") -> "Benchmark":
    """Load a benchmark from the folder `root`; `size` overrides the number of samples per period.

    `transition` is for Mapillary, where it is inferred: the majority parent of every class, or the measured shares.
    """
    found = recipe(name)
    if transition != "tree" and not found.inferred:
        raise LecoError(
            f"{name}: transition {transition!r} is for inferred ontologies, but this one is given; use 'tree'"
        )
    found = replace(found, size=found.size if size is None else size, transition=transition)
    benchmark = found.build(found, root)
    expected, classes = found.classes, tuple(len(version) for version in benchmark.ontology.versions)
    if classes != expected:
        raise LecoError(f"{found.name} should have {expected} classes, but the data in {root} have {classes}")
    if found.evaluated and len(benchmark.evaluated) != found.evaluated:
        raise LecoError(
            f"{found.name} evaluates {found.evaluated} of {expected[-1]} classes, but the data in {root} say "
            f"{len(benchmark.evaluated)} (`evaluate` in the list of classes); use the official list"
        )
    return benchmark


@dataclass(frozen=True, eq=False)
class Benchmark:
    """Data, their ontology, and their split into periods. Version t of the ontology belongs to period t."""

    recipe: Recipe
    ontology: Ontology
    pool: Samples
    read_test: Callable[[], Samples]
    views: ViewSet
    strata: Tensor  # (n,) groups by which `split` stratifies: the newest label, where it is one number
    evaluated: tuple[str, ...] = ()  # classes of the newest version that count, if not all

    @property
    def name(self) -> str:
        """Name of the recipe."""
        return self.recipe.name

    @cached_property
    def test(self) -> Samples:
        """Test samples, read on first use."""
        return self.read_test()

    def split(self, seed: int) -> Split:
        """Split the pool into periods."""
        versions = [version.name for version in self.ontology.versions]
        recipe = self.recipe
        return make_split(recipe.name, versions, recipe.size, self.strata, seed, validation=recipe.validation)

    def stored_split(self, path: Path) -> Split:
        """Read an index file, and check that it fits this benchmark."""
        split = Split.load(path)
        versions = tuple(version.name for version in self.ontology.versions)
        if tuple(period.version for period in split.periods) != versions:
            raise LecoError(f"{path}: the periods do not match those of {self.name}: {', '.join(versions)}")
        largest = max(int(index.max()) for p in split.periods for index in (p.train, p.validation) if len(index))
        if largest >= len(self.pool):
            raise LecoError(f"{path}: sample {largest} is out of range; {self.name} has {len(self.pool)} samples")
        return split


def labelled(inputs: Column, newest: Tensor, ontology: Ontology) -> Samples:
    """Samples with newest labels, which imply all older ones; labels keep their dtype."""
    labels = {
        version.name: InMemory(ontology.translate(newest, ontology.newest.name, version.name).to(newest.dtype))
        for version in ontology.versions
    }
    return Samples(inputs, dict(labels))


def require(recipe: Recipe, path: Path, remedy: str) -> Path:
    """Return the path if it exists."""
    if not path.exists():
        raise missing(recipe, path, remedy)
    return path


def missing(recipe: Recipe, path: Path, remedy: str) -> LecoError:
    """Return the error for missing data."""
    return LecoError(f"{recipe.name} needs {recipe.needs}, but {path} does not exist; {remedy}")
