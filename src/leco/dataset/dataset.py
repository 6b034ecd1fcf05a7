"""`Dataset`: samples labelled in several versions of an ontology, and their modality."""

import html
import time
from abc import ABC, abstractmethod
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from functools import cached_property, partial
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from leco.arguments import checks_arguments
from leco.data import SPLITS, UNTESTED
from leco.data.importers.folders import read_folders
from leco.data.importers.importer import Options, add_test_split, clean
from leco.data.manifest.decode import mask_counts
from leco.data.manifest.manifest import Manifest, read_manifest
from leco.data.manifest.table import Table, read_table
from leco.data.manifest_samples import check_files, own_annotated, own_samples, own_test
from leco.data.samples import Samples
from leco.dataset.frame import as_table
from leco.dataset.labels import as_ontology
from leco.dataset.periods import FixedAssignment, Periods, contents, digest, without_leaks
from leco.errors import LecoError
from leco.io import as_path
from leco.modalities import MODALITIES, Modality
from leco.ontology.ontology import Ontology
from leco.settings import NetworkSettings

if TYPE_CHECKING:
    from leco.dataset.arrays import ArrayDataset
    from leco.dataset.check import Checked

Counts = dict[str, dict[str, int]]  # labels by version and split


class Dataset(ABC):
    """Samples labelled in several versions of an ontology.

    Files are read on demand. Create a dataset with `from_manifest`, `from_folders`, `from_arrays` or `from_table`, or
    load a benchmark with `leco.benchmark`.
    """

    name: str

    @staticmethod
    @checks_arguments
    def from_manifest(
        path: str | Path,
        ontology: "Ontology | str | Path",
        *,
        root: str | Path | None = None,
        image_size: int | None = None,
        modality: str | None = None,
    ) -> "ManifestDataset":
        """Read a manifest (.csv, .jsonl or .parquet): a table of files, labels and versions.

        Paths in it are relative to `root`, by default its folder. Images become squares of `image_size` pixels, by
        default of the size that the pretrained weights on this machine expect, or 64. The modality follows from the
        columns; `modality` names a registered one instead.
        """
        root = None if root is None else as_path("root", root)
        return ManifestDataset(
            as_path("from_manifest", path), ontology, root=root, image_size=image_size, modality=modality
        )

    @staticmethod
    @checks_arguments
    def from_folders(
        *folders: str | Path, ontology: "Ontology | str | Path", image_size: int | None = None
    ) -> "ManifestDataset":
        """Read one folder per version, named after the version; each has a folder per class.

        There may be folders `train`, `val` and `test` in between. Without a test split, a fixed fifth of the newest
        version's images is held out for testing.
        """
        if not folders:
            raise LecoError("from_folders: pass one folder per version")
        paths = [as_path("from_folders", folder) for folder in folders]
        history = as_ontology(ontology)
        known = [version.name for version in history.versions]
        paths.sort(key=lambda path: known.index(path.name) if path.name in known else 0)
        source, _ = add_test_split(clean(read_folders(paths, Options(Path()))))
        return ManifestDataset(source.table(), history, root=source.root, image_size=image_size)

    @staticmethod
    @checks_arguments
    def from_table(
        table: Any,
        ontology: "Ontology | str | Path",
        *,
        root: str | Path = ".",
        image_size: int | None = None,
        modality: str | None = None,
    ) -> "ManifestDataset":
        """Use a data frame (pandas, polars, Arrow) or a mapping of columns, with the columns of a manifest."""
        return ManifestDataset(
            as_table(table), ontology, root=as_path("root", root), image_size=image_size, modality=modality
        )

    @staticmethod
    @checks_arguments
    def from_arrays(
        features: Any, labels: Any, versions: Any = None, *, ontology: Any = None, split: Any = None
    ) -> "ArrayDataset":
        """Use feature vectors (n, d), a label for each, and the version of each label.

        Labels are names, ids or indices of classes; None, NaN or "" where one is missing. `versions` is one per label,
        one for all, or the newest by default. `split` is train, val or test for each sample.
        """
        from leco.dataset.arrays import ArrayDataset

        return ArrayDataset.of(features, labels, versions, ontology=ontology, split=split)

    @property
    @abstractmethod
    def modality(self) -> Modality:
        """The kind of samples: images, feature vectors, masks, or a registered one."""

    @property
    @abstractmethod
    def ontology(self) -> Ontology:
        """The versions, and how their classes evolved."""

    @property
    def is_benchmark(self) -> bool:
        """Whether all labels are known, so that every annotation strategy is possible."""
        return False

    @abstractmethod
    def periods(
        self, seed: int = 0, network: NetworkSettings | None = None, *, tested: bool = True, memory: Path | None = None
    ) -> Periods:
        """Split the samples into time periods; the test split is read only if `tested`.

        Samples are identified by their contents. Files that do not fit into memory are read once for that, if their
        digests can be remembered in the folder `memory`.
        """

    @abstractmethod
    def defaults(
        self, budget: str = "paper", backbone: str | None = None, weights: str | None = None
    ) -> dict[str, Any]:
        """Default settings for this data, nested as in `experiment.yaml`, for a requested `backbone` and `weights`."""

    @abstractmethod
    def counts(self) -> Counts:
        """Number of labelled samples by version and split."""

    def unlabelled(self, history: bool = True) -> list[str]:
        """Return a warning about newest classes without a label; if `history` counts, without an older one either."""
        return []

    @abstractmethod
    def labelled(self, split: str, shape: Sequence[int], side: int | None) -> tuple[Samples, Tensor]:
        """Labelled samples of a split (`all` for every split), for a model that takes inputs of a shape.

        Images are scaled to `side`. Returns the samples, and the indices of those that belong to the split.
        """

    @abstractmethod
    def check(self) -> "Checked":
        """Check everything that could fail in training, and return the findings that `leco check` prints."""

    def __repr__(self) -> str:
        inside = ", ".join(
            f"{version}: " + (" + ".join(f"{number:,} {split}" for split, number in splits.items() if number) or "none")
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
    """Own data: a manifest (a file or a table in memory) and its ontology."""

    def __init__(
        self,
        source: Path | Table,
        ontology: "Ontology | str | Path",
        *,
        root: Path | None = None,
        image_size: int | None = None,
        modality: str | None = None,
    ) -> None:
        if image_size is not None and not 8 <= image_size <= 2_048:
            raise LecoError(f"image_size: must be a whole number from 8 to 2048, not {image_size!r}")
        self._source, self._ontology, self._modality = source, ontology, modality
        self._image_size = None if image_size is None else int(image_size)
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
        return as_ontology(self._ontology)

    @property
    def ontology_path(self) -> Path | None:
        """The file of the ontology, or None if it is in memory."""
        return Path(self._ontology) if isinstance(self._ontology, str | PathLike) else None

    @cached_property
    def table(self) -> Table:
        """The rows, read once; invalid ones are reported by the checks."""
        return self._source if isinstance(self._source, Table) else read_table(self._source)

    @cached_property
    def modality(self) -> Modality:
        """Feature vectors, images with masks, or images, by the columns of the manifest."""
        if self._modality is not None:
            modality = MODALITIES[self._modality]
            if not modality.takes(self.table.data_kind):
                raise LecoError(f"{self.path}: holds {self.table.data_kind}, which {self._modality} cannot read")
            return modality
        return next(modality for modality in MODALITIES.values() if modality.data_kind == self.table.data_kind)

    @cached_property
    def image_size(self) -> int:
        """Side of the squares that images are scaled to."""
        return self._image_size or self.modality.default_side()

    def with_modality(self, name: str) -> "ManifestDataset":
        """Return the same data as samples of another modality."""
        root = self.root if self._has_root else None
        return ManifestDataset(self.table, self._ontology, root=root, image_size=self._image_size, modality=name)

    def manifest(self, tested: bool = True) -> Manifest:
        """The checked rows; every file is decoded."""
        return self._samples(tested)[0]

    def unchecked(self) -> Manifest:
        """The rows, without decoding their files; problems with those are reported when they are read."""
        try:
            return read_manifest(self.table, self.ontology, root=self.root, decode=False)[0]
        except LecoError as error:
            headline, *problems = str(error).split("\n")
            known = ", ".join(version.name for version in self.ontology.versions)
            first = f"; the first: {problems[0].strip()}; the versions are {known}" if problems else ""
            raise LecoError(f"{headline}{first}") from None

    def labelled(self, split: str, shape: Sequence[int], side: int | None) -> tuple[Samples, Tensor]:
        """Read the samples of a split that have a label; masks and vectors are checked first."""
        manifest = self.unchecked()
        has_label = sum(manifest.labelled().values(), np.zeros(len(manifest), dtype=bool))
        chosen = np.flatnonzero(((manifest.split == split) | (split == "all")) & has_label)
        if not len(chosen):
            splits = ", ".join(sorted(set(manifest.split[has_label].tolist())))
            raise LecoError(f"{self.path}: no sample of the split {split} has a label; choose from: {splits}, all")
        check_files(manifest, self.ontology, chosen.tolist(), width=shape[0] if len(shape) == 1 else None)
        return self.modality.read(manifest, self.ontology, side or 0), torch.from_numpy(chosen)

    def _samples(self, tested: bool) -> tuple[Manifest, Samples]:
        """The rows and their samples; each file is decoded once, while it is checked."""
        if tested not in self._read:
            started = time.time_ns()
            manifest = self._checked(tested)
            samples = own_samples(manifest, self.ontology, self.image_size, read=self.modality.read)
            self._read[tested] = manifest, replace(samples, read_ns=started)
        return self._read[tested]

    def _checked(self, tested: bool) -> Manifest:
        try:
            without = "" if tested else "test"
            side = self.image_size if self.modality.reuses_pixels else None
            return read_manifest(self.table, self.ontology, root=self.root, side=side, without=without)[0]
        except LecoError as error:
            headline, *more = str(error).split("\n")
            if not more or isinstance(self._source, Table):
                raise
            root = f" --root {self.root}" if self._has_root else ""
            command = f"leco data check {self._source} --ontology {self._ontology}{root}"
            raise LecoError(f"{headline}; `{command}` lists all problems") from None

    def periods(
        self, seed: int = 0, network: NetworkSettings | None = None, *, tested: bool = True, memory: Path | None = None
    ) -> Periods:
        """Make a period of every version that has training labels."""
        manifest, samples = self._samples(tested)
        return manifest_periods(self, manifest, samples, seed, network or NetworkSettings(), memory=memory)

    def defaults(
        self, budget: str = "paper", backbone: str | None = None, weights: str | None = None
    ) -> dict[str, Any]:
        """Default settings of the modality for your own data."""
        samples = 0
        with suppress(LecoError):  # reported when the data are read
            samples = sum(splits["train"] for splits in self.counts().values())
        return self.modality.defaults(self.image_size, backbone, samples, weights)

    def counts(self) -> Counts:
        """Number of labels in the rows, by version and split."""
        found = {version.name: dict.fromkeys(SPLITS, 0) for version in self.ontology.versions}
        target, versions, splits = (self.table[name] for name in (self.table.target, "version", "split"))
        for label, version, split in zip(target, versions, splits, strict=True):
            if label and version in found and (split or "train") in SPLITS:
                found[version][split or "train"] += 1
        return found

    def unlabelled(self, history: bool = True) -> list[str]:
        """Count the labels, or the classes in the masks."""
        from leco.dataset.check import unlabelled

        manifest = self.manifest()
        masks = mask_counts(manifest, self.ontology) if manifest.masks else None
        return unlabelled(manifest, self.ontology, history, masks)

    def check(self) -> "Checked":
        """Return all problems, warnings and notes about the manifest, its files and its labels."""
        from leco.dataset.check import check_dataset

        return check_dataset(self)


def manifest_periods(
    data: ManifestDataset,
    manifest: Manifest,
    samples: Samples,
    seed: int,
    network: NetworkSettings,
    *,
    memory: Path | None = None,
) -> Periods:
    """Periods of a checked manifest; `samples` may be a few that stand in for all."""
    ontology, modality = data.ontology, data.modality
    labelled = manifest.labelled()
    train = manifest.split == "train"
    # Versions without labels make no period.
    versions = [v.name for v in ontology.versions if v.name in labelled and (labelled[v.name] & train).any()]
    if versions[-1:] != [ontology.newest.name]:
        raise LecoError(f"{data.path}: no training sample is labelled in the newest version {ontology.newest.name}")
    histories = [ontology.until(version) for version in versions]
    annotated = without_leaks([own_annotated(manifest, history, seed) for history in histories])
    first = annotated[0].newest.indices
    # Manifests have test samples last, so that all others have the same indices without them.
    held_out = torch.from_numpy(manifest.split == "test")
    learned, test = (contents(samples, chosen.nonzero().flatten(), memory) for chosen in (~held_out, held_out))
    parts = [part for a in annotated for part in (a.newest, *a.history, a.validation)]
    assigned = f"{data.image_size} {[(part.version, part.indices.tolist()) for part in parts]}"
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
        assignment=FixedAssignment(annotated, [own_test(manifest, history).indices for history in histories]),
        fingerprint=fingerprint(assigned, learned + test),
        learned=fingerprint(assigned, learned) + UNTESTED,
        data=fingerprint(f"own {data.image_size}", learned + test),
        source=f"{data.path}, images of {data.image_size} pixels in {manifest.root}",
        refits=not (manifest.split == "val").any(),
    )
