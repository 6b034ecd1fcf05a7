"""What a benchmark is, and all of them by name."""

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
    """How to make a benchmark, and how to train on it: all that is known without touching any data."""

    name: str
    modality: str
    classes: tuple[int, ...]  # per period
    size: int  # training samples per period
    needs: str  # where the data comes from
    build: "Callable[[Recipe, Path], Benchmark]"
    settings: Mapping[str, Mapping[str, Any]]  # by budget, nested as in `experiment.yaml`
    validation: Validation = "on top"
    fetch: Callable[[Path], Path] | None = None  # where the owner allows it
    inferred: bool = False  # whether the transition is inferred from labels in both versions
    transition: Kind = "tree"  # and then how


BENCHMARKS: Registry[Recipe] = Registry("benchmark")
_SHORT = {"cifar-leco": "cifar-leco-10k", "mapillary-leco": "mapillary-leco-2.5k"}  # the sizes of Table 1


def register(recipe: Recipe) -> None:
    """Make a benchmark known under its name."""
    BENCHMARKS.register(recipe.name, recipe.build.__module__)(recipe)


def recipe(name: str) -> Recipe:
    """Find a benchmark by name."""
    name = _SHORT.get(name, name)
    if name not in BENCHMARKS:
        raise LecoError(f"{name!r} is not a benchmark{nearest(name, BENCHMARKS)}")
    return BENCHMARKS[name]


def budget_of(name: str, settings: Settings) -> str:
    """The budget whose network, steps and batch size some settings have: `paper`, `small`, or `other`.

    `demo` for a benchmark that has but one budget, and an empty string for own data.
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


@dataclass(frozen=True, eq=False)
class Benchmark:
    """Data, their ontology, and the periods they are dealt to. Version t of the ontology belongs to period t."""

    recipe: Recipe
    ontology: Ontology
    pool: Samples
    read_test: Callable[[], Samples]
    views: ViewSet
    strata: Tensor  # (n,) what `split` deals in proportion: the newest label, where it is one number
    evaluated: tuple[str, ...] = ()  # classes of the newest version that count, if not all

    @property
    def name(self) -> str:
        """The name it was asked for by."""
        return self.recipe.name

    @cached_property
    def test(self) -> Samples:
        """The test samples; who does not ask for them does not read them."""
        return self.read_test()

    def split(self, seed: int) -> Split:
        """Deal the pool to the periods."""
        versions = [version.name for version in self.ontology.versions]
        recipe = self.recipe
        return make_split(recipe.name, versions, recipe.size, self.strata, seed, recipe.validation)

    def stored_split(self, path: Path) -> Split:
        """Read an index file, and check that it fits this benchmark."""
        split = Split.load(path)
        versions = tuple(version.name for version in self.ontology.versions)
        if tuple(period.version for period in split.periods) != versions:
            raise LecoError(f"{path}: its periods are not those of {self.name}: {', '.join(versions)}")
        largest = max(int(index.max()) for p in split.periods for index in (p.train, p.validation) if len(index))
        if largest >= len(self.pool):
            raise LecoError(f"{path}: sample {largest} is beyond the {len(self.pool)} samples of {self.name}")
        return split


def labelled(inputs: Column, newest: Tensor, ontology: Ontology) -> Samples:
    """Samples whose newest labels are known, and so all older ones; labels keep their type, which may be small."""
    labels = {
        version.name: InMemory(ontology.translate(newest, ontology.newest.name, version.name).to(newest.dtype))
        for version in ontology.versions
    }
    return Samples(inputs, dict(labels))


def there(recipe: Recipe, path: Path, remedy: str) -> Path:
    """The path, if it is there."""
    if not path.exists():
        raise missing(recipe, path, remedy)
    return path


def missing(recipe: Recipe, path: Path, remedy: str) -> LecoError:
    """The one message for data that is not there."""
    return LecoError(f"{recipe.name} needs {recipe.needs}, but {path} is not there; {remedy}")
