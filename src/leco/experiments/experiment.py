"""An experiment as validated data: an `experiment.yaml` or a command line, with all defaults."""

import re
import reprlib
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from leco import strict_yaml
from leco.data.benchmarks.benchmark import recipe
from leco.data.periods import Annotation
from leco.dataset import Dataset, benchmark
from leco.errors import LecoError, TextError, closest, nearest
from leco.io import as_path, read_text
from leco.methods.method import Method
from leco.modalities import MODALITIES
from leco.model.description import read_description
from leco.models.weights import default_weights
from leco.nested import merge, nest
from leco.ontology.files import line_of
from leco.registry import Registry
from leco.renamed import new_name
from leco.settings import DEFAULT_BUDGET, NAMES, PARTS, WEIGHT_SUFFIXES, Budget, Settings, Strategy
from leco.training.finish import HEADS
from leco.training.optimisers import OPTIMISERS, SCHEDULES

_LARGEST_FILE = 1_000_000
_PATHS = ("manifest", "ontology", "root")  # of your own data
REGISTERED: dict[str, Registry[Any]] = {
    "optimiser.name": OPTIMISERS,
    "optimiser.schedule": SCHEDULES,
    "finish.head": HEADS,
}
DEFAULT_METHOD = "lpl+st-hard/cond"  # for benchmarks, and for networks with random weights
AUTO = "auto"  # the default for your own data: several are tried, and validation chooses
AUTO_METHOD = "lpl"  # that it tries on pretrained networks; pseudo-labels gain nothing there (docs/lab-book/log.md)


def seconds_of(text: str) -> float:
    """Parse a duration.

    >>> seconds_of("30m"), seconds_of("1.5h"), seconds_of("90s")
    (1800.0, 5400.0, 90.0)
    """
    found = re.fullmatch(r"([0-9]{1,6}(?:\.[0-9]{1,3})?)([smh])", text.strip())
    if not found or not float(found[1]):
        raise ValueError(f"time: must be a duration such as 90s, 30m or 2h, not {text!r}")
    return float(found[1]) * {"s": 1, "m": 60, "h": 3_600}[found[2]]


def default_method(is_benchmark: bool) -> str:
    """Return the method that is used if none is named."""
    return DEFAULT_METHOD if is_benchmark else AUTO


class OwnData(BaseModel):
    """A manifest, its ontology and the root of its paths; all relative to the experiment file."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    manifest: Path
    ontology: Path
    root: Path | None = None  # by default the manifest's folder
    image_size: int | None = Field(None, ge=8, le=2_048)  # by default, the modality's
    modality: str | None = None  # a registered one; by default it follows from the manifest's columns

    @field_validator("modality")
    @classmethod
    def _registered(cls, modality: str | None) -> str | None:
        if modality is not None and modality not in MODALITIES:
            raise ValueError(f"data.modality: {modality!r} is not registered{nearest(modality, MODALITIES)}")
        return modality

    def dataset(self) -> Dataset:
        """Return the dataset, which is read on demand."""
        more = {"root": self.root, "image_size": self.image_size, "modality": self.modality}
        return Dataset.from_manifest(self.manifest, self.ontology, **more)  # type: ignore[arg-type]


class Procedure(BaseModel):
    """The part of an experiment that does not depend on the data: method, strategies, seed and settings."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    method: str = DEFAULT_METHOD
    strategy: Strategy = "finetune"
    head_start: bool = False
    annotation: Annotation = "label-new"
    seed: int = Field(0, ge=0, lt=2**31)
    time: str | None = None  # for `auto`: a duration that the number of steps is chosen for
    training: Settings = Settings()

    @field_validator("method")
    @classmethod
    def _known_method(cls, method: str) -> str:
        return AUTO if method == AUTO else str(Method.parse(method))

    @field_validator("time")
    @classmethod
    def _duration(cls, time: str | None) -> str | None:
        if time is not None:
            seconds_of(time)
        return time

    @model_validator(mode="after")
    def _time_for_auto(self) -> Self:
        if self.time is not None and self.method != AUTO:
            raise ValueError(f"time: is for the method auto; set training.batches.steps for {self.method}")
        if self.method == AUTO and self.strategy != "finetune":
            raise ValueError(f"strategy: auto chooses it itself; name a method to train with {self.strategy}")
        return self

    @field_validator("training")
    @classmethod
    def _registered(cls, training: Settings) -> Settings:
        for place, registry in REGISTERED.items():
            part, name = place.split(".")
            value = getattr(getattr(training, part), name)
            if value not in registry:
                raise ValueError(f"{place}: {value!r} is not registered{nearest(value, registry)}")
        return training


