"""Feature vectors in memory, with labels in any common format."""

import reprlib
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from leco.data import SPLITS, UNTESTED
from leco.data.manifest.manifest import Manifest
from leco.data.manifest_samples import own_annotated, own_test
from leco.data.samples import InMemory, Samples
from leco.data.views.sets import feature_views
from leco.dataset.dataset import Counts, Dataset
from leco.dataset.labels import Labels, as_column, as_ontology, missing, plain_labels, read_labels
from leco.dataset.periods import FixedAssignment, Periods, contents, digest, without_leaks
from leco.errors import LecoError, nearest
from leco.modalities import MODALITIES, Modality, Normalise
from leco.ontology.ontology import Ontology
from leco.settings import NetworkSettings

if TYPE_CHECKING:
    from leco.dataset.check import Checked


class ArrayDataset(Dataset):
    """Feature vectors (n, d), each labelled in one version, or in none."""

    def __init__(
        self, features: Tensor, labels: Labels, split: NDArray[np.str_], *, normalise: Normalise | None = None
    ) -> None:
        self.features, self.labels, self.split, self._normalise = features, labels, split, normalise
        self.name = "arrays"

    @classmethod
    def of(cls, features: Any, labels: Any, versions: Any, *, ontology: Any, split: Any) -> "ArrayDataset":
        """Check the arguments of `from_arrays`, and build the dataset."""
        try:
            vectors = _vectors(features)
        except (TypeError, ValueError, RuntimeError):
            raise LecoError(f"features: must be an array of numbers (n, d), not {reprlib.repr(features)}") from None
        if vectors.ndim != 2 or not vectors.numel():
            raise LecoError(f"from_arrays: features must have the shape (n, d), not {tuple(vectors.shape)}")
        if not vectors.isfinite().all():
            row = int((~vectors.isfinite()).any(dim=1).nonzero()[0])
            raise LecoError(f"from_arrays: features hold NaN or infinity, first in row {row}")
        column = _column("labels", labels, len(vectors))
        if not (versions is None or isinstance(versions, str)):
            versions = _column("versions", versions, len(vectors))
        if ontology is None and versions is not None:
            raise LecoError("versions: need an ontology; pass one as `ontology`, or leave the versions out")
        if ontology is None:
            known = plain_labels(np.asarray(labels))
        else:
            known = read_labels(column, versions, as_ontology(ontology))
        return cls(vectors, known, _splits(split, len(vectors)))

    @property
    def modality(self) -> Modality:
        """Feature vectors."""
        return MODALITIES["features"]

    @property
    def ontology(self) -> Ontology:
        """The versions, and how their classes evolved."""
        return self.labels.ontology

    def periods(
        self, seed: int = 0, network: NetworkSettings | None = None, *, tested: bool = True, memory: Path | None = None
    ) -> Periods:
        """Make a period of every version that has labels; without a val split, hold out a fifth for validation."""
        manifest, samples = self._manifest(), self.samples()
        training = self.split == "train"
        versions = [name for name in self.labels.versions if ((self.labels.known[name] >= 0) & training).any()]
        if versions[-1:] != [self.ontology.newest.name]:
            raise LecoError(f"arrays: no training sample is labelled in {self.ontology.newest.name}; label some")
        histories = [self.ontology.until(version) for version in versions]
        annotated = without_leaks([own_annotated(manifest, history, seed) for history in histories])
        nothing = torch.zeros(0, dtype=torch.int64)
        test = [own_test(manifest, history).indices if tested else nothing for history in histories]
        fingerprint = digest(self.ontology, f"{seed} {self.split.tolist()}", contents(samples))
        first = annotated[0].newest.indices
        return Periods(
            name=self.name,
            modality=self.modality,
            ontology=self.ontology,
            versions=tuple(versions),
            pool=samples,
            test=samples,
            views=self.modality.views(samples, first),
            normalise=self._normalise or self.modality.normaliser(samples, first, network or NetworkSettings()),
            assignment=FixedAssignment(annotated, test),
            fingerprint=fingerprint,
            learned=fingerprint + UNTESTED,
            data=digest(self.ontology, "", contents(samples)),
            source="arrays in memory",
            refits=not (self.split == "val").any(),
        )

    def unvalidated(self) -> Periods:
        """Periods that train on every sample and hold nothing out, as scikit-learn's `fit` does."""
        samples, versions = self.samples(), tuple(self.labels.versions)
        nothing = torch.empty(0, dtype=torch.int64)
        return Periods(
            name=self.name,
            modality=self.modality,
            ontology=self.ontology,
            versions=versions,
            pool=samples,
            test=samples,
            views=feature_views(self.features.std(dim=0, correction=0)),
            normalise=self._normalise or self.modality.normaliser(samples, nothing, NetworkSettings()),
            assignment=FixedAssignment(
                [self.labels.annotated(version) for version in versions], [nothing] * len(versions)
            ),
            fingerprint="",
            learned="",
        )

    def labelled(self, split: str, shape: Sequence[int], side: int | None) -> tuple[Samples, Tensor]:
        """The vectors of a split that have a label."""
        if self.features.shape[1] != shape[0]:
            raise LecoError(f"arrays: vectors of {self.features.shape[1]} numbers, but the model takes {shape[0]}")
        has_label = np.any([labels >= 0 for labels in self.labels.known.values()], axis=0)
        chosen = np.flatnonzero(((self.split == split) | (split == "all")) & has_label)
        if not len(chosen):
            raise LecoError(f"arrays: no sample of the split {split} has a label")
        return self.samples(), torch.from_numpy(chosen)

    def samples(self) -> Samples:
        """The vectors and their labels."""
        known = {name: InMemory(torch.from_numpy(indices)) for name, indices in self.labels.known.items()}
        return Samples(InMemory(self.features), dict(known))

    def defaults(
        self, budget: str = "paper", backbone: str | None = None, weights: str | None = None
    ) -> dict[str, Any]:
        """The modality's settings for your own data."""
        return self.modality.defaults(0, backbone)

    def check(self) -> "Checked":
        """Whether there are enough labels to learn every class, and to test it."""
        from leco.dataset.check import Checked, check_labels

        found = Checked(Path(self.name), ontology=self.ontology, manifest=self._manifest())
        check_labels(found, self.ontology, self._manifest())
        return found

    def counts(self) -> Counts:
        """Number of labels by version and split."""
        return {
            name: {split: int(((labels >= 0) & (self.split == split)).sum()) for split in SPLITS}
            for name, labels in self.labels.known.items()
        }

    def unlabelled(self, history: bool = True) -> list[str]:
        """Count the labels."""
        from leco.dataset.check import unlabelled

        return unlabelled(self._manifest(), self.ontology, history)

    def _manifest(self) -> Manifest:
        """The same samples as a manifest without files."""
        return Manifest(
            root=Path(),
            inputs=tuple(map(str, range(len(self.features)))),
            kind="features",
            labels=self.labels.known,
            masks={},
            split=self.split,
            period=np.full(len(self.features), -1, dtype=np.int64),
        )


