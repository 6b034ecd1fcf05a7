"""Time periods of a dataset: the samples that each trains and is tested on, for one seed."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from leco.data import UNTESTED
from leco.data.file_digests import file_digests
from leco.data.periods import Annotated, Annotation, Part, Split, annotate
from leco.data.rng import Draws
from leco.data.samples import Column, InMemory, Samples
from leco.data.views.sets import ViewSet
from leco.errors import LecoError
from leco.modalities.modality import Modality, Normalise
from leco.models.network import AnyNetwork
from leco.ontology.ontology import Ontology


class Start(Protocol):
    """A model to start training from: a bundle."""

    @property
    def digest(self) -> str:
        """Digest of the model's weights."""
        ...

    @property
    def trained(self) -> str:
        """The version it was trained for."""
        ...

    @property
    def newest(self) -> str:
        """The newest version it predicts; newer than `trained` if it was upgraded since."""
        ...

    def network(self) -> AnyNetwork:
        """The model itself."""
        ...


class Assignment(Protocol):
    """Assignment of samples to periods."""

    def annotated(self, period: int, annotation: Annotation) -> Annotated:
        """Samples that a period may train on, under an annotation strategy."""
        ...

    def tested(self, period: int) -> Tensor:
        """Indices of the test samples that have a label at the period's version, or a newer one."""
        ...


@dataclass(frozen=True, eq=False)
class SplitAssignment:
    """A benchmark's split: every annotation strategy is possible, and all test samples have all labels."""

    split: Split
    test: Tensor
    others: Tensor  # samples of no period, without labels

    def annotated(self, period: int, annotation: Annotation) -> Annotated:
        """Apply the strategy."""
        return annotate(self.split, period, annotation, self.others)

    def tested(self, period: int) -> Tensor:
        """All test samples."""
        return self.test


@dataclass(frozen=True, eq=False)
class FixedAssignment:
    """Own data, whose labels are fixed."""

    periods: Sequence[Annotated]
    test: Sequence[Tensor]

    def annotated(self, period: int, annotation: Annotation) -> Annotated:
        """Labels of the period; the only strategy for your own data is `label-new`."""
        return self.periods[period]

    def tested(self, period: int) -> Tensor:
        """Test samples that are labelled by then."""
        return self.test[period]


@dataclass(frozen=True, eq=False)
class Periods:
    """The samples of a dataset, split into time periods, with their views."""

    name: str
    modality: Modality
    ontology: Ontology
    versions: tuple[str, ...]  # of each period
    pool: Samples
    test: Samples
    views: ViewSet
    normalise: Normalise
    assignment: Assignment
    fingerprint: str  # of samples, labels and split
    learned: str  # like `fingerprint`, but independent of the test set
    data: str = ""  # like `fingerprint`, but independent of the seed
    evaluated: tuple[str, ...] = ()  # classes of the newest version that count, if not all
    source: str = ""  # how to get the same data again
    start: Start | None = None
    refits: bool = False  # validation was taken from the training samples, so that a chosen model may train on both
    _histories: dict[int, Ontology] = field(default_factory=dict, repr=False)

    def annotated(self, period: int, annotation: Annotation) -> Annotated:
        """Samples that a period may train on."""
        return self.assignment.annotated(period, annotation)

    def tested(self, period: int) -> Tensor:
        """Indices into `test`."""
        return self.assignment.tested(period)

    @cached_property
    def raw_shape(self) -> torch.Size:
        """The shape of a sample as it is stored."""
        return self._first.shape[1:]

    @cached_property
    def shape(self) -> torch.Size:
        """The shape of a network's input: (channels, height, width), or (dimensions,)."""
        return self.views.evaluate(self._first, Draws(0, 0, torch.tensor([0]))).shape[1:]

    @cached_property
    def _first(self) -> Tensor:
        return self.pool.inputs.read(torch.tensor([0]))

    @property
    def first(self) -> int:
        """The first period to train: period 0, or the first one newer than the start."""
        if self.start is None:
            return 0
        position = self.ontology.position
        for period, version in enumerate(self.versions):
            if position(self.start.trained) < position(version) and position(self.start.newest) <= position(version):
                return period
        raise LecoError(f"{self.start}: is already a model of {self.start.trained}; the data have no later version")

    def started(self, start: Start, normalise: Normalise) -> "Periods":
        """Return the periods for a training that starts from a model, with its normalisation."""
        return replace(self, normalise=normalise, start=start)

    def resized(self, side: int) -> "Periods":
        """Return the periods with images scaled to a side, after all other views."""
        if self.modality.has_masks or len(self.raw_shape) != 3:
            raise LecoError(
                f"training.views.resize: is for classification of images, not {self.modality.name}; set it to 0"
            )
        return replace(self, views=self.views.resized(side))

    def without_test(self) -> "Periods":
        """Return the periods without test samples; stages trained on them have no test scores."""
        nothing = torch.zeros(0, dtype=torch.int64)
        assignment = _Untested(self.assignment, nothing)
        return replace(self, test=self.pool, assignment=assignment, fingerprint=self.learned)

    def refitted(self) -> "Periods":
        """Return the periods with validation samples among the training samples, for a model that has been chosen."""

        def derived(fingerprint: str) -> str:
            suffix = UNTESTED if fingerprint.endswith(UNTESTED) else ""
            return hashlib.blake2b(f"{fingerprint} refitted".encode(), digest_size=8).hexdigest() + suffix

        return replace(
            self,
            assignment=_Everything(self.assignment),
            fingerprint=derived(self.fingerprint),
            learned=derived(self.learned),
            refits=False,
        )

    def until(self, period: int) -> Ontology:
        """The ontology as it was in a period."""
        if period not in self._histories:
            self._histories[period] = self.ontology.until(self.versions[period])
        return self._histories[period]


