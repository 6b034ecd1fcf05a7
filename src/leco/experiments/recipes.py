"""The paper's settings for each benchmark (appendix E), and scaled-down ones for two CPU cores."""

from typing import Any, Literal

from leco.errors import LecoError

Budget = Literal["paper", "small"]

_CIFAR = {
    **{"model": "wrn-28-2", "steps": 160_000, "batch_size": 128, "weight_decay": 5e-4, "evaluate_every": 1_000},
    "learning_rate": (0.6, 0.06, 0.006, 0.0006),
}
_INAT = {
    **{"model": "resnet50", "steps": 250_000, "batch_size": 60, "weight_decay": 1e-3, "evaluate_every": 1_000},
    "learning_rate": (0.01, 0.001, 0.0001),
    "norm_momentum": 0.1,  # timm's
}
# Features are not in the paper: a linear head needs few steps.
_FEATURES = {"model": "linear", "learning_rate": (0.5,), "weight_decay": 1e-3, "evaluate_every": 50}


def defaults(benchmark: str, task: str, budget: Budget) -> dict[str, Any]:
    """What a recipe sets. `small` budgets are stated as such: fewer steps, a smaller network, one learning rate."""
    small = budget == "small"
    if task == "segmentation":
        raise LecoError(f"{benchmark}: segmentation is not trained yet")
    if task == "features":
        return _FEATURES | {"steps": 600 if small else 2_000}
    if task == "own":
        own = {
            "model": "resnet18",
            "steps": 1_000,
            "learning_rate": (0.06,),
            "evaluate_every": 200,
            "norm_momentum": 0.05,
        }
        return _CIFAR | own
    if benchmark.startswith("inat"):
        shrunk = {"model": "resnet18", "steps": 500, "learning_rate": (0.01,), "evaluate_every": 100}
        return _INAT | shrunk | {"norm_momentum": 0.05} if small else _INAT
    shrunk = {"model": "wrn-16-1", "steps": 800, "learning_rate": (0.06,), "evaluate_every": 200, "norm_momentum": 0.05}
    if benchmark.startswith("digits"):
        tiny = {"model": "mlp", "steps": 300, "batch_size": 64, "learning_rate": (0.05,), "evaluate_every": 300}
        return _CIFAR | tiny
    return _CIFAR | shrunk if small else _CIFAR
