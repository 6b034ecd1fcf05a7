"""`Dataset`: samples that were labelled in several versions of an ontology, and the modality that they are of."""

import html
from abc import ABC, abstractmethod
from collections.abc import Mapping
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from leco.data import UNTESTED
from leco.data.benchmarks.benchmark import Benchmark, Kind, load
from leco.data.benchmarks.benchmark import recipe as find_recipe
from leco.data.importers.folders import read_folders
from leco.data.importers.importer import Options, add_test_split, clean
from leco.data.manifest.checks import SPLITS
from leco.data.manifest.manifest import Manifest, read_manifest
from leco.data.manifest.table import Table, read_table
from leco.data.manifest_samples import own_annotated, own_samples, own_test
from leco.data.samples import Samples
from leco.dataset.periods import (
    FixedDeal,
    Periods,
    SplitDeal,
    contents,
    digest,
    without_leaks,
)
from leco.errors import LecoError
from leco.modalities import MODALITIES, Modality
from leco.ontology.ontology import Ontology
from leco.settings import NetworkSettings

if TYPE_CHECKING:
    from leco.dataset.arrays import ArrayDataset
    from leco.dataset.check import Checked

Counts = dict[str, dict[str, int]]  # labels by version and split
IMAGE_SIZE = 64
_MODALITY_OF = {"images": "classification", "features": "features", "masks": "segmentation"}


class Dataset(ABC):
    """Samples labelled in several versions of an ontology.

    Files are read when they are needed. Make one with `from_manifest`, `from_folders`, `from_arrays` or `from_table`,
    or load one of the paper's with `leco.benchmark`.
    """

    name: str

    @staticmethod
    def from_manifest(
        path: str | Path,
        ontology: "Ontology | str | Path",
        *,
        root: str | Path | None = None,
        image_size: int = IMAGE_SIZE,
        modality: str | None = None,
    ) -> "ManifestDataset":
        """Read a manifest (.csv, .jsonl or .parquet): a table of files, labels and versions.

        Paths in it are relative to `root`, or else to its folder. Images become squares of `image_size` pixels. The
        `modality` follows from the columns, unless it is one that was registered.
        """
        root = None if root is None else Path(root)
        return ManifestDataset(Path(path), ontology, root=root, image_size=image_size, modality=modality)

    @staticmethod
    def from_folders(
        *folders: str | Path, ontology: "Ontology | str | Path", image_size: int = IMAGE_SIZE
    ) -> "ManifestDataset":
        """Read one folder per version, oldest first, named after the version; each has a folder per class.

        Between them there may be folders `train`, `val` and `test`. Without a test split, a fifth of the newest
        version's images is set apart, always the same.
        """
        if not folders:
            raise LecoError("from_folders: pass one folder per version, oldest first")
        source, _ = add_test_split(clean(read_folders([Path(folder) for folder in folders], Options(Path()))))
        return ManifestDataset(source.table(), ontology, root=source.root, image_size=image_size)

    @staticmethod
    def from_table(
        table: Any,
        ontology: "Ontology | str | Path",
        *,
        root: str | Path = ".",
        image_size: int = IMAGE_SIZE,
        modality: str | None = None,
    ) -> "ManifestDataset":
        """Take a data frame (pandas, polars, Arrow) or a mapping of columns, with the columns of a manifest."""
        return ManifestDataset(_as_table(table), ontology, root=Path(root), image_size=image_size, modality=modality)

    @staticmethod
    def from_arrays(
        features: Any, labels: Any, versions: Any = None, *, ontology: Any = None, split: Any = None
    ) -> "ArrayDataset":
        """Take feature vectors (n, d), a label for each, and the version that each label is of.

        Labels are names, ids or indices of classes; None, NaN or "" where one is missing. `versions` is one for each
        label, one for all, or the newest by default. `split` says train, val or test for each sample.
        """
        from leco.dataset.arrays import ArrayDataset

        return ArrayDataset.of(features, labels, versions, ontology=ontology, split=split)

    @property
    @abstractmethod
    def modality(self) -> Modality:
        """How samples are read, viewed, predicted and scored."""

    @property
    @abstractmethod
    def ontology(self) -> Ontology:
        """The versions, and how their classes evolved."""

    @property
    def is_benchmark(self) -> bool:
        """Whether all labels are known, so that every annotation strategy is possible."""
        return False

    @abstractmethod
    def periods(self, seed: int = 0, network: NetworkSettings | None = None, *, tested: bool = True) -> Periods:
        """Deal the samples to time periods; unless they are `tested`, the test split is not read."""

    @abstractmethod
    def defaults(self, budget: str = "paper", backbone: str | None = None) -> dict[str, Any]:
        """Settings for this data, nested as in `experiment.yaml`; `backbone` is the one that was asked for."""

    @abstractmethod
    def counts(self) -> Counts:
        """Number of labelled samples by version and split."""

    def check(self) -> "Checked":
        """Look at everything that could go wrong before training: the same findings that `leco check` prints."""
        from leco.dataset.check import Checked

        return Checked(Path(self.name))

    def __repr__(self) -> str:
        inside = ", ".join(
            f"{version}: " + " + ".join(f"{number:,} {split}" for split, number in splits.items() if number)
            for version, splits in self.counts().items()
        )
        return f"Dataset({self.name!r}, {self.modality.name}; {inside})"

    def _repr_html_(self) -> str:
        heads = "".join(f"<th>{split}</th>" for split in SPLITS)
        rows = "".join(
            f"<tr><th>{html.escape(version)}</th>" + "".join(f"<td>{splits[s]:,}</td>" for s in SPLITS) + "</tr>"
            for version, splits in self.counts().items()
        )
        title = f"{html.escape(self.name)} ({html.escape(self.modality.name)})"
        return f"<table><caption>{title}</caption><tr><th>labelled in</th>{heads}</tr>{rows}</table>"


