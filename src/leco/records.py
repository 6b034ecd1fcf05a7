"""Typed records, of which the JSON in stores and bundles consists: all are read and written here. Nothing needs torch.

What does not fit its type, or is of another format, is an error in one line, which names the file. Here are the records
of stages; those of bundles (`model.description`) and plans (`planning.record`) are beside the code that uses them.
"""

import codecs
import math
import reprlib
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, Final, Self, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, model_validator

from leco.errors import LecoError
from leco.io import SUMS, changed, read_bytes, read_text, safetensors_metadata, write_bytes, write_text

FORMAT: Final = 2  # of stages and checkpoints; those of format 1 have no digests
RESULT, SUMMARY, CONFIG, METRICS_LINES = "result.json", "summary.json", "config.json", "metrics.jsonl"
_LARGEST = 200_000_000  # bytes
_NEEDED = ("metric", "data", "ontology", "samples", "validation_score", "validation", "test", "seconds")  # of a model


def _number_or_none(value: Any) -> Any:
    """Read NaN, which Python writes where nothing was counted, as None."""
    return None if isinstance(value, float) and math.isnan(value) else value


Format = Annotated[int, Field(ge=1, le=FORMAT)]
FirstFormat = Annotated[int, Field(ge=1, le=1)]
_Share = Annotated[Annotated[float, Field(ge=0, le=1, strict=True)] | None, BeforeValidator(_number_or_none)]
_Count = Annotated[int, Field(ge=0, le=2**63)]
_Amount = Annotated[float, Field(ge=0)]
_Name = Annotated[str, Field(max_length=1_000)]
_Digest = Annotated[str, Field(pattern="^[0-9a-f]{0,64}$")]
_Number = Annotated[int, Field(ge=-(2**63), le=2**64)]
_Setting = bool | _Number | float | str | None
_Stage = Annotated[str, Field(pattern="^[0-9A-Za-z_-]{1,64}$")]  # the name of a folder


class ClassScore(BaseModel):
    """Scores of one class."""

    model_config = ConfigDict(extra="forbid", frozen=True, validate_by_name=True)

    name: str = Field(alias="class")
    support: Annotated[int, Field(ge=0, le=2**63, strict=True)]
    accuracy: _Share
    iou: _Share


