"""Networks with a head per version, and loading their weights from files."""

import copy
import hashlib
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file
from torch import Tensor, nn

from leco.errors import LecoError, first_line
from leco.models.layers import width
from leco.models.recompute import blocks
from leco.ontology.version import Version

MANY = 4_096  # classes
Shapes = dict[str, str]  # shapes of tensors and, unless they are floating-point numbers, their type
_FLOATING = ("F16", "BF16", "F32", "F64")  # as safetensors names them
_OTHER = {torch.int64: "I64", torch.int32: "I32", torch.int16: "I16", torch.uint8: "U8", torch.bool: "BOOL"}


class AnyNetwork(nn.Module):
    """A backbone and one head per version; the last version is the one the network is for.

    `forward` returns logits (n, c, ...) by version.
    """

    backbone: nn.Module
    heads: nn.ModuleList
    versions: tuple[str, ...]

    @property
    def blocks(self) -> list[nn.Module]:
        """Blocks of layers of the backbone, which can be computed again, or divided among processes, one by one."""
        return blocks(self.backbone)

    @property
    def joins_parts(self) -> bool:
        """Whether `forward` takes a tuple of inputs, whose features it computes apart and whose logits together."""
        return False


class Network(AnyNetwork):
    """The paper's f and g: features, and a linear classifier for each version that has a head."""

    def __init__(self, backbone: nn.Module, versions: Sequence[Version]) -> None:
        super().__init__()
        self.backbone = backbone
        self.versions = tuple(version.name for version in versions)
        features = width(backbone)
        # A list, since version names may contain dots, which ModuleDict refuses.
        self.heads = nn.ModuleList(nn.Linear(features, len(version)) for version in versions)
        for head in self.heads:
            assert isinstance(head, nn.Linear)
            nn.init.xavier_normal_(head.weight)
            nn.init.zeros_(head.bias)

    @property
    def joins_parts(self) -> bool:
        """Whether the heads are so large that new samples and history should go through them together.

        The gradient of a head's weights, as large as themselves, is then computed once.
        """
        return sum(head.out_features for head in self.heads if isinstance(head, nn.Linear)) >= MANY

    def forward(self, inputs: Tensor | tuple[Tensor, ...]) -> dict[str, Tensor]:
        """Logits (n, c) for each version that has a head; BatchNorm sees each of several inputs by itself."""
        parts = inputs if isinstance(inputs, tuple) else (inputs,)
        features = torch.cat([self.backbone(part) for part in parts]) if len(parts) > 1 else self.backbone(parts[0])
        return {version: head(features) for version, head in zip(self.versions, self.heads, strict=True)}

    def on(self, backbone: nn.Module) -> "Network":
        """Return a network with another backbone that shares these heads."""
        other = copy.copy(self)
        other._modules = {**self._modules, "backbone": backbone}
        return other


def digest_tensors(tensors: Mapping[str, Tensor]) -> str:
    """Digest of the names, types, shapes and values of tensors, as sixteen hexadecimal digits."""
    found = hashlib.blake2b(digest_size=8)
    for name, tensor in tensors.items():
        found.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
        found.update(tensor.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().data)
    return found.hexdigest()


def load_network(path: Path, build: Callable[[], AnyNetwork], name: str, remedy: str = "") -> AnyNetwork:
    """Build a network and load its weights, ready to predict.

    The tensors in the file are compared with those of the network before either is allocated.
    """
    stored = _stored_shapes(path, remedy)
    shapes: Shapes | None = None
    with suppress(RuntimeError, LecoError), torch.device("meta"):  # some timm models need real values to be built
        shapes = _shapes(build())
    if shapes is not None:
        _compare(path, stored, shapes, name, remedy)
    network = build()
    _compare(path, stored, _shapes(network), name, remedy)
    try:
        network.load_state_dict(load_file(path))
    except (SafetensorError, RuntimeError, OSError) as error:
        raise LecoError(f"{path}: cannot be read: {first_line(error)}{remedy}") from None
    for key, tensor in network.state_dict().items():
        if not tensor.isfinite().all():
            raise LecoError(f"{path}: {key} holds NaN or infinity{remedy}")
    return network.eval()


def _stored_shapes(path: Path, remedy: str) -> Shapes:
    """Return the names and shapes of the tensors in a file; refuse a truncated file."""
    try:
        with path.open("rb"):  # safetensors reports every file that it cannot open as missing
            pass
    except OSError as error:
        raise LecoError(f"{path}: cannot be read: {error.strerror}{remedy}") from None
    try:
        with safe_open(path, framework="pt") as file:
            slices = {name: file.get_slice(name) for name in file.keys()}  # noqa: SIM118
            return {name: _shape(found.get_shape(), found.get_dtype()) for name, found in slices.items()}
    except (SafetensorError, OSError, ValueError) as error:
        raise LecoError(f"{path}: is not a complete safetensors file: {error}{remedy}") from None


def _shapes(network: AnyNetwork) -> Shapes:
    return {
        name: _shape(tensor.shape, "F32" if tensor.is_floating_point() else _OTHER.get(tensor.dtype, str(tensor.dtype)))
        for name, tensor in network.state_dict().items()
    }


def _shape(sizes: Sequence[int], kind: str) -> str:
    return f"{tuple(sizes)}" if kind in _FLOATING else f"{tuple(sizes)} of type {kind}"


def _compare(path: Path, stored: Shapes, needed: Shapes, model: str, remedy: str) -> None:
    for name in [*needed, *stored]:
        if stored.get(name) != needed.get(name):
            have, need = (shapes.get(name, "nothing") for shapes in (stored, needed))
            raise LecoError(f"{path}: does not fit {model}: {name[:100]} is {have}, but the network has {need}{remedy}")
