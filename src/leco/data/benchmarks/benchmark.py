"""What a benchmark is."""

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import torch
from torch import Tensor

from leco.data.periods import Split, Validation, make_split
from leco.data.samples import Column, InMemory, Samples
from leco.data.views.sets import ViewSet, feature_views, segmentation_views, view_set
from leco.errors import LecoError
from leco.ontology.ontology import Ontology

if TYPE_CHECKING:
    from collections.abc import Callable

Task = Literal["classification", "features", "segmentation"]
Kind = Literal["tree", "soft"]


@dataclass(frozen=True)
class Recipe:
    """How to make a benchmark: what `leco data list` shows without touching any data."""

    name: str
    task: Task
    classes: tuple[int, ...]  # per period
    size: int  # training samples per period
    needs: str  # where the data comes from
    build: "Callable[[Recipe, Path], Benchmark]"
    views: str  # of `data.views.sets`; features and segmentation have their own
    validation: Validation = "on top"
    fetch: "Callable[[Path], Path] | None" = None  # where the owner allows it
    inferred: bool = False  # whether the transition is inferred from labels in both versions
    transition: Kind = "tree"  # and then how


@dataclass(frozen=True, eq=False)
class Benchmark:
    """Data, their ontology, and the periods they are dealt to. Version t of the ontology belongs to period t."""

    recipe: Recipe
    ontology: Ontology
    pool: Samples
    read_test: "Callable[[], Samples]"
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

    def views(self) -> ViewSet:
        """How samples are augmented; noise on features is measured by their own spread."""
        if self.recipe.task == "segmentation":
            return segmentation_views()
        if self.recipe.task == "features":
            return feature_views(self.pool.inputs.read(torch.arange(len(self.pool))).std(dim=0))
        return view_set(self.recipe.views)


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
