"""The paper's settings for each benchmark (appendix E), and scaled-down ones for two CPU cores."""

from typing import Any, Literal

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


def defaults(benchmark: str, task: str, budget: Budget, image_size: int = 64) -> dict[str, Any]:
    """What a recipe sets. `small` budgets are stated as such: fewer steps, a smaller network, one learning rate."""
    small = budget == "small"
    if task == "segmentation":
        return _segmentation(benchmark, small)
    if task in ("features", "own features"):
        return _FEATURES | {"steps": 250 if small else 2_000}
    if task == "own masks":  # as CamVid's, with crops of the size that images have here
        side = {"crop": image_size, "base_size": image_size, "window": image_size}
        return _segmentation("camvid", small=True) | side | {"steps": 1_000, "evaluate_every": 200}
    if task == "own images":
        own = {"model": "resnet18", "steps": 1_000, "learning_rate": (0.06,), "evaluate_every": 200}
        return _CIFAR | own | {"norm_momentum": 0.05, "average_norm": True}  # measured: docs/lab-book/log.md
    if benchmark.startswith("inat"):
        shrunk = {"model": "resnet18", "steps": 500, "learning_rate": (0.01,), "evaluate_every": 100}
        return _INAT | shrunk | {"norm_momentum": 0.05} if small else _INAT
    # Chosen on training images that no period holds (docs/lab-book/log.md): many steps of few images, and the model of the last
    # one, since a choice by 250 validation images is mostly chance.
    shrunk = {"model": "wrn-10-1", "steps": 3_200, "batch_size": 32, "evaluate_every": 3_200}
    shrunk |= {"learning_rate": (0.06,), "norm_momentum": 0.05, "average_norm": True}
    if benchmark.startswith("digits"):
        tiny = {"model": "mlp", "steps": 300, "batch_size": 64, "learning_rate": (0.05,), "evaluate_every": 300}
        tiny |= {"norm_momentum": 0.05}
        return _CIFAR | tiny
    return _CIFAR | shrunk if small else _CIFAR


# Appendix C: 1,600 epochs of one period's images, or 800 of two periods', at 16 a step.
_MAPILLARY = {
    **{"model": "hrnet_w48", "pretrained": True, "steps": 250_000, "batch_size": 16, "weight_decay": 5e-4},
    **{"learning_rate": (0.03,), "finetune_learning_rate": (0.003,), "schedule": "poly", "average": 0.0},
    **{"average_warm_up": False, "norm_momentum": 0.1, "evaluate_every": 10_000},
    **{"crop": 720, "base_size": 2_200, "scale": (0.5, 2.1), "window": 720},
    **{"coarse_on_new": False, "mask_contradictions": True},
}


def _segmentation(benchmark: str, small: bool) -> dict[str, Any]:
    if benchmark.startswith("camvid"):  # frames of 240 x 180 pixels, a transition without contradictions
        frames = {"crop": 160, "base_size": 240, "scale": (0.75, 1.5), "window": 240, "mask_contradictions": False}
        if not small:
            return _MAPILLARY | frames | {"steps": 20_000, "evaluate_every": 1_000}
        tiny = {"model": "tiny", "pretrained": False, "steps": 400, "evaluate_every": 100}
        rates = {"learning_rate": (0.05,), "finetune_learning_rate": (0.02,), "average": 0.99, "average_warm_up": True}
        return _MAPILLARY | frames | tiny | rates
    if small:
        shrunk = {"model": "resnet18", "pretrained": False, "steps": 500, "batch_size": 8, "crop": 256, "window": 512}
        return _MAPILLARY | shrunk | {"base_size": 1_024}
    return _MAPILLARY | {"steps": 900_000} if benchmark.endswith("9k") else _MAPILLARY
