"""`bundle.json` and `metrics.json`: what is known of a model besides its weights and its ontology."""

import math
import os
from pathlib import Path
from typing import Annotated, Any, Final

from pydantic import ConfigDict, Field, model_validator

from leco.errors import LecoError, nearest
from leco.evaluation.calibration import Record
from leco.modalities import MODALITIES, Modality, Normalise
from leco.models.network import AnyNetwork
from leco.ontology.ontology import Ontology
from leco.records import Scores, StoredRecord, read

DESCRIPTION = "bundle.json"
FORMAT: Final = 2  # a bundle of format 1 has no digests of its files
_LARGEST_INPUT = 20_000_000  # numbers of one sample; an image of 2,048 x 2,048 pixels, as training allows, has 13

_Name = Annotated[str, Field(min_length=1, max_length=300)]
_Edge = Annotated[int, Field(ge=1, le=4_096)]
_Statistics = tuple[float, ...]


class Trial(StoredRecord):
    """A training that `auto` compared, and its scores at the newest version."""

    model_config = ConfigDict(extra="forbid")

    name: _Name
    method: _Name
    validation: float | None
    test: float | None
    seconds: float
    chosen: bool


class Description(StoredRecord):
    """The inputs, predictions and origin of a model."""

    model_config = ConfigDict(extra="forbid")

    format: Annotated[int, Field(ge=1, le=FORMAT)]
    leco: _Name  # version of this package that wrote it
    name: _Name  # of the data
    task: _Name  # the modality
    model: _Name  # the backbone
    heads: tuple[_Name, ...] = Field(min_length=1, max_length=1_000)  # versions that have one; the last one answers
    shape: tuple[Annotated[int, Field(ge=1, le=1_000_000)], ...]  # of what the network takes
    # Images: the middle square is scaled to this side, and the middle of `shape` is cut out of it; in segmentation the
    # longer edge is scaled to it, and windows are taken of that.
    side: _Edge | None = None
    window: _Edge | None = None
    # Of pixels in [0, 1], per channel; features have none, and are scaled to length ten instead.
    mean: _Statistics = ()
    std: _Statistics = ()
    versions: tuple[_Name, ...] = Field(min_length=1, max_length=1_000)  # that it answers in, oldest first
    trained: _Name  # the version it was trained for; the newest, unless it was upgraded since
    ontology: _Name  # fingerprint
    evaluated: tuple[_Name, ...] = ()  # classes of the newest version that count, if not all
    samples: dict[str, int] = Field(default={})  # what it was trained on: version or "unlabelled", and how many
    held_out: dict[str, int] = Field(default={})  # validation, test
    training: dict[str, Any] = Field(default={})  # the configuration of the stage
    modules: tuple[_Name, ...] = ()  # outside leco, which registered something that the model needs
    calibration: dict[str, Record] = Field(default={})  # by version
    trials: tuple[Trial, ...] = Field(
        default=(), max_length=100
    )  # that `auto` compared; the chosen one was trained again

    @model_validator(mode="after")
    def _fits_together(self) -> "Description":
        if math.prod(self.shape) > _LARGEST_INPUT:
            raise ValueError(f"inputs of shape {self.shape} do not fit a model for {self.task}")
        unknown = {*self.heads, self.trained, *self.calibration} - set(self.versions)
        if unknown or self.heads[-1] != self.versions[-1] or len(set(self.heads)) < len(self.heads):
            raise ValueError(
                "`heads`, `trained` and `calibration` must name `versions`, the last head the last of them"
            )
        if len({len(record.right) for record in self.calibration.values()}) > 1:
            raise ValueError("`calibration` must have the same samples at every version")
        return self

    @property
    def modality(self) -> Modality:
        """How inputs are read and predictions are made."""
        return MODALITIES[self.task]

    @property
    def newest(self) -> str:
        """The newest version that the model predicts in."""
        return self.versions[-1]

    @property
    def metric(self) -> str:
        """The score that models of this modality are chosen by."""
        return self.modality.metric

    def normaliser(self) -> Normalise:
        """Return the function that normalises uint8 images, or features, as in training."""
        return self.modality.restored_normaliser(self.mean, self.std)

    def build(self, ontology: Ontology) -> AnyNetwork:
        """Build the network, with newly initialised weights."""
        return self.modality.network(self.model, self.shape, [ontology[name] for name in self.heads])


def backup_path(folder: Path) -> Path:
    """Path of a bundle while another one takes its place."""
    return folder.with_name(f".{folder.name}-replaced")


def existing_folder(folder: Path) -> Path:
    """Return the folder of a bundle, or of its backup, if replacing it was interrupted."""
    if folder.exists():
        return folder
    aside = backup_path(Path(os.path.realpath(folder)))
    return aside if aside.is_dir() else folder


def read_description(folder: Path) -> Description:
    """Read and check the `bundle.json` of a folder."""
    path = existing_folder(folder) / DESCRIPTION
    found = read(Description, path)
    if found.task not in MODALITIES:  # nothing is imported because of a file
        remedy = nearest(found.task, MODALITIES)
        if found.modules:
            module = found.modules[0]
            remedy = (
                f", which the module {module!r} registers; import it first, on the command line with --import {module}"
            )
        raise LecoError(f"{path}: the model needs the modality {found.task!r}{remedy}")
    try:
        found.modality.check_bundle(found.model_dump(include={"shape", "side", "window", "mean", "std"}))
    except ValueError as error:
        raise LecoError(f"{path}: {error}") from None
    return found


METRICS = "metrics.json"


class Metrics(StoredRecord):
    """Scores by version; None if the split is empty. Its format is that of the bundle."""

    model_config = ConfigDict(extra="forbid")

    validation: Scores | None = None
    test: Scores | None = None


def read_metrics(folder: Path) -> Metrics:
    """Read and check the `metrics.json` of a folder."""
    return read(Metrics, folder / METRICS)
