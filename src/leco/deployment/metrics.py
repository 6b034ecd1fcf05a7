"""`metrics.json`: how good a model was when it was trained."""

import math
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from leco.deployment.checked import checked
from leco.ontology.files import read_json

FILE = "metrics.json"
_LARGEST_FILE = 200_000_000


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
    path = folder / FILE
    return checked(Metrics, read_json(path, _LARGEST_FILE), path, "holds no scores")
