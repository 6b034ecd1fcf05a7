"""The networks of stages: made, handed over, loaded."""

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import nn

from leco.dataset import Material
from leco.devices import seed_dropout
from leco.errors import LecoError, first_line
from leco.experiments.stages import Stage, choose
from leco.experiments.store import Store
from leco.model.description import check_window
from leco.models import Network, build_backbone, build_segmenter
from leco.models.heads import hand_over
from leco.models.network import AnyNetwork


def make_network(stage: Stage, material: Material, previous: AnyNetwork | None) -> AnyNetwork:
    """A new network for a stage, with what it takes over from the one before."""
    seed_dropout(stage.seed)  # and all that is drawn on the CPU; `torch.manual_seed` would reach for other devices
    network = build_network(stage, material, stage.training.pretrained)
    for module in network.modules():
        if isinstance(module, nn.modules.batchnorm._BatchNorm):
            module.momentum = stage.training.norm_momentum
    if previous is not None:
        hand_over(previous, network, material.until(stage.period), stage.strategy, stage.head_start)
    return network


def previous_network(stage: Stage, material: Material, store: Store) -> AnyNetwork | None:
    """What a stage starts from, if anything: the bundle that was given, or the chosen one of those before it."""
    if material.start is not None and stage.start:
        return material.start.network()
    return load_network(choose(stage.previous, store), material, store) if stage.previous else None


def load_network(stage: Stage, material: Material, store: Store) -> AnyNetwork:
    """The network that a complete stage trained."""
    path = store.weights(stage.fingerprint)
    if not path.is_file():
        raise LecoError(f"{path}: the stage {stage} is not complete")
    network = build_network(stage, material, pretrained=False)
    try:
        network.load_state_dict(load_file(path))
    except (SafetensorError, RuntimeError) as error:
        problem = first_line(error)
        raise LecoError(
            f"{path}: cannot be read ({problem}); delete its folder, and the stage is trained anew"
        ) from None
    return network.eval()


def build_network(stage: Stage, material: Material, pretrained: bool) -> AnyNetwork:
    """A network of the shape that a stage has: one head, or, for joint training, one per version."""
    ontology = material.until(stage.period)
    versions = ontology.versions if stage.method.coarse == "joint" else (ontology.newest,)
    if material.task == "segmentation":
        try:
            check_window(max(material.shape[1:]), stage.training.window, len(ontology.newest))
        except LecoError as error:
            raise LecoError(f"training.window: {error}") from None
        return build_segmenter(stage.training.model, versions, pretrained)
    backbone = build_backbone(stage.training.model, material.shape, pretrained)
    try:
        with torch.no_grad():
            backbone.eval()(torch.zeros(1, *material.shape))
    except Exception as error:  # an assertion, a map that has become too small
        problem = first_line(error)
        size = " x ".join(map(str, material.shape))
        raise LecoError(
            f"{stage.training.model} does not take inputs of {size} ({problem}); choose another model"
        ) from None
    return Network(backbone.train(), versions)
