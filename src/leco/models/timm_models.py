"""Models of timm, by name, tag or repository on the Hugging Face hub: configuration, size, files in the hub's cache."""

import inspect
import json
import math
import os
import re
from collections.abc import Iterable
from dataclasses import dataclass, fields
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from leco.errors import LecoError, first_line, nearest

if TYPE_CHECKING:
    from timm.models import PretrainedCfg
    from torch import nn

HUB = "hf-hub:"
_BYTES = 4  # of a parameter
_COPIES = 4  # of the parameters in training: with gradients, momentum and average


@dataclass(frozen=True)
class InputConfig:
    """Inputs that the published weights of a backbone were trained on."""

    side: int
    mean: tuple[float, ...]  # of each channel, in [0, 1]
    std: tuple[float, ...]
    crop_share: float  # of the scaled image's side, kept by the centre crop
    interpolation: str


def is_timm(backbone: str) -> bool:
    """Whether a name is that of a timm model, possibly with a tag, or of one on the Hugging Face hub."""
    import timm

    return backbone.startswith(HUB) or ("/" not in backbone and bool(timm.is_model(backbone)))


def has_weights(backbone: str) -> bool:
    """Whether weights of a backbone were published, on this machine or for download."""
    return is_timm(backbone) and (backbone.startswith(HUB) or bool(pretrained_config(backbone).has_weights))


def input_config(backbone: str, *, fetch: bool = False) -> InputConfig:
    """Inputs that a backbone's published weights expect; `fetch` allows to ask the hub about a model of its own."""
    if not is_timm(backbone):
        remedy = "choose a timm model, such as resnet50, or set training.network.weights to random"
        raise LecoError(f"{backbone} has no pretrained weights; {remedy}")
    config = pretrained_config(backbone, fetch=fetch)
    try:
        side, mean, std = int(config.input_size[-1]), tuple(map(float, config.mean)), tuple(map(float, config.std))
        if side < 1 or not all(map(math.isfinite, mean + std)) or min(std) <= 0 or len(mean) != len(std):
            raise ValueError("out of range")
    except (TypeError, ValueError, LookupError, ArithmeticError):
        raise LecoError(
            f"{backbone}: its configuration holds no valid `input_size`, `mean` and `std`; choose another backbone"
        ) from None
    return InputConfig(side, mean, std, config.crop_pct, config.interpolation)


def pretrained_config(backbone: str, *, fetch: bool = False) -> "PretrainedCfg":
    """Configuration, as timm has it, of a backbone's published weights."""
    import timm

    name, options = timm_options(backbone, fetch=fetch)
    try:
        found = options.get("pretrained_cfg") or timm.get_pretrained_cfg(name)
    except RuntimeError:  # an unknown tag
        known = timm.list_pretrained(f"{name.partition('.')[0]}.*")
        raise LecoError(f"{name!r} is not a backbone{nearest(name, known)}") from None
    return found or timm.models.PretrainedCfg()


def timm_options(backbone: str, *, fetch: bool = False) -> tuple[str, dict[str, Any]]:
    """Name and options that timm builds a backbone from; those of a model on the hub are in its `config.json`."""
    import timm
    from timm.models import PretrainedCfg

    if not backbone.startswith(HUB):
        return backbone, {}
    path = hub_file(backbone.removeprefix(HUB), "config.json", fetch=fetch)
    if path is None:
        raise LecoError(f"{backbone}: is not on this machine; set training.network.weights to download")
    try:
        content = json.loads(path.read_text())
        config = content.get("pretrained_cfg", content)
        known = {field.name for field in fields(PretrainedCfg)} - {"url", "file", "source", "state_dict"}
        cleaned = PretrainedCfg(**{key: value for key, value in config.items() if key in known})
        # Arguments of the architecture only: those of timm's factory would load other files, or fetch them.
        factory = inspect.signature(timm.create_model).parameters
        options = {key: value for key, value in content.get("model_args", {}).items() if key not in factory}
        name = str(content["architecture"])
        if not timm.is_model(name):
            raise ValueError(f"timm has no {name}")
        return name, {**options, "pretrained_cfg": cleaned}
    except (OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError):
        raise LecoError(f"{backbone}: is not a timm model: {path} describes none") from None