@dataclass(frozen=True, eq=False)
class _Untested:
    assignment: Assignment
    nothing: Tensor

    def annotated(self, period: int, annotation: Annotation) -> Annotated:
        return self.assignment.annotated(period, annotation)

    def tested(self, period: int) -> Tensor:
        return self.nothing


@dataclass(frozen=True, eq=False)
class _Everything:
    """Validation samples are training samples."""

    assignment: Assignment

    def annotated(self, period: int, annotation: Annotation) -> Annotated:
        found = self.assignment.annotated(period, annotation)
        newest = Part(found.newest.version, torch.cat([found.newest.indices, found.validation.indices]))
        return Annotated(newest, found.history, Part(found.validation.version, found.validation.indices[:0]))

    def tested(self, period: int) -> Tensor:
        return self.assignment.tested(period)


def without_leaks(periods: Sequence[Annotated]) -> list[Annotated]:
    """Remove the validation samples of later periods from the training samples of earlier ones."""
    found = []
    for period, annotated in enumerate(periods):
        held_out = torch.cat([later.validation.indices for later in periods[period:]])
        newest, *history = (
            Part(part.version, part.indices[~torch.isin(part.indices, held_out)])
            for part in (annotated.newest, *annotated.history)
        )
        if not len(newest.indices):
            raise LecoError(
                f"all samples labelled in {newest.version} are held out for validation; assign some to train"
            )
        found.append(Annotated(newest, tuple(part for part in history if len(part.indices)), annotated.validation))
    return found


def digest(ontology: Ontology, start: str, contents: bytes) -> str:
    """Digest of an ontology, a text and the contents of samples, as sixteen hexadecimal digits."""
    return hashlib.blake2b(f"{start} {ontology.fingerprint}".encode() + contents, digest_size=8).hexdigest()


def contents(samples: Samples, indices: Tensor | None = None, memory: Path | None = None) -> bytes:
    """Digests of all samples, or of some; empty if there are none. Those of files are remembered in `memory`."""
    indices = torch.arange(len(samples)) if indices is None else indices
    columns = (samples.inputs, *samples.labels.values()) if len(indices) else ()
    return b"".join(_content(column, indices, memory) for column in columns)


def _content(column: Column, indices: Tensor, memory: Path | None) -> bytes:
    """Digest of the values or, if they are not in memory, of the contents of their files."""
    if isinstance(column, InMemory):
        found = hashlib.blake2b()
        for ids in indices.split(4_096):  # type: ignore[no-untyped-call]
            found.update(column.values[ids].contiguous().view(torch.uint8).numpy().data)
        return found.digest()
    paths: Any = getattr(column, "paths", None)
    if paths is None:  # a few samples that stand in for all
        return b""
    named = np.array([paths[index] != Path() for index in indices.tolist()], dtype=bool)
    digests = np.zeros(len(indices), dtype="V16")  # where there is no mask
    digests[named] = file_digests([paths[index] for index in indices[torch.from_numpy(named)].tolist()], memory)[0]
    return hashlib.blake2b(digests.tobytes()).digest()
