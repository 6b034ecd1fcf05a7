"""The paper's benchmarks, and small ones, as datasets."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from leco.arguments import checks_arguments
from leco.data import UNTESTED
from leco.data.benchmarks import load
from leco.data.benchmarks import recipe as find_recipe
from leco.data.benchmarks.benchmark import Benchmark, Kind
from leco.data.periods import Split
from leco.data.samples import Column, InMemory, Samples
from leco.data.views.images import centre_crop_resize
from leco.dataset.dataset import Counts, Dataset
from leco.dataset.periods import Periods, SplitAssignment, contents, digest
from leco.errors import LecoError, nearest
from leco.io import as_path
from leco.modalities import MODALITIES, Modality
from leco.ontology.ontology import Ontology
from leco.ontology.version import NO_LABEL
from leco.settings import NetworkSettings

if TYPE_CHECKING:
    from leco.dataset.check import Checked


@dataclass(frozen=True, eq=False)
class _Enlarged:
    """A column of square images, enlarged as they are read."""

    images: Column
    side: int

    def __len__(self) -> int:
        return len(self.images)

    def read(self, indices: Tensor) -> Tensor:
        return centre_crop_resize(self.images.read(indices), resize=self.side, size=self.side)


class BenchmarkDataset(Dataset):
    """One of the paper's benchmarks, or a small one, with its data in a folder."""

    def __init__(self, name: str, root: Path, size: int | None = None, transition: Kind = "tree") -> None:
        self.recipe, self.root, self.size, self.transition = find_recipe(name), root, size, transition
        self.name = self.recipe.name

    @cached_property
    def benchmark(self) -> Benchmark:
        """The data, read on first use."""
        return load(self.name, self.root, self.size, self.transition)

    @property
    def is_benchmark(self) -> bool:
        """All labels are known."""
        return True

    @property
    def modality(self) -> Modality:
        """The recipe's modality."""
        return MODALITIES[self.recipe.modality]

    @property
    def ontology(self) -> Ontology:
        """The versions, and how their classes evolved."""
        return self.benchmark.ontology

    def periods(
        self, seed: int = 0, network: NetworkSettings | None = None, *, tested: bool = True, memory: Path | None = None
    ) -> Periods:
        """Split the pool into periods, stratified by class."""
        found = self.benchmark
        split = found.split(seed)
        test = found.test if tested else found.pool
        everything = torch.arange(len(test) if tested else 0)
        learned = contents(found.pool, memory=memory)
        both = learned + contents(test, everything, memory)
        fingerprint = partial(digest, found.ontology)
        first = split.periods[0].train
        pool, others = _without_others(found.pool, split)
        made = Periods(
            name=found.name,
            modality=self.modality,
            ontology=found.ontology,
            versions=tuple(period.version for period in split.periods),
            pool=pool,
            test=test if tested else pool,
            views=found.views,
            normalise=self.modality.normaliser(found.pool, first, network or NetworkSettings()),
            assignment=SplitAssignment(split, everything, others),
            fingerprint=fingerprint(split.fingerprint, both),
            learned=fingerprint(split.fingerprint, learned) + UNTESTED,
            data=fingerprint(f"{found.name} {found.recipe.size}", both),
            evaluated=found.evaluated,
            source=f"{found.name}, {found.recipe.size} samples a period, {self.transition} transition",
        )
        return made if tested else made.without_test()

    def defaults(
        self, budget: str = "paper", backbone: str | None = None, weights: str | None = None
    ) -> dict[str, Any]:
        """The recipe's settings, at the paper's budget or a smaller one."""
        if budget not in self.recipe.settings:
            raise LecoError(f"budget: {self.name} has no budget {budget!r}{nearest(budget, self.recipe.settings)}")
        return dict(self.recipe.settings[budget])

    def labelled(self, split: str, shape: Sequence[int], side: int | None) -> tuple[Samples, Tensor]:
        """The test samples: which others a model has learnt from depends on its seed."""
        if split != "test":
            raise LecoError(f"{self.name}: models are evaluated on the test split of a benchmark, not on {split}")
        test = self.benchmark.test
        own = test.inputs.read(torch.tensor([0])).shape[-1]
        if side is not None and not self.modality.has_masks and own < side:  # the model enlarges images
            test = replace(test, inputs=_Enlarged(test.inputs, side))
        return test, torch.arange(len(test))

    def check(self) -> "Checked":
        """Whether the data are complete, which reading them finds out."""
        from leco.dataset.check import Checked

        found = Checked(Path(self.name))
        try:
            found.ontology = self.ontology
            self.benchmark.test  # noqa: B018 (reads the test set)
        except LecoError as error:
            found.add(found.problems, "benchmark", str(error))
        return found

    def counts(self) -> Counts:
        """Number of training and validation samples of each period, and of test samples."""
        split = self.benchmark.split(0)
        test = len(self.benchmark.test)
        return {
            period.version: {"train": len(period.train), "val": len(period.validation), "test": test}
            for period in split.periods
        }


def _without_others(pool: Samples, split: Split) -> tuple[Samples, Tensor]:
    """Hide the labels of the samples that belong to no period, and return these; none if labels are in files."""
    mine = torch.zeros(len(pool), dtype=torch.bool)
    for period in split.periods:
        mine[period.train] = mine[period.validation] = True
    labels: dict[str, Column] = {}
    for version, column in pool.labels.items():
        if not isinstance(column, InMemory) or column.values.ndim > 1:
            return pool, torch.zeros(0, dtype=torch.int64)
        labels[version] = InMemory(torch.where(mine, column.values.long(), NO_LABEL))
    return replace(pool, labels=labels), (~mine).nonzero().squeeze(1)


@checks_arguments
def benchmark(
    name: str, root: str | Path = "data", *, size: int | None = None, transition: Kind = "tree"
) -> BenchmarkDataset:
    """Load one of the benchmarks that `leco data list` shows, from the folder `root`.

    `size` overrides the number of samples per period. `transition` is for Mapillary, where it is inferred: the
    majority parent of every class, or the measured shares.

    >>> benchmark("digits-leco")
    Dataset('digits-leco', classification; v1: 200 train + 50 val + 597 test, v2: 200 train + 50 val + 597 test)
    """
    return BenchmarkDataset(name, as_path("root", root), size, transition)