class ManifestDataset(Dataset):
    """Own data: a manifest, which may be a file or a table in memory, and its ontology."""

    def __init__(
        self,
        source: Path | Table,
        ontology: "Ontology | str | Path",
        *,
        root: Path | None = None,
        image_size: int = IMAGE_SIZE,
        modality: str | None = None,
    ) -> None:
        self._source, self._ontology, self._modality = source, ontology, modality
        self.image_size = image_size
        self.path = source if isinstance(source, Path) else source.source
        self.root = root if root is not None else self.path.parent
        self._has_root = root is not None
        self._read: dict[bool, tuple[Manifest, Samples]] = {}

    @property
    def name(self) -> str:  # type: ignore[override]
        """The name of the ontology."""
        return self.ontology.name

    @cached_property
    def ontology(self) -> Ontology:
        """The versions, and how their classes evolved."""
        return self._ontology if isinstance(self._ontology, Ontology) else Ontology.load(Path(self._ontology))

    @cached_property
    def table(self) -> Table:
        """The rows, read once; broken ones are reported when they are checked."""
        return self._source if isinstance(self._source, Table) else read_table(self._source)

    @cached_property
    def modality(self) -> Modality:
        """Feature vectors, images with masks, or images, by the columns of the manifest."""
        if self._modality is not None:
            return MODALITIES[self._modality]
        return MODALITIES[_MODALITY_OF[self.table.data_kind]]

    def manifest(self, tested: bool = True) -> Manifest:
        """The checked rows; every file is looked into."""
        return self._samples(tested)[0]

    def unchecked(self) -> Manifest:
        """The rows, without a look into their files; problems with those are met when they are read."""
        try:
            return read_manifest(self.table, self.ontology, root=self.root, decode=False)[0]
        except LecoError as error:
            headline, *problems = str(error).split("\n")
            known = ", ".join(version.name for version in self.ontology.versions)
            first = f"; the first: {problems[0].strip()}; versions {known} are known" if problems else ""
            raise LecoError(f"{headline}{first}") from None

    def _samples(self, tested: bool) -> tuple[Manifest, Samples]:
        """The rows and their samples; each file is decoded once, while it is checked."""
        if tested not in self._read:
            manifest = self._checked(tested)
            self._read[tested] = manifest, own_samples(manifest, self.ontology, self.image_size)
        return self._read[tested]

    def _checked(self, tested: bool) -> Manifest:
        try:
            without = "" if tested else "test"
            return read_manifest(self.table, self.ontology, root=self.root, side=self.image_size, without=without)[0]
        except LecoError as error:
            headline, *more = str(error).split("\n")
            if not more or isinstance(self._source, Table):
                raise
            root = f" --root {self.root}" if self._has_root else ""
            command = f"leco data check {self._source} --ontology {self._ontology}{root}"
            raise LecoError(f"{headline}; `{command}` lists all problems") from None

    def periods(self, seed: int = 0, network: NetworkSettings | None = None, *, tested: bool = True) -> Periods:
        """Every version that has training labels makes a period."""
        manifest, samples = self._samples(tested)
        return manifest_periods(self, manifest, samples, seed, network or NetworkSettings())

    def defaults(self, budget: str = "paper", backbone: str | None = None) -> dict[str, Any]:
        """The modality's settings for own data."""
        return self.modality.defaults(self.image_size, backbone)

    def counts(self) -> Counts:
        """Number of labels by version and split, as the rows have them."""
        found = {version.name: dict.fromkeys(SPLITS, 0) for version in self.ontology.versions}
        target, versions, splits = (self.table[name] for name in (self.table.target, "version", "split"))
        for label, version, split in zip(target, versions, splits, strict=True):
            if label and version in found and (split or "train") in SPLITS:
                found[version][split or "train"] += 1
        return found

    def check(self) -> "Checked":
        """All problems, warnings and notes of the manifest, its files and its labels."""
        from leco.dataset.check import check_dataset

        return check_dataset(self)