class Experiment(Procedure):
    """One cell of a table: data, and how models are trained on them; `experiment` makes it with the data's defaults."""

    training: Settings
    benchmark: str | None = None
    data: OwnData | None = None
    size: int | None = Field(None, ge=1)
    transition: Literal["tree", "soft"] = "tree"  # for Mapillary, whose transition is inferred from masks
    start: Path | None = None  # a bundle; the first period newer than its version starts from it
    budget: Budget = DEFAULT_BUDGET

    @model_validator(mode="after")
    def _one_kind_of_data(self) -> "Experiment":
        if (self.benchmark is None) == (self.data is None):
            raise ValueError("set either `benchmark`, or `data` with `manifest` and `ontology`")
        if self.data is not None and self.size is not None:
            raise ValueError("`size` is for benchmarks; your own data are used as they are")
        if self.data is not None and "transition" in self.model_fields_set:
            raise ValueError("`transition` is for benchmarks; your own data use that of their ontology")
        if self.data is not None and "budget" in self.model_fields_set:
            raise ValueError("`budget` is for benchmarks; for your own data, set `training`, or use its defaults")
        if self.data is not None and self.annotation != "label-new":
            raise ValueError(f"`annotation: {self.annotation}` is for benchmarks; your own data keep their labels")
        if self.start is not None and self.strategy in ("scratch", "random"):
            raise ValueError(f"`start` names a model to start from, but `strategy: {self.strategy}` starts from none")
        return self

    def dataset(self, root: Path) -> Dataset:
        """Return the dataset, shared between experiments on the same data; benchmarks are in the folder `root`."""
        if self.data is not None:
            return _own(self.data)
        assert self.benchmark is not None
        return _benchmark(self.benchmark, root, self.size, self.transition)


@lru_cache(maxsize=8)
def _benchmark(name: str, root: Path, size: int | None, transition: Literal["tree", "soft"]) -> Dataset:
    return benchmark(name, root, size=size, transition=transition)


_OWN: dict[tuple[OwnData, int, int], Dataset] = {}


def _own(data: OwnData) -> Dataset:
    """Return the dataset of a manifest, cached for the cells of a grid until the manifest changes."""
    with suppress(OSError, ValueError):
        key = (data, data.manifest.stat().st_mtime_ns, data.ontology.stat().st_mtime_ns)
        if key not in _OWN:
            _OWN.clear()
            _OWN[key] = data.dataset()
        return _OWN[key]
    return data.dataset()


class ExperimentError(LecoError):
    """All problems with an experiment; the message is the first."""

    def __init__(self, problems: list[str]) -> None:
        self.problems = problems
        super().__init__(problems[0])


def defaults_for(
    data: Dataset, given: Mapping[str, Any], *, budget: str = DEFAULT_BUDGET, start: Path | None = None
) -> dict[str, Any]:
    """Merge given settings with the defaults of the data; used for calls from Python and for files."""
    network = given.get("network")
    network = network if isinstance(network, Mapping) else {}
    backbone, weights = (network.get(name) for name in ("backbone", "weights"))
    base: dict[str, Any] = {}
    if start is not None:
        with suppress(LecoError):  # reported when the bundle is read
            base = {"network": {"backbone": read_description(start).model}}
            backbone = backbone or base["network"]["backbone"]
    named = (None if value is None else str(value) for value in (backbone, weights))
    found = data.defaults(budget, *named)
    if str(network.get("embed", "")).lower() == "true" and data.modality.embeds:
        found = _defaults_for_heads(None if backbone is None else str(backbone))
    if str(network.get("lora", "0")) != "0":  # adapters leave little to learn, so that all layers have them
        base = merge({"network": {"frozen_layers": 0.0}}, base)
    return merge(merge(found, base), given)


def _defaults_for_heads(backbone: str | None) -> dict[str, Any]:
    """Defaults for heads on features: those of feature vectors, and the pretrained weights on this machine."""
    weights = default_weights()
    names = {} if backbone or weights is None else {"backbone": weights.backbone}
    return MODALITIES["features"].defaults(0) | {"network": names | {"weights": "pretrained"}}


def experiment(source: str, changes: Mapping[str, Any], settings: Mapping[str, str]) -> Experiment:
    """Return the experiment of a benchmark or an experiment.yaml, with `changes` to it and `settings` of its training.

    Settings are dotted, with values as text: ``{"training.batches.steps": "500"}``. Everything else has the defaults
    of the data.
    """
    changes = {key: value for key, value in changes.items() if value is not None}
    file = File.read(Path(source)) if source.endswith((".yaml", ".yml", ".json")) else None
    values: dict[str, Any] = dict(file.values) if file else {"benchmark": recipe(source).name}
    values |= changes
    values.setdefault("method", default_method("benchmark" in values))
    given = values.get("training") or {}
    if not isinstance(given, dict):
        raise LecoError(f"{source}: training: must be a table of settings, not {given!r}")
    start = values.get("start")
    given = merge(given, nest(_checked(settings)))
    budget = str(values.get("budget", DEFAULT_BUDGET))
    where = Path(start) if isinstance(start, str | Path) else None
    values["training"] = defaults_for(_data_of(values), given, budget=budget, start=where)
    try:
        return Experiment.model_validate(values)
    except ValidationError as error:
        raise ExperimentError([_locate(problem, file, changes, settings) for problem in error.errors()]) from None


