"""Settings of stored stages: those that all stages use, those that only some do, and those that are unusual."""

from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from leco.errors import LecoError
from leco.methods.method import Method
from leco.settings import PARTS, STRATEGIES, Settings

# One is chosen: they set no stages apart.
_RATES = ("optimiser.learning_rate", "optimiser.finetune_learning_rate", "optimiser.weight_decay")
# Ways to compute the same up to rounding.
_WAYS = ("network.recompute", "network.shard", "network.compile")
_BUDGETS = {
    "paper": "the paper's",
    "small": "small: fewer steps or a smaller network than the paper's",
    "features": "features: a hidden layer and heads on stored features of a pretrained backbone, which the paper lacks",
    "other": "neither the paper's nor small: see settings",
    "demo": "a demonstration; the paper has no such benchmark",
    "": "own data",
}
# Settings that a reader expects at their defaults, whatever the benchmark.
_EXPECTED = (
    *("network.weights", "network.embed", "network.frozen_layers", "network.lora", "views.crop", "views.resize"),
    *("pseudo_labels", "history", "transfer", "finish"),
)


def flatten(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Settings in parts as one table, by dotted name.

    >>> flatten({"batches": {"steps": 5, "size": 8}})
    {'batches.steps': 5, 'batches.size': 8}
    """
    return {f"{part}.{name}": value for part, values in settings.items() for name, value in values.items()}


def _ignored(method: Method, strategy: str) -> set[str]:
    return {f"{part}.{name}" for part, kind in PARTS.items() for name in kind().ignored(method, strategy)}


_OPTIONAL = sorted(set().union(*(_ignored(Method(), strategy) for strategy in STRATEGIES)) - set(_WAYS))


def common_settings(settings: Mapping[str, Any]) -> dict[str, Any]:
    """The settings that every stage uses, except for learning rates, weight decay and ways to compute."""
    return {name: value for name, value in settings.items() if name not in (*_OPTIONAL, *_RATES, *_WAYS)}


def optional_settings(settings: Mapping[str, Any], method: str, strategy: str) -> dict[str, Any]:
    """The settings that only some methods and strategies use, of those that this one does."""
    ignored: set[str] = set()
    with suppress(LecoError):  # a term that is not registered here may use all settings
        ignored = _ignored(Method.parse(method), strategy)
    return {name: settings[name] for name in _OPTIONAL if name in settings and name not in ignored}


def unusual_settings(settings: Mapping[str, Any]) -> set[str]:
    """Names of the settings, of those that a reader expects at their defaults, that differ from them."""
    usual = flatten(Settings().model_dump(mode="json"))
    expected = {name: value for name, value in usual.items() if name.startswith(_EXPECTED)} | {"head_start": False}
    return {name for name, value in expected.items() if settings.get(name, value) != value}


def describe_budget(budget: str) -> str:
    """The budget of a stage in words."""
    return _BUDGETS.get(budget, budget)