def manifest_periods(
    data: ManifestDataset, manifest: Manifest, samples: Samples, seed: int, network: NetworkSettings
) -> Periods:
    """The periods of a checked manifest, whose samples may be a few that stand for all."""
    ontology, modality = data.ontology, data.modality
    labelled = manifest.labelled()
    train = manifest.split == "train"
    # A version without labels makes no period.
    versions = [v.name for v in ontology.versions if v.name in labelled and (labelled[v.name] & train).any()]
    if versions[-1:] != [ontology.newest.name]:
        raise LecoError(f"{data.path}: no training sample is labelled in the newest version {ontology.newest.name}")
    histories = [ontology.until(version) for version in versions]
    annotated = without_leaks([own_annotated(manifest, history, seed) for history in histories])
    first = annotated[0].newest.indices
    # Manifests have test samples last: all others have the numbers that they would have without them.
    held_out = torch.from_numpy(manifest.split == "test")
    learned, test = (contents(samples, chosen.nonzero().flatten()) for chosen in (~held_out, held_out))
    parts = [part for a in annotated for part in (a.newest, *a.history, a.validation)]
    dealt = f"{data.image_size} {[(part.version, part.indices.tolist()) for part in parts]}"
    fingerprint = partial(digest, ontology)
    return Periods(
        name=data.name,
        modality=modality,
        ontology=ontology,
        versions=tuple(versions),
        pool=samples,
        test=samples,
        views=modality.views(samples, first),
        normalise=modality.normaliser(samples, first, network),
        deal=FixedDeal(annotated, [own_test(manifest, history).indices for history in histories]),
        fingerprint=fingerprint(dealt, learned + test),
        learned=fingerprint(dealt, learned) + UNTESTED,
        data=fingerprint(f"own {data.image_size}", learned + test),
        source=f"{data.path}, images of {data.image_size} pixels in {manifest.root}",
    )


