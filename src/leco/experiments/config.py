"""What an experiment is, as typed and checked data; and the paper's settings for each benchmark."""

import hashlib
import json
from dataclasses import fields
from typing import Any, Literal, get_args

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from leco.data.benchmarks import recipe
from leco.data.periods import Annotation
from leco.errors import LecoError, nearest
from leco.methods.method import Method
from leco.training.handover import Strategy
from leco.training.loop import Optimisation

Budget = Literal["paper", "small"]


class Training(BaseModel):
    """How long and how a period is trained."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    model: str = "wrn-28-2"
    pretrained: bool = False
    steps: int = Field(160_000, ge=1)
    batch_size: int = Field(64, ge=1)  # of new samples; as many of history (K = M)
    learning_rate: float = Field(0.06, gt=0)
    weight_decay: float = Field(5e-4, ge=0)
    momentum: float = Field(0.9, ge=0, lt=1)
    nesterov: bool = False
    schedule: Literal["cosine", "poly"] = "cosine"
    average: float = Field(0.999, ge=0, lt=1)
    average_warm_up: bool = True
    # BatchNorm's momentum: FixMatch's 0.001 needs thousands of steps before its statistics mean anything.
    norm_momentum: float = Field(0.001, gt=0, le=1)
    head_steps: int = Field(0, ge=0)
    evaluate_every: int = Field(1_000, ge=1)

    def optimisation(self) -> Optimisation:
        """The part that the loop needs."""
        return Optimisation(**{field.name: getattr(self, field.name) for field in fields(Optimisation)})


class Experiment(BaseModel):
    """One cell of a table: a benchmark, a method, two strategies and a seed."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    benchmark: str
    size: int | None = Field(None, ge=1)
    method: str = "lpl+st-hard/cond"
    strategy: Strategy = "finetune"
    head_start: bool = False
    annotation: Annotation = "label-new"
    seed: int = Field(0, ge=0, lt=2**31)
    budget: Budget = "paper"
    training: Training = Training()

    @field_validator("method")
    @classmethod
    def _known_method(cls, method: str) -> str:
        return str(Method.parse(method))


def fingerprint(config: dict[str, Any]) -> str:
    """Sixteen hexadecimal digits that change with anything in a config."""
    return hashlib.sha256(json.dumps(config, sort_keys=True).encode()).hexdigest()[:16]


def experiment(name: str, budget: Budget, changes: dict[str, Any], settings: dict[str, str]) -> Experiment:
    """The experiment of a benchmark under a budget, with `changes` to it and `settings` such as training.steps=500."""
    found = recipe(name)
    if budget not in get_args(Budget):
        raise LecoError(f"{budget!r} is no budget{nearest(budget, get_args(Budget))}")
    values: dict[str, Any] = {"benchmark": found.name, "budget": budget, **changes}
    values["training"] = training_defaults(found.name, found.task, budget) | _training_settings(settings)
    try:
        return Experiment.model_validate(values)
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(str(part) for part in first["loc"])
        raise LecoError(f"{place}: {first['msg']}, not {first['input']!r}") from None


def training_defaults(name: str, task: str, budget: Budget) -> dict[str, Any]:
    """The settings of appendix E, or, with `small`, a scaled-down variant that two CPU cores can run."""
    if task == "segmentation":
        raise LecoError(f"{name}: segmentation is not trained yet")
    if task == "features":
        steps = {"paper": 2_000, "small": 600}[budget]
        return {"model": "linear", "steps": steps, "learning_rate": 0.5, "weight_decay": 1e-3, "evaluate_every": 50}
    if name.startswith("inat"):
        paper = {
            **{"model": "resnet50", "steps": 250_000, "batch_size": 30, "learning_rate": 0.01, "weight_decay": 1e-3},
            "norm_momentum": 0.1,  # timm's
        }
        smaller = {"model": "resnet18", "steps": 500, "norm_momentum": 0.05, "evaluate_every": 100}
        return paper if budget == "paper" else paper | smaller
    small = {"model": "wrn-16-1", "steps": 800, "norm_momentum": 0.05, "evaluate_every": 200}
    if name.startswith("digits"):
        return small | {"model": "wrn-10-1", "steps": 300, "batch_size": 32, "evaluate_every": 100}
    return {} if budget == "paper" else small


def _training_settings(settings: dict[str, str]) -> dict[str, Any]:
    changed: dict[str, Any] = {}
    known = [f"training.{name}" for name in Training.model_fields]
    for key, value in settings.items():
        if key not in known:
            raise LecoError(f"--set {key}: there is no such setting{nearest(key, known)}")
        changed[key.removeprefix("training.")] = value
    return changed
