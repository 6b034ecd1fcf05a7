"""What an experiment is, as typed and checked data."""

import reprlib
from contextlib import suppress
from dataclasses import dataclass, fields
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
    field_validator,
    model_validator,
)

from leco import strict_yaml
from leco.data.benchmarks import recipe
from leco.data.manifest.table import read_table
from leco.data.periods import Annotation
from leco.devices import Precision
from leco.errors import LecoError, TextError, nearest
from leco.experiments.recipes import Budget, defaults
from leco.io import read_text
from leco.methods.method import Method
from leco.methods.terms import Settings
from leco.model.description import read_description
from leco.models.backbones import cached_weights
from leco.ontology.files import line_of
from leco.settings import Strategy
from leco.training.loop import Optimisation

_LARGEST_FILE = 1_000_000
_PATHS = ("manifest", "ontology", "root")  # of own data


def _listed(value: Any) -> Any:
    """One learning rate, several, or text with commas between them."""
    if isinstance(value, str):
        return [part.strip() for part in value.split(",")]
    return value if isinstance(value, list | tuple) else [value]


LearningRates = Annotated[
    tuple[Annotated[float, Field(gt=0, le=1e30)], ...], BeforeValidator(_listed), Field(min_length=1)
]


class Training(BaseModel):
    """How long and how a period is trained."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    model: str = "wrn-28-2"
    pretrained: bool = False
    steps: int = Field(160_000, ge=1, le=10**9)
    batch_size: int = Field(128, ge=4, le=2**16)  # where history is used, half of it is history (K = M)
    learning_rate: LearningRates = (0.06,)  # of several, the best on validation is chosen, in each period
    weight_decay: float = Field(5e-4, ge=0, le=1e6)
    momentum: float = Field(0.9, ge=0, lt=1)
    nesterov: bool = False
    schedule: Literal["cosine", "poly"] = "cosine"
    average: float = Field(0.999, ge=0, lt=1)
    average_warm_up: bool = True
    average_norm: bool = False  # BatchNorm's statistics averaged with the weights; else those of the last steps
    # BatchNorm's momentum: FixMatch's 0.001 needs thousands of steps before its statistics mean anything.
    norm_momentum: float = Field(0.001, gt=0, le=1)
    head_steps: int = Field(0, ge=0)  # of `lp-ft`: so many with the heads alone
    draws_a_view: int = Field(4, ge=1)  # of `freeze`: a view of each sample for so many times that it is drawn
    evaluate_every: int = Field(1_000, ge=1)
    together: bool = False  # new samples and history in one forward pass (decision 10)
    threshold: float = Field(0.95, ge=0, le=1)  # of pl and fixmatch
    balance: bool = False  # the teacher's guesses as frequent as the classes of the new samples are
    head: Literal["trained", "gaussian"] = "trained"  # gaussian: fitted anew, in closed form, to the features
    # How much of a class's log frequency is taken off its logits after training; -0 is 0.
    adjust: Annotated[float, Field(ge=0, le=2), AfterValidator(abs)] = 0.0
    soft: bool = False  # pl and fixmatch with soft targets
    st_soft_filtered: bool = False  # st-soft always filtered
    precision: Precision = "32-true"
    # Segmentation (appendix C): the longer edge is scaled to `base_size` times a factor, and a square is cropped.
    crop: int = Field(720, ge=8, le=4_096)
    base_size: int = Field(2_200, ge=8, le=16_384)
    scale: tuple[float, float] = (0.5, 2.1)
    window: int = Field(720, ge=8)  # of inference; windows overlap by a third
    coarse_on_new: bool = True  # joint and lpl also on the new samples
    mask_contradictions: bool = False  # drop old labels that contradict new ones; needs both, as benchmarks have
    # Where a period starts from the one before, if it has other rates.
    finetune_learning_rate: LearningRates | None = None

    @model_validator(mode="after")
    def _even_batch(self) -> "Training":
        if self.batch_size % 2:
            raise ValueError(f"batch_size must be even, not {self.batch_size}: half of it is history")
        if self.head_steps >= self.steps:
            raise ValueError(f"head_steps must be fewer than the {self.steps} steps, not {self.head_steps}")
        if self.head == "gaussian" and self.adjust:
            raise ValueError(
                f"training.adjust: {self.adjust:g} is for trained heads; a Gaussian one prefers no class for being "
                "frequent: set it to 0"
            )
        if self.nesterov and not self.momentum:
            raise ValueError("nesterov needs a momentum above 0")
        if not 0 < self.scale[0] <= self.scale[1] <= 10:
            raise ValueError(f"scale must be two positive factors up to 10, the smaller first, not {self.scale}")
        return self

    def optimisation(self) -> Optimisation:
        """The part that the loop needs."""
        (rate,) = self.learning_rate
        known = {field.name: getattr(self, field.name) for field in fields(Optimisation)}
        return Optimisation(**known | {"learning_rate": rate})

    def settings(self) -> Settings:
        """The part that the terms need."""
        return Settings(**{field.name: getattr(self, field.name) for field in fields(Settings)})


class OwnData(BaseModel):
    """A manifest, its ontology and the folder its paths are relative to; all relative to the file that names them."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    manifest: Path
    ontology: Path
    root: Path | None = None  # the manifest's folder
    image_size: int = Field(64, ge=8, le=2_048)