class BenchmarkDataset(Dataset):
    """One of the paper's benchmarks, or a small one; its data lie below a folder."""

    def __init__(self, name: str, root: Path, size: int | None = None, transition: Kind = "tree") -> None:
        self.recipe, self.root, self.size, self.transition = find_recipe(name), root, size, transition
        self.name = self.recipe.name

    @cached_property
    def benchmark(self) -> Benchmark:
        """The data, read when first asked for."""
        return load(self.name, self.root, self.size, self.transition)

    @property
    def is_benchmark(self) -> bool:
        """All labels are known."""
        return True

    @property
    def modality(self) -> Modality:
        """The recipe's."""
        return MODALITIES[self.recipe.modality]

    @property
    def ontology(self) -> Ontology:
        """The versions, and how their classes evolved."""
        return self.benchmark.ontology

    def periods(self, seed: int = 0, network: NetworkSettings | None = None, *, tested: bool = True) -> Periods:
        """Deal the pool to the periods, in proportion to the classes."""
        found = self.benchmark
        split = found.split(seed)
        test = found.test if tested else found.pool
        everything = torch.arange(len(test) if tested else 0)
        learned = contents(found.pool)
        both = learned + contents(test, everything)
        fingerprint = partial(digest, found.ontology)
        first = split.periods[0].train
        made = Periods(
            name=found.name,
            modality=self.modality,
            ontology=found.ontology,
            versions=tuple(period.version for period in split.periods),
            pool=found.pool,
            test=test,
            views=found.views,
            normalise=self.modality.normaliser(found.pool, first, network or NetworkSettings()),
            deal=SplitDeal(split, everything),
            fingerprint=fingerprint(split.fingerprint, both),
            learned=fingerprint(split.fingerprint, learned) + UNTESTED,
            data=fingerprint(f"{found.name} {found.recipe.size}", both),
            evaluated=found.evaluated,
            source=f"{found.name}, {found.recipe.size} samples a period, {self.transition} transition",
        )
        return made if tested else made.without_test()

    def defaults(self, budget: str = "paper", backbone: str | None = None) -> dict[str, Any]:
        """The recipe's settings, at the paper's budget or a smaller one."""
        if budget not in self.recipe.settings:
            known = " or ".join(self.recipe.settings)
            raise LecoError(f"budget: {budget!r} is not one that {self.name} has settings for; use {known}")
        return dict(self.recipe.settings[budget])

    def counts(self) -> Counts:
        """Number of samples that each period is dealt, and of the test set."""
        split = self.benchmark.split(0)
        test = len(self.benchmark.test)
        return {
            period.version: {"train": len(period.train), "val": len(period.validation), "test": test}
            for period in split.periods
        }


def benchmark(
    name: str, root: str | Path = "data", *, size: int | None = None, transition: Kind = "tree"
) -> BenchmarkDataset:
    """Load one of the benchmarks that `leco data list` shows, from the folder `root`.

    `size` is another number of samples per period. `transition` is for Mapillary, where it is inferred: every class's
    majority parent, or the measured shares.

    >>> benchmark("digits-leco")
    Dataset('digits-leco', classification; v1: 200 train + 50 val + 597 test, v2: 200 train + 50 val + 597 test)
    """
    return BenchmarkDataset(name, Path(root), size, transition)


def _as_table(frame: Any) -> Table:
    """Columns of text, from a mapping of columns or any data frame that can become one."""
    for method in ("to_pydict", "to_dict"):  # Arrow; pandas, polars
        if hasattr(frame, method):
            convert = getattr(frame, method)
            try:
                frame = convert(orient="list")
            except TypeError:
                frame = convert(as_series=False) if "polars" in type(frame).__module__ else convert()
            break
    if not isinstance(frame, Mapping):
        raise LecoError(f"from_table: pass a data frame or a mapping of columns, not {type(frame).__name__}")
    columns = {str(name): [_as_cell(value) for value in values] for name, values in frame.items()}
    if len({len(cells) for cells in columns.values()}) > 1:
        raise LecoError("from_table: the columns differ in length")
    return Table(Path("table"), columns)


def _as_cell(value: Any) -> str:
    missing = value is None or value != value  # NaN is not equal to itself
    return "" if missing else str(value).strip()
