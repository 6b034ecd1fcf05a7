"""Low-rank adapters (LoRA, Hu et al. 2021) for the linear layers of vision transformers, through `peft`.

A layer W with adapters computes W + BA, where B has few columns and A as many rows. Only those are trained; afterwards
they are merged into W, so that whatever comes later sees an ordinary network.
"""

from collections.abc import Iterable, Sequence

import torch
from torch import nn

from leco.errors import LecoError

# timm's names.
_ATTENTION = ("qkv", "q", "k", "v", "kv", "q_proj", "k_proj", "v_proj", "proj")
_MLP = ("fc1", "fc1_g", "fc1_x", "fc2")


def add_adapters(backbone: nn.Module, rank: int, shape: Sequence[int]) -> None:
    """Add adapters of a rank, in place, to linear layers of a transformer; B is zero, so that outputs stay equal.

    A layer takes part only if the backbone calls it for inputs of `shape`: some transformers (BEiT, EVA, Swin v2) read
    the weights of `qkv` without calling the layer, and would ignore its adapters. A rank of 0 adds none.
    """
    if not rank:
        return
    linear = {name: module for name, module in backbone.named_modules() if isinstance(module, nn.Linear)}
    named = {name: module for name, module in linear.items() if name.rpartition(".")[2] in _ATTENTION + _MLP}
    called = _called(backbone, named.values(), shape) if named else set()
    names = [name for name, module in named.items() if module in called]
    if not names:
        problem = "calls none of its linear layers" if named else "has no linear layers of attention or MLPs"
        raise LecoError(
            f"training.network.lora: {rank}, but {type(backbone).__name__} {problem}; choose a vision transformer, "
            "such as vit_tiny_patch16_224, or set it to 0"
        )
    try:
        from peft import LoraConfig, inject_adapter_in_model
    except ImportError:
        raise LecoError(f"training.network.lora: {rank} needs the package peft: pip install 'leco[lora]'") from None
    inject_adapter_in_model(LoraConfig(r=rank, lora_alpha=rank, target_modules=names), backbone)


def adapters(backbone: nn.Module) -> set[str]:
    """Names of the parameters of a backbone's adapters; empty if it has none."""
    return {name for name, _ in backbone.named_parameters() if ".lora_" in name}


def merge(backbone: nn.Module) -> None:
    """Add the adapters to the layers that they belong to, in place, and remove them: the names are as before."""
    if not adapters(backbone):
        return
    from peft.tuners.lora import LoraLayer

    for name, module in list(backbone.named_modules()):
        if isinstance(module, LoraLayer):
            module.merge()
            parent, _, last = name.rpartition(".")
            setattr(backbone.get_submodule(parent), last, module.get_base_layer())
    del backbone.peft_config


def _called(backbone: nn.Module, layers: Iterable[nn.Module], shape: Sequence[int]) -> set[nn.Module]:
    """Return the layers that a forward pass calls; others may still have their weights read."""
    found: set[nn.Module] = set()
    hooks = [layer.register_forward_hook(lambda layer, *_: found.add(layer)) for layer in layers]
    was_training = backbone.training
    try:
        with torch.no_grad():
            backbone.eval()(torch.zeros(1, *shape))
    finally:
        backbone.train(was_training)
        for hook in hooks:
            hook.remove()
    return found