class Procedure(BaseModel):
    """How models are trained, whatever the data: a method, two strategies and a seed."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    method: str = "lpl+st-hard/cond"
    strategy: Strategy = "finetune"
    head_start: bool = False
    annotation: Annotation = "label-new"
    seed: int = Field(0, ge=0, lt=2**31)
    training: Training = Training()

    @field_validator("method")
    @classmethod
    def _known_method(cls, method: str) -> str:
        return str(Method.parse(method))


class Experiment(Procedure):
    """One cell of a table: data, and how models are trained on them."""

    benchmark: str | None = None
    data: OwnData | None = None
    size: int | None = Field(None, ge=1)
    transition: Literal["tree", "soft"] = "tree"  # of Mapillary, whose transition is inferred from masks
    start: Path | None = None  # a bundle: the model that the first period after its own starts from
    budget: Budget = "paper"

    @model_validator(mode="after")
    def _one_kind_of_data(self) -> "Experiment":
        if (self.benchmark is None) == (self.data is None):
            raise ValueError("say either `benchmark`, or `data` with `manifest` and `ontology`")
        if self.data is not None and self.size is not None:
            raise ValueError("`size` is for benchmarks; own data are taken as they are")
        if self.data is not None and "transition" in self.model_fields_set:
            raise ValueError("`transition` is for benchmarks; own data have that of their ontology")
        if self.data is not None and "budget" in self.model_fields_set:
            raise ValueError("a budget is for benchmarks; own data are trained as `training` says, or its defaults")
        if self.data is not None and self.annotation != "label-new":
            raise ValueError(f"own data are labelled as they are; `annotation: {self.annotation}` is for benchmarks")
        if self.start is not None and self.strategy == "scratch":
            raise ValueError("`start` names a model to start from, but `strategy: scratch` starts from none")
        return self


class ExperimentError(LecoError):
    """All that is wrong with an experiment; as an error, the first of it."""

    def __init__(self, problems: list[str]) -> None:
        self.problems = problems
        super().__init__(problems[0])


def experiment(source: str, changes: dict[str, Any], settings: dict[str, str]) -> Experiment:
    """The experiment of a benchmark or an experiment.yaml, with `changes` to it and `settings` of its training.

    Settings are text, such as ``{"training.steps": "500"}``; what neither says comes from the recipe.
    """
    changes = {key: value for key, value in changes.items() if value is not None}
    file = File.read(Path(source)) if source.endswith((".yaml", ".yml", ".json")) else None
    values: dict[str, Any] = dict(file.values) if file else {"benchmark": recipe(source).name}
    values |= changes
    given = values.get("training") or {}
    if not isinstance(given, dict):
        raise LecoError(f"{source}: training: must be a table of settings, not {given!r}")
    budget = values.get("budget", "paper")
    if budget not in get_args(Budget):
        raise LecoError(f"budget: {budget!r} is none{nearest(str(budget), get_args(Budget))}")
    name = values.get("benchmark")
    own = values["data"] if isinstance(values.get("data"), dict) else {}
    side = str(own.get("image_size", ""))
    task = own_task(own.get("manifest")) if name is None else recipe(str(name)).task
    base = defaults(str(name), task, budget, int(side) if side.isdecimal() else 64)
    if isinstance(values.get("start"), str | Path):
        with suppress(LecoError):  # whoever reads the bundle says what is wrong with it
            base = base | {"model": read_description(Path(values["start"])).model}
    training = base | given | _training_settings(settings)
    if task == "own images" and "start" not in values:  # weights are taken if they are there, and never fetched unasked
        training.setdefault("pretrained", cached_weights(str(training["model"])) is not None)
    values["training"] = training
    try:
        return Experiment.model_validate(values)
    except ValidationError as error:
        raise ExperimentError([_locate(problem, file, changes, settings) for problem in error.errors()]) from None


def own_task(manifest: object) -> str:
    """What the columns of a manifest make of own data; one that cannot be read is reported by whoever reads it."""
    try:
        return _task_of(manifest, manifest.stat().st_mtime_ns) if isinstance(manifest, Path) else "own images"
    except (OSError, ValueError):
        return "own images"


@lru_cache(maxsize=8)
def _task_of(manifest: Path, _: int) -> str:
    """As long as the file does not change: the cells of a grid all ask for it."""
    table, _problems = read_table(manifest)
    return "own features" if table.kind == "features" else "own masks" if table.target == "mask" else "own images"


@dataclass(frozen=True)
class File:
    """An experiment as it was written."""

    path: Path
    text: str
    values: dict[str, Any]

    @classmethod
    def read(cls, path: Path) -> "File":
        """Read YAML or JSON; paths in it are relative to it."""
        text = read_text(path, _LARGEST_FILE)
        try:
            values = _as_text(strict_yaml.read(text))
        except TextError as error:
            raise LecoError(f"{path}:{error.line}: {error.problem}") from None
        if not isinstance(values, dict):
            raise LecoError(f"{path}: an experiment is a table with `benchmark` or `data`, and `method`")
        own = values.get("data")
        if isinstance(own, dict):
            paths = {key: path.parent / own[key] for key in _PATHS if isinstance(own.get(key), str)}
            values["data"] = own | paths
        if isinstance(values.get("start"), str):
            values["start"] = path.parent / values["start"]
        return cls(path, text, values)

    def line(self, place: tuple[str | int, ...]) -> int:
        """The line that a key stands on."""
        return line_of("yaml", self.text, place) or 1


def _as_text(value: Any) -> Any:
    """Numbers and booleans as they are spelled: the schema knows what they are to be."""
    if isinstance(value, dict):
        return {str(key): _as_text(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_as_text(item) for item in value]
    return str(value) if isinstance(value, strict_yaml.Plain) else value


def _locate(problem: Any, file: File | None, changes: dict[str, Any], settings: dict[str, str]) -> str:
    """A problem with the line it stands on, if it comes from the file and not from the command line."""
    place = problem["loc"]
    from_command = place[:1] and (place[0] in changes or ".".join(map(str, place)) in settings)
    line = f":{file.line(place)}" if file and place else ""  # what is wrong with all of it stands nowhere
    return (f"{file.path}{line}: " if file and not from_command else "") + spell_out(problem)


def spell_out(problem: Any) -> str:
    """A problem that pydantic found, in one line."""
    names = [str(part) for part in problem["loc"]]
    place = ".".join(names)
    if problem["type"] == "extra_forbidden":
        parts: dict[str, type[BaseModel]] = {"training": Training, "data": OwnData}
        known = parts.get(names[0], Experiment).model_fields
        return f"{place}: there is no such setting{nearest(names[-1], known)}"
    message = str(problem["msg"]).removeprefix("Value error, ")
    if problem["type"] == "missing":
        return f"{place}: is missing"
    return message if problem["type"] == "value_error" else f"{place}: {message}, not {reprlib.repr(problem['input'])}"


def _training_settings(settings: dict[str, str]) -> dict[str, Any]:
    changed: dict[str, Any] = {}
    known = [f"training.{name}" for name in Training.model_fields]
    for key, value in settings.items():
        if key not in known:
            raise LecoError(f"--set {key}: there is no such setting{nearest(key, known)}")
        changed[key.removeprefix("training.")] = value
    return changed
