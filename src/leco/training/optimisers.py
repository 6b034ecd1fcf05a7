"""Optimisers and learning-rate schedules by name (appendices C and E of the paper)."""

import json
import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from leco.errors import LecoError
from leco.models.layers import layer_numbers
from leco.models.network import AnyNetwork
from leco.registry import Registry
from leco.settings import OptimiserSettings
from leco.training.sharding import divided

Schedule = Callable[[int, int], float]  # step k of K steps -> factor of the initial learning rate
Parameters = Iterable[nn.Parameter] | list[dict[str, Any]]  # or groups of them, as torch's optimisers take
OptimiserBuilder = Callable[[Parameters, OptimiserSettings], torch.optim.Optimizer]
SCHEDULES: Registry[Schedule] = Registry("schedule")
OPTIMISERS: Registry[OptimiserBuilder] = Registry("optimiser")
_GROUP = "group "  # of parameters, in the names of what an optimiser keeps; parameters have no spaces in their names


@SCHEDULES.register("cosine")
def cosine(step: int, steps: int) -> float:
    """cos(7πk / 16K): FixMatch's schedule, which ends at about a fifth of the initial rate.

    >>> round(cosine(0, 100), 3), round(cosine(100, 100), 3)
    (1.0, 0.195)
    """
    return math.cos(7 * math.pi * step / (16 * steps))


@SCHEDULES.register("poly")
def poly(step: int, steps: int) -> float:
    """(1 - k/K)^0.9: HRNet's schedule for segmentation.

    >>> poly(0, 100), poly(100, 100)
    (1.0, 0.0)
    """
    return float((1 - step / steps) ** 0.9)


@SCHEDULES.register("half-cosine")
def half_cosine(step: int, steps: int) -> float:
    """(1 + cos(πk / K)) / 2: ends at zero (Loshchilov and Hutter 2017).

    >>> half_cosine(0, 100), half_cosine(100, 100)
    (1.0, 0.0)
    """
    return (1 + math.cos(math.pi * step / steps)) / 2


def rate_factor(settings: OptimiserSettings, step: int, steps: int) -> float:
    """Factor of the initial learning rate at a step: the schedule, after a linear warm-up.

    >>> settings = OptimiserSettings(schedule="half-cosine", warm_up=0.1)
    >>> [round(rate_factor(settings, step, 100), 2) for step in (0, 4, 9, 50)]
    [0.1, 0.5, 0.98, 0.5]
    """
    warming = settings.warm_up * steps
    return SCHEDULES[settings.schedule](step, steps) * (min(1.0, (step + 1) / warming) if warming else 1.0)


def parameter_groups(network: AnyNetwork, settings: OptimiserSettings) -> Parameters:
    """Return the trainable parameters, in groups if their learning rates differ.

    Groups have a `factor` of the learning rate: `head_factor` for the heads, and `layer_decay` to the power of the
    number of layers above for each layer of the backbone. In groups, one-dimensional parameters (biases, and weights of
    normalisation) have no weight decay.
    """
    if settings.head_factor == settings.layer_decay == 1:
        return [parameter for parameter in network.parameters() if parameter.requires_grad]
    (decay,) = settings.weight_decays
    numbers = layer_numbers(network.backbone)
    top = max(numbers.values(), default=0)
    groups: dict[tuple[float, bool], dict[str, Any]] = {}
    for name, parameter in network.named_parameters():
        if not parameter.requires_grad:
            continue
        layer = numbers.get(name.removeprefix("backbone."))
        factor = settings.head_factor if layer is None else settings.layer_decay ** (top - layer)
        key = (factor, parameter.ndim > 1)
        group = {"params": [], "factor": factor, "weight_decay": decay if parameter.ndim > 1 else 0.0}
        groups.setdefault(key, group)["params"].append(parameter)
    return list(groups.values())


def kept(network: nn.Module, optimiser: torch.optim.Optimizer) -> dict[str, Any]:
    """Everything that an optimiser keeps between two steps: of each parameter, and of each group of them."""
    of_parameters = {
        f"{name}/{key}": value
        for name, parameter in network.named_parameters()
        for key, value in optimiser.state.get(parameter, {}).items()
    }
    of_groups = {
        f"{_GROUP}{number}/{key}": value
        for number, group in enumerate(optimiser.param_groups)
        for key, value in group.items()
        if key != "params"
    }
    return of_parameters | of_groups


def numbers_kept(kept: Mapping[str, Any], optimiser: str) -> dict[str, Any]:
    """State of an optimiser besides tensors: numbers, flags, text, as far as JSON can hold it."""
    found = {name: value for name, value in kept.items() if not isinstance(value, Tensor)}
    try:
        json.dumps(found)
    except (TypeError, ValueError) as error:
        raise LecoError(f"the optimiser {optimiser!r} cannot be saved: {error}; keep tensors and numbers") from None
    return found


def restore(network: nn.Module, optimiser: torch.optim.Optimizer, kept: Mapping[str, Any]) -> None:
    """Restore what an optimiser kept; as in torch, a step count stays on the CPU."""
    parameters = dict(network.named_parameters())
    for where, value in kept.items():
        name, _, key = where.rpartition("/")
        if name.startswith(_GROUP):
            group = optimiser.param_groups[int(name.removeprefix(_GROUP))]
            group[key] = tuple(value) if isinstance(group.get(key), tuple) else value  # JSON has lists only
            continue
        if isinstance(value, Tensor) and key != "step":
            value = divided(value.to(parameters[name].device), parameters[name])
        optimiser.state[parameters[name]][key] = value


@OPTIMISERS.register("sgd")
def sgd(parameters: Parameters, settings: OptimiserSettings) -> torch.optim.Optimizer:
    """Stochastic gradient descent with momentum: the paper's."""
    (rate,), (decay,) = settings.learning_rate, settings.weight_decays
    return torch.optim.SGD(
        parameters, lr=rate, momentum=settings.momentum, weight_decay=decay, nesterov=settings.nesterov
    )


@OPTIMISERS.register("adamw")
def adamw(parameters: Parameters, settings: OptimiserSettings) -> torch.optim.Optimizer:
    """Adam with decoupled weight decay (Loshchilov and Hutter 2019)."""
    (rate,), (decay,) = settings.learning_rate, settings.weight_decays
    return torch.optim.AdamW(parameters, lr=rate, betas=(settings.momentum, 0.999), weight_decay=decay)