class VersionScores(BaseModel):
    """Scores of one version."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    macc: _Share
    miou: _Share
    per_class: tuple[ClassScore, ...]
    absent: tuple[str, ...] = ()

    @property
    def count(self) -> int:
        """Number of samples, or pixels, that were tested."""
        return sum(row.support for row in self.per_class)


Scores = dict[str, VersionScores]  # by version


class StoredRecord(BaseModel):
    """What a JSON file holds. Numbers are numbers, and finite; fields that are not known are ignored."""

    model_config = ConfigDict(strict=True, frozen=True, extra="ignore", allow_inf_nan=False, validate_by_name=True)

    def text(self) -> str:
        """The text of the file."""
        return self.model_dump_json(indent=1, by_alias=True) + "\n"

    def write(self, path: Path) -> None:
        """Write the file, atomically."""
        write_text(path, self.text())


class Config(StoredRecord):
    """`config.json`: what a stage is, by everything that its result depends on; other stages by their fingerprints."""

    format: _Count = 1  # of results: `experiments.stages`
    material: _Name
    version: _Name
    period: Annotated[int, Field(ge=0, le=1_000)]
    method: _Name
    strategy: _Name
    annotation: _Name
    head_start: bool
    seed: _Number
    training: dict[str, dict[str, _Setting | tuple[_Setting, ...]]]  # by part
    previous: tuple[_Stage, ...]
    teacher: _Stage | None = None
    start: str = ""
    weights: str = ""
    source: str = ""  # how to get the same data again
    learned: str = ""  # the fingerprint without the test set

    @model_validator(mode="after")
    def _has_settings(self) -> Self:
        rates = self.training.get("optimiser", {}).get("learning_rate")
        batches = self.training.get("batches", {})
        decay = self.training.get("optimiser", {}).get("weight_decay")
        if not (isinstance(rates, tuple) and rates and _are_numbers(rates)):
            raise ValueError("training.optimiser.learning_rate: should be a list of numbers")
        if not _are_numbers(decay if isinstance(decay, tuple) else (decay,)):
            raise ValueError("training.optimiser.weight_decay: should be a number")
        for name in ("steps", *(["size"] if "size" in batches else [])):
            if type(batches.get(name)) is not int:
                raise ValueError(f"training.batches.{name}: should be a whole number")
        return self


def _are_numbers(values: tuple[Any, ...]) -> bool:
    return all(isinstance(value, int | float) and not isinstance(value, bool) for value in values)


class Result(StoredRecord):
    """`result.json`: the scores of a stage, and the circumstances of its training."""

    format: Format = 1
    stage: _Name
    version: _Name
    seed: _Number
    diverged: str | None = None  # the reason why the stage has no model; all that follows is then missing
    metric: Annotated[str, Field(pattern="^(macc|miou)?$")] = ""
    data: _Name = ""  # fingerprint of the data, whatever the seed
    ontology: _Digest = ""
    samples: _Count = 0  # with labels of the stage's version
    best_step: _Count = 0
    validation_score: _Share = None
    validation: Scores | None = None
    test: Scores | None = None
    labels: dict[str, _Count] = {}  # of each class, that it was trained on
    validation_right: str | None = None  # of each sample: 1, 0 or, if unknown, -
    budget: _Name = ""  # paper, small, other, demo, or empty for own data
    pseudo_labels: dict[str, float] = {}
    feature_scale: float = 1.0  # of a head on features
    seconds: _Amount | None = None
    images_per_second: _Amount = 0.0
    device: _Name = ""
    precision: _Name = ""
    processes: _Count = 1
    sharded: bool = False  # the network was divided among the processes
    parts: _Count = 1  # of a batch, if memory did not suffice for the whole
    threads: _Count = 1
    packages: dict[str, _Name] = {}

    @model_validator(mode="after")
    def _is_whole(self) -> Self:
        missing = [name for name in _NEEDED if name not in self.model_fields_set]
        if self.diverged is None and missing:
            raise ValueError(f"{missing[0]} is missing")
        for scores in (self.validation, self.test):
            if scores and self.version not in scores:
                raise ValueError(f"there are no scores of {self.version[:100]}")
        return self

    def score(self, split: str, version: str | None = None) -> float | None:
        """The score on a split at a version, by default the stage's, by the metric that models are chosen by."""
        scores = {"validation": self.validation, "test": self.test}[split] or {}
        found: float | None = getattr(scores.get(version or self.version), self.metric, None)
        return found

    def summary(self, config: Config) -> "Summary":
        """Return the part that lists and tables need."""
        test = {name: getattr(scores, self.metric) for name, scores in (self.test or {}).items()}
        shared = Summary.model_fields.keys() & Result.model_fields.keys() - {"test"}
        return Summary(config=config, test=test, **{name: getattr(self, name) for name in shared})


class Summary(StoredRecord):
    """`summary.json`: the part of a stage's result that lists and tables need; ten thousand are read in a second."""

    format: Format = 1
    config: Config
    test: dict[str, _Share]  # by version
    metric: Annotated[str, Field(pattern="^(macc|miou)$")]
    data: _Name
    budget: _Name
    ontology: _Digest
    samples: _Count
    best_step: _Count
    validation_score: _Share
    seconds: _Amount
    images_per_second: _Amount
    device: _Name
    threads: _Count
    processes: _Count
    packages: dict[str, _Name]


class Line(StoredRecord):
    """A line of `metrics.jsonl`: an evaluation, with the means since the last one."""

    step: _Count
    score: Annotated[float | None, BeforeValidator(_number_or_none)] = None
    learning_rate: float
    means: dict[str, float]


class Spent(StoredRecord):
    """What a run has used so far."""

    seconds: _Amount
    step_seconds: _Amount
    images: _Count


class Saved(StoredRecord):
    """How a run saves memory."""

    parts: Annotated[int, Field(ge=1, le=2**31)]
    recomputes: bool


class Notes(StoredRecord):
    """The state of a run besides its tensors."""

    best_score: float | None
    best_step: _Count
    sums: dict[str, tuple[float, float]]
    means: dict[str, float]
    time: Spent
    optimiser: dict[str, Any]  # numbers, flags and text by name
    thrift: Saved
    scaler: dict[str, Any] | None = None