def _data_of(values: Mapping[str, Any]) -> Dataset:
    """Return the dataset of an experiment that is not validated yet; a default one if it is invalid."""
    name, own = values.get("benchmark"), values.get("data")
    if name is not None:
        return _benchmark(recipe(str(name)).name, Path(), None, "tree")
    try:
        data = _own(OwnData.model_validate(own))
        data.modality  # noqa: B018 (reads the columns of the manifest)
    except (ValidationError, LecoError, OSError):  # reported when the data are read
        size = str(own.get("image_size", "")) if isinstance(own, dict) else ""
        side = min(max(int(size), 8), 2_048) if re.fullmatch("[0-9]{1,9}", size) else None
        return Dataset.from_table({"image": []}, "unknown", image_size=side, modality="classification")
    return data


@dataclass(frozen=True)
class File:
    """An experiment file."""

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
            paths = {key: _below(path, f"data.{key}", own[key]) for key in _PATHS if isinstance(own.get(key), str)}
            values["data"] = own | paths
        if isinstance(values.get("start"), str):
            values["start"] = _below(path, "start", values["start"])
        training = values.get("training")
        network = training.get("network") if isinstance(training, dict) else None
        if isinstance(network, dict) and str(network.get("weights")).endswith(WEIGHT_SUFFIXES):
            network["weights"] = str(_below(path, "training.network.weights", network["weights"]))
        return cls(path, text, values)

    def line(self, place: tuple[str | int, ...]) -> int:
        """Line number of a key."""
        return line_of("yaml", self.text, place) or 1


def _below(file: Path, key: str, value: object) -> Path:
    """A path in a file, which is relative to it."""
    return file.parent / as_path(f"{file}: {key}", value)


def _as_text(value: Any) -> Any:
    """Convert numbers and booleans to text, which the schema parses."""
    if isinstance(value, dict):
        return {str(key): _as_text(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_as_text(item) for item in value]
    return str(value) if isinstance(value, strict_yaml.Plain) else value


def _locate(problem: Any, file: File | None, changes: Mapping[str, Any], settings: Mapping[str, str]) -> str:
    """Describe a problem, with file and line unless it comes from the command line."""
    place = problem["loc"]
    dotted = {".".join(map(str, place)), spell_out(problem).partition(":")[0]}  # parts name the setting themselves
    from_command = place[:1] and (place[0] in changes or bool(dotted & settings.keys()))
    line = f":{file.line(place)}" if file and place else ""  # problems with the whole file have no line
    return (f"{file.path}{line}: " if file and not from_command else "") + spell_out(problem)


def spell_out(problem: Any) -> str:
    """Describe a problem that pydantic found, in one line."""
    names = [str(part) for part in problem["loc"]]
    if problem["type"] == "extra_forbidden":
        return f"{'.'.join(names)}: {_unknown(names)}"
    names = [name for name in names if re.fullmatch(r"\w+", name)]  # others are members of a union of types
    place = ".".join(names)
    message = str(problem["msg"]).removeprefix("Value error, ")
    if problem["type"] == "missing":
        return f"{place}: is missing"
    if problem["type"] == "value_error":  # of settings, the message begins with the name of the one that is wrong
        return f"{place}.{message}" if names[:1] == ["training"] else message
    if names[:1] == ["training"] and (moved := new_name(".".join(names[1:]))):
        return f"{place}: is now training.{moved}"  # such as `average`, which is a part by now
    return f"{place}: {message}, not {reprlib.repr(problem['input'])}"


def _unknown(names: list[str]) -> str:
    """Explain an unknown setting: it was renamed, or it never existed."""
    if names[0] == "training" and (moved := new_name(".".join(names[1:]))):
        return f"is now training.{moved}"
    known: Mapping[str, Any] = Experiment.model_fields
    if names[0] == "training":
        known = PARTS if len(names) == 2 else PARTS[names[1]].model_fields
    elif names[0] == "data":
        known = OwnData.model_fields
    return f"is not a setting{nearest(names[-1], known)}"


def _checked(settings: Mapping[str, str]) -> dict[str, str]:
    """Return dotted settings without `training.`; refuse unknown ones."""
    known = [f"training.{name}" for name in NAMES]
    for key in settings:
        if key not in known:
            moved = new_name(key.removeprefix("training."))
            problem = f"is now training.{moved}" if moved else f"is not a setting{_similar(key, known)}"
            raise LecoError(f"--set {key}: {problem}")
    return {key.removeprefix("training."): value for key, value in settings.items()}


def _similar(key: str, known: Sequence[str]) -> str:
    """Return the end of an error message about an unknown setting: one like it or, without its part, of a like name."""
    names = {name.rpartition(".")[2]: name for name in reversed(known)}
    has_part = any(part in key.split(".")[:-1] for part in PARTS)
    close = None if has_part else closest(key.rpartition(".")[2], list(names), 0.6)
    return f"; did you mean {names[close]!r}?" if close else nearest(key, known)
