"""The weights of a bundle: read as numbers only, and only if they are those of the network that is described."""

from contextlib import suppress
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file

from leco.deployment.description import Description
from leco.errors import LecoError, first_line
from leco.models import Network, build_backbone, build_segmenter
from leco.ontology.ontology import Ontology
from leco.training.handover import AnyNetwork


def build(description: Description, ontology: Ontology) -> AnyNetwork:
    """A network as it is described, with weights of its own."""
    heads = [ontology[name] for name in description.heads]
    if description.task == "segmentation":
        return build_segmenter(description.model, heads)
    return Network(build_backbone(description.model, description.shape), heads)


def load_network(path: Path, description: Description, ontology: Ontology) -> AnyNetwork:
    """The network of a bundle, ready to predict.

    What the file holds is compared with what the network needs before either takes any memory.
    """
    stored = _stored(path)
    shapes = _needed(description, ontology)
    if shapes is not None:
        _compare(path, stored, shapes, description.model)
    network = build(description, ontology)
    _compare(path, stored, _shapes(network), description.model)
    try:
        network.load_state_dict(load_file(path))
    except (SafetensorError, RuntimeError, OSError) as error:
        raise LecoError(f"{path}: cannot be read: {first_line(error)}") from None
    for name, tensor in network.state_dict().items():
        if not tensor.isfinite().all():
            raise LecoError(f"{path}: {name} holds numbers that are none (NaN or infinity)")
    return network.eval()


def _stored(path: Path) -> dict[str, tuple[int, ...]]:
    """Names and shapes of what is in a file; a file that is cut short is refused."""
    try:
        with path.open("rb"):  # safetensors calls everything that it cannot open missing
            pass
    except OSError as error:
        raise LecoError(f"{path}: cannot be read: {error.strerror}") from None
    try:
        with safe_open(path, framework="pt") as file:
            return {name: tuple(file.get_slice(name).get_shape()) for name in file.keys()}  # noqa: SIM118
    except (SafetensorError, OSError, ValueError) as error:
        raise LecoError(f"{path}: holds no weights (safetensors), or not all of them: {error}") from None


def _needed(description: Description, ontology: Ontology) -> dict[str, tuple[int, ...]] | None:
    """The shapes of a network that is not made: it could be larger than memory. None where only making it tells."""
    with suppress(RuntimeError, LecoError), torch.device("meta"):  # a few of timm's models look at their numbers
        return _shapes(build(description, ontology))
    return None


def _shapes(network: AnyNetwork) -> dict[str, tuple[int, ...]]:
    return {name: tuple(tensor.shape) for name, tensor in network.state_dict().items()}


def _compare(path: Path, stored: dict[str, tuple[int, ...]], needed: dict[str, tuple[int, ...]], model: str) -> None:
    for name in [*needed, *stored]:
        if stored.get(name) != needed.get(name):
            have, need = (str(shapes.get(name, "nothing")) for shapes in (stored, needed))
            raise LecoError(f"{path}: does not fit {model}: {name[:100]} is {have}, but the network has {need}")