class Header(StoredRecord):
    """The header of a checkpoint."""

    format: Annotated[int, Field(ge=FORMAT, le=FORMAT)]
    step: _Count
    digest: _Digest  # of the tensors
    notes: Notes


_Kind = TypeVar("_Kind", bound=BaseModel)


def parse(kind: type[_Kind], text: str | bytes, place: str | Path, remedy: str = "") -> _Kind:
    """Return a record from JSON; `place` and `remedy` are for messages."""
    try:
        return kind.model_validate_json(text)
    except ValidationError as error:
        newer = next(
            (e["input"] for e in error.errors() if e["loc"] == ("format",) and e["type"] == "less_than_equal"), None
        )
        if newer is not None:
            raise LecoError(
                f"{place}: is of format {newer}, which a newer version of leco wrote; update leco"
            ) from None
        problem = f"is damaged, or of another version of leco: {_first_problem(error)}{remedy and '; '}{remedy}"
        raise LecoError(f"{place}: {problem}") from None


def _first_problem(error: ValidationError) -> str:
    """The first problem with a record: its place, what is wrong, and the value if it is short."""
    first = error.errors(include_url=False, include_context=False)[0]
    place = ".".join(str(part)[:40] for part in first["loc"][:6])
    problem = "is missing" if first["type"] == "missing" else str(first["msg"]).removeprefix("Value error, ")
    value = first["input"]
    if first["type"] not in ("missing", "value_error") and place and isinstance(value, str | int | float | None):
        problem += f", not {reprlib.repr(value)}"
    return f"{place}: {problem}" if place else problem


def read(kind: type[_Kind], path: Path, remedy: str = "") -> _Kind:
    """Read a record from its file."""
    return parse(kind, read_bytes(path, _LARGEST).removeprefix(codecs.BOM_UTF8), path, remedy)


def read_config(path: Path) -> Config:
    """Read the `config.json` of a stage."""
    return read(Config, path)


def read_result(folder: Path) -> Result:
    """Read the result of a stage."""
    return read(Result, folder / RESULT)


def read_summary(folder: Path) -> Summary:
    """Read the summary of a stage."""
    return read(Summary, folder / SUMMARY)


def read_lines(path: Path) -> list[Line]:
    """Read all lines of metrics."""
    lines = read_text(path, _LARGEST).splitlines()
    return [parse(Line, line, f"{path}:{number}") for number, line in enumerate(lines, 1)]


def forget_after(metrics: Path, step: int) -> None:
    """Drop the lines that a killed run wrote after its last checkpoint: those steps are repeated."""
    if metrics.is_file():
        write_bytes(metrics, b"".join(_until(metrics.read_bytes(), step)))


def _until(content: bytes, step: int) -> Iterator[bytes]:
    """Yield the complete lines of steps until this one."""
    for line in content.splitlines(keepends=True):
        try:
            if line.endswith(b"\n") and parse(Line, line, "").step <= step:
                yield line
        except LecoError:
            continue


def read_header(path: Path) -> Header:
    """Read the header of a checkpoint."""
    try:
        content = safetensors_metadata(path)["leco"]
    except KeyError:
        raise ValueError("it has no header") from None
    return parse(Header, content, path)


def checkpoint_step(path: Path) -> int:
    """Step at which a checkpoint was saved, or -1 if it cannot be read."""
    try:
        return read_header(path).step
    except (OSError, ValueError, MemoryError, RecursionError):
        return -1


def is_complete(folder: Path) -> bool:
    """Whether a stage has its result, and the digests and weights that belong to it."""
    if not (folder / RESULT).is_file():
        return False
    found = read_result(folder)
    names = [] if found.diverged is not None else ["model.safetensors"]
    return all((folder / name).is_file() for name in (*names, *([SUMS] if found.format > 1 else [])))


def checked_stage(folder: Path, *names: str) -> None:
    """Refuse files of a stage that are not as they were written."""
    if name := changed(folder, *names):
        raise LecoError(f"{folder / name}: is damaged: it changed since it was written")
