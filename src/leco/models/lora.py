"""Low-rank adapters (LoRA, Hu et al. 2021) for the linear layers of vision transformers, through `peft`.

A layer W with adapters computes W + BA, where B has few columns and A as many rows. Only those are trained; afterwards
they are merged into W, so that whatever comes later sees an ordinary network.
"""

from torch import nn

from leco.errors import LecoError

_LAYERS = ("qkv", "proj", "fc1", "fc2")  # timm's names, in attention and MLP


def add_adapters(backbone: nn.Module, rank: int) -> None:
    """Add adapters of a rank, in place, to the linear layers of a transformer; B is zero, so that outputs stay equal.

    A rank of 0 adds none.
    """
    if not rank:
        return
    names = [
        name
        for name, module in backbone.named_modules()
        if isinstance(module, nn.Linear) and name.rpartition(".")[2] in _LAYERS
    ]
    if not names:
        raise LecoError(
            f"training.network.lora: {rank}, but {type(backbone).__name__} has no linear layers named "
            f"{', '.join(_LAYERS[:-1])} or {_LAYERS[-1]}; choose a vision transformer, such as vit_tiny_patch16_224, "
            "or set it to 0"
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
