"""`bundle.json`: all that must be known of a model besides its weights and its ontology."""

import math
import os
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from leco.errors import LecoError
from leco.io import checked, read_json

if TYPE_CHECKING:
    from collections.abc import Callable


DESCRIPTION = "bundle.json"
FORMAT: Final = 1
_LARGEST_FILE = 32_000_000
_LARGEST_INPUT = 20_000_000  # numbers of one sample; an image of 2,048 x 2,048 pixels, as training allows, has 13
MOST_RECORDS = 10_000  # validation samples that are kept of each version
UNITS = 10_000  # of confidence
_SMALLEST_WINDOW, _LARGE_WINDOW = 8, 1_024  # pixels; a larger one must fit its images
_MOST_WINDOWS = 40  # that an edge is as long as
_MOST_ANSWERS = 2**30  # probabilities of one image

_Name = Annotated[str, Field(min_length=1, max_length=300)]
_Edge = Annotated[int, Field(ge=1, le=4_096)]
_Statistics = tuple[float, ...]


class Record(BaseModel):
    """How sure the model was of each validation sample, and whether it was right; the samples of all versions match."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    confidence: str = Field(max_length=6 * MOST_RECORDS, pattern="^[0-9 ]*$")  # of 10,000; with blanks between them
    right: str = Field(max_length=MOST_RECORDS, pattern="^[01-]*$")  # 1, 0, or - where the label is not known

    @model_validator(mode="after")
    def _as_many(self) -> "Record":
        levels = self.confidence.split()
        if len(levels) != len(self.right) or any(len(level) > 5 or int(level) > UNITS for level in levels):
            raise ValueError(f"{len(self.right)} numbers from 0 to {UNITS} are needed, one for each answer")
        return self

    @property
    def confidences(self) -> list[float]:
        """The probability that each answer had."""
        return [int(level) / UNITS for level in self.confidence.split()]


class Description(BaseModel):
    """What a model takes, what it answers, and where it comes from."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    format: Literal[1] = FORMAT
    leco: _Name  # version of this package that wrote it
    name: _Name  # of the data
    task: Literal["classification", "features", "segmentation"]
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
    samples: dict[str, int] = {}  # what it was trained on: version or "unlabelled", and how many
    held_out: dict[str, int] = {}  # validation, test
    training: dict[str, Any] = {}  # the configuration of the stage
    calibration: dict[str, Record] = {}  # by version

    @model_validator(mode="after")
    def _fits_together(self) -> "Description":
        images = self.task != "features"
        if len(self.shape) != (3 if images else 1) or math.prod(self.shape) > _LARGEST_INPUT:
            raise ValueError(f"a model for {self.task} takes no inputs of the shape {self.shape}")
        if images and (self.side is None or self.shape[0] not in (1, 3)):
            raise ValueError("images need a `side`, and 1 or 3 channels")
        if self.task == "classification" and max(self.shape[1:]) > (self.side or 0):
            raise ValueError(f"{self.shape[1]} x {self.shape[2]} pixels cannot be cut out of {self.side} x {self.side}")
        if self.task == "segmentation" and max(self.shape[1:]) != self.side:
            raise ValueError(f"the longer edge of {self.shape[1]} x {self.shape[2]} pixels must be `side`, {self.side}")
        if (self.task == "segmentation") != (self.window is not None):
            raise ValueError("`window` is of segmentation, and needed there")
        if self.window is not None and self.side is not None:
            check_window(self.side, self.window)
        channels = self.shape[0] if images else 0
        if len(self.mean) != channels or len(self.std) != channels or any(value <= 0 for value in self.std):
            raise ValueError(f"`mean` and positive `std` are needed for each of the {channels} channels")
        unknown = {*self.heads, self.trained, *self.calibration} - set(self.versions)
        if unknown or self.heads[-1] != self.versions[-1] or len(set(self.heads)) < len(self.heads):
            raise ValueError(
                "`heads`, `trained` and `calibration` must name `versions`, the last head the last of them"
            )
        if len({len(record.right) for record in self.calibration.values()}) > 1:
            raise ValueError("`calibration` must have the same samples at every version")
        return self

    @property
    def newest(self) -> str:
        """The version whose classes the model tells apart."""
        return self.versions[-1]

    @property
    def metric(self) -> str:
        """What models of this task are judged by."""
        return "miou" if self.task == "segmentation" else "macc"

    def normaliser(self) -> "Callable[[Any], Any]":
        """What training did to inputs: uint8 images, or features, to what the network takes."""
        import torch

        from leco.data.views.features import unit_length
        from leco.data.views.images import normalise

        if self.task == "features":
            return unit_length
        return partial(normalise, mean=torch.tensor(self.mean), std=torch.tensor(self.std))

    def write(self) -> str:
        """The text of the file."""
        return self.model_dump_json(indent=1) + "\n"