def empty_model(backbone: str, **options: Any) -> "nn.Module":
    """A timm model without memory for its weights, on torch's meta device, to look at names and shapes."""
    return _empty_model(backbone, tuple(options.items()))


def first_convolutions(backbone: str) -> tuple[str, ...]:
    """Names of the layers that take the channels of images."""
    config: Any = empty_model(backbone).pretrained_cfg
    return layer_names(config.get("first_conv"))


def layer_names(given: str | Iterable[str] | None) -> tuple[str, ...]:
    """Names of layers in a configuration of timm: one, several or none."""
    return (given,) if isinstance(given, str) else tuple(given or ())


def parameter_count(backbone: str) -> int:
    """Number of a timm model's parameters, without a classifier."""
    return sum(parameter.numel() for parameter in empty_model(backbone, num_classes=0).parameters())


def check_memory(backbone: str, available: int | None = None, *, parameters: int | None = None) -> None:
    """Refuse a network that cannot be trained in the `available` bytes, by default those of this machine.

    The number of its `parameters` is by default that of the timm model with this name.
    """
    available = available_memory() if available is None else available
    needed = _COPIES * _BYTES * (parameter_count(backbone) if parameters is None else parameters)
    if available is not None and needed > available:
        raise LecoError(
            f"{backbone} needs {needed / 1e9:.1f} GB for weights, gradients and averages, but this machine has "
            f"{available / 1e9:.1f} GB; choose a smaller backbone"
        )


def available_memory(container: Path = Path("/sys/fs/cgroup")) -> int | None:
    """Bytes of memory that programs can still use, on the machine and in a container, where the system tells."""
    known = [left for left in (_free_on_machine(), _left_in_container(container)) if left is not None]
    return min(known, default=None)


def _free_on_machine() -> int | None:
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:"))
    except (OSError, StopIteration, ValueError):
        pass
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, AttributeError):  # no such system call
        return None


def _left_in_container(folder: Path) -> int | None:
    """Bytes up to the limit of a control group; cached files, which the system drops when it must, do not count."""
    try:
        limit, used = (int((folder / name).read_text()) for name in ("memory.max", "memory.current"))
        cached = re.search(r"^inactive_file (\d+)$", (folder / "memory.stat").read_text(), re.MULTILINE)
    except (OSError, ValueError):  # no control group, or no limit ("max")
        return None
    return max(0, limit - used + (int(cached[1]) if cached else 0))


def hub_cache() -> Path:
    """Folder in which the Hugging Face hub, and so timm, caches files."""
    from huggingface_hub import constants

    return Path(constants.HF_HUB_CACHE)


def hub_file(repository: str, name: str, *, fetch: bool = False) -> Path | None:
    """Return a file of a repository from the cache; from the hub only if `fetch`."""
    from huggingface_hub import hf_hub_download, try_to_load_from_cache
    from huggingface_hub.errors import EntryNotFoundError, HFValidationError, LocalEntryNotFoundError

    owner, _, revision = repository.partition("@")
    more: dict[str, Any] = {"revision": revision or None, "cache_dir": hub_cache()}
    try:
        found = try_to_load_from_cache(owner, name, **more)
        if not isinstance(found, str) and fetch:
            found = hf_hub_download(owner, name, **more)
    except HFValidationError:
        raise LecoError(f"{HUB}{repository}: is not a repository of the Hugging Face hub; use OWNER/NAME") from None
    except Exception as error:  # whatever the hub, the network or the file system raises
        if isinstance(error, EntryNotFoundError) and not isinstance(error, LocalEntryNotFoundError):
            return None  # the repository has no such file
        raise LecoError(f"{repository} cannot be downloaded ({first_line(error)}); check the connection") from None
    return Path(found) if isinstance(found, str) else None


@lru_cache(maxsize=16)
def _empty_model(backbone: str, given: tuple[tuple[str, Any], ...]) -> "nn.Module":
    import timm
    import torch

    name, options = timm_options(backbone)
    try:
        with torch.device("meta"):
            model: nn.Module = timm.create_model(name, **{**options, **dict(given)})
    except Exception as error:  # whatever timm's code for this model raises
        raise LecoError(f"{backbone} cannot be built: {first_line(error)}") from None
    return model
