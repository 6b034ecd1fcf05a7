"""What a benchmark is."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from torch import Tensor

from leco.data.periods import Split, Validation, make_split
from leco.data.samples import InMemory, Samples
from leco.errors import LecoError
from leco.ontology.ontology import Ontology

if TYPE_CHECKING:
    from collections.abc import Callable

Task = Literal["classification", "features", "segmentation"]


@dataclass(frozen=True)
class Recipe:
    """How to make a benchmark: what `leco data list` shows without touching any data."""

    name: str
    task: Task
    classes: tuple[int, ...]  # per period
    size: int  # training samples per period
    needs: str  # where the data comes from
    build: "Callable[[Recipe, Path], Benchmark]"
    views: str  # of `data.views.sets`, or "segmentation"
    validation: Validation = "on top"


@dataclass(frozen=True, eq=False)
class Benchmark:
    """Data, their ontology, and the periods they are dealt to. Version t of the ontology belongs to period t."""

    recipe: Recipe
    ontology: Ontology
    pool: Samples
    test: Samples
    strata: Tensor  # (n,) what `split` deals in proportion: the newest label, where it is one number
    evaluated: tuple[str, ...] = ()  # classes of the newest version that count, if not all

    @property
    def name(self) -> str:
        """The name it was asked for by."""
        return self.recipe.name

    def split(self, seed: int) -> Split:
        """Deal the pool to the periods."""
        versions = [version.name for version in self.ontology.versions]
        recipe = self.recipe
        return make_split(recipe.name, versions, recipe.size, self.strata, seed, recipe.validation)


def labelled(inputs: InMemory, newest: Tensor, ontology: Ontology) -> Samples:
    """Samples whose newest labels are known, and so all older ones."""
    labels = {
        version.name: InMemory(ontology.translate(newest.long(), ontology.newest.name, version.name))
        for version in ontology.versions
    }
    return Samples(inputs, dict(labels))


def missing(recipe: Recipe, path: Path, remedy: str) -> LecoError:
    """The one message for data that is not there."""
    return LecoError(f"{recipe.name} needs {recipe.needs}, but {path} is not there; {remedy}")