def _vectors(features: Any) -> Tensor:
    """Return features as 32-bit numbers; times and complex numbers are refused."""
    if isinstance(features, Tensor):
        features = features.detach().cpu()
        features = features.float() if features.is_floating_point() else features
    array = np.asarray(features)
    if array.dtype.kind in "cmM":
        raise TypeError
    return torch.from_numpy(np.require(array, np.float32, ["C", "W"]))


def _column(name: str, given: Any, count: int) -> NDArray[Any]:
    """One value for each of so many feature vectors."""
    try:
        column = as_column(given)
    except (TypeError, ValueError):
        raise LecoError(f"{name}: must be a list of values, one for each sample, not {reprlib.repr(given)}") from None
    if len(column) != count:
        raise LecoError(f"{name}: has {len(column)} values, but there are {count} feature vectors")
    return column


def _splits(given: Any, count: int) -> NDArray[np.str_]:
    if given is None:
        return np.full(count, "train")
    column = _column("split", given, count)
    splits = np.array(["train" if blank else str(value) for value, blank in zip(column, missing(column), strict=True)])
    for value in dict.fromkeys(splits.tolist()):
        if value not in SPLITS:
            raise LecoError(f"from_arrays: split: {value!r} is not one of {', '.join(SPLITS)}{nearest(value, SPLITS)}")
    return splits