def check_window(side: int, window: int, classes: int = 1) -> None:
    """Refuse windows that would take minutes or gigabytes for images whose longer edge is `side`."""
    if not max(_SMALLEST_WINDOW, side / _MOST_WINDOWS) <= window <= max(_LARGE_WINDOW, 2 * side):
        raise LecoError(f"windows of {window} pixels are too small, or too large, for images of {side}")
    if max(side, window) ** 2 * classes > _MOST_ANSWERS:
        raise LecoError(f"{classes:,} classes are too many for windows of {window} pixels in images of {side}")


def put_aside(folder: Path) -> Path:
    """Where a bundle is while another one takes its place."""
    return folder.with_name(f".{folder.name}-replaced")


def standing(folder: Path) -> Path:
    """The folder of a bundle, or, where putting another one there was interrupted, that of the old one."""
    if folder.exists():
        return folder
    aside = put_aside(Path(os.path.realpath(folder)))
    return aside if aside.is_dir() else folder


def read_description(folder: Path) -> Description:
    """Read and check the `bundle.json` of a folder; one message says what is wrong."""
    path = standing(folder) / DESCRIPTION
    content = read_json(path, _LARGEST_FILE)
    number = content.get("format") if isinstance(content, dict) else None
    if type(number) is not int or number != FORMAT:  # JSON's true is Python's 1
        what = f"is a bundle of format {number!r}" if isinstance(number, int) else "is not the description of a bundle"
        raise LecoError(f"{path}: {what}; this leco reads format {FORMAT}")
    return checked(Description, content, path, "is not the description of a bundle")


METRICS = "metrics.json"
_LARGEST_METRICS = 200_000_000


def _number_or_none(value: Any) -> Any:
    """Python writes NaN where nothing was counted; JSON has no such thing."""
    return None if isinstance(value, float) and math.isnan(value) else value


_Share = Annotated[Annotated[float, Field(ge=0, le=1)] | None, BeforeValidator(_number_or_none)]


class ClassScore(BaseModel):
    """One class: how often it was tested, and how well it did."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str = Field(alias="class")
    support: int = Field(ge=0)
    accuracy: _Share
    iou: _Share


class VersionScores(BaseModel):
    """All classes of one version."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    macc: _Share
    miou: _Share
    per_class: tuple[ClassScore, ...]
    absent: tuple[str, ...] = ()

    @property
    def count(self) -> int:
        """How many samples, or pixels, were tested."""
        return sum(row.support for row in self.per_class)


class Metrics(BaseModel):
    """Scores by version; None where there was nothing to test with."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    validation: dict[str, VersionScores] | None = None
    test: dict[str, VersionScores] | None = None

    def write(self) -> str:
        """The text of the file."""
        return self.model_dump_json(indent=1, by_alias=True) + "\n"


def read_metrics(folder: Path) -> Metrics:
    """Read and check the `metrics.json` of a folder."""
    path = folder / METRICS
    return checked(Metrics, read_json(path, _LARGEST_METRICS), path, "holds no scores")
