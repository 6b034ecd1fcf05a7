"""Low-rank adapters in vision transformers."""

import copy
import sys

import pytest
import timm
import torch
from torch import nn

from leco.errors import LecoError
from leco.models.backbones import build_backbone
from leco.models.layers import layer_numbers, trained_parameters
from leco.models.lora import adapters, add_adapters, merge
from leco.models.network import Network
from leco.ontology.version import Version
from leco.settings import AverageSettings, OptimiserSettings
from leco.training.averaging import Average
from leco.training.optimisers import parameter_groups

SHAPE = (3, 160, 160)
IMAGES = torch.randn(2, *SHAPE, generator=torch.Generator().manual_seed(0))
TINY = {"img_size": 32, "embed_dim": 32, "depth": 2, "num_heads": 2}
TINY_14 = TINY | {"img_size": 28}  # patches of 14 pixels
STAGES = {"img_size": 32, "embed_dim": 16, "depths": (2, 2), "num_heads": (2, 2), "window_size": 4}
MLP, ATTENTION = {"fc1", "fc2", "proj"}, {"qkv", "proj", "fc1", "fc2"}
FAMILIES = {  # a small member of each, and the layers that it calls
    "vit_small_patch16_224": (TINY, ATTENTION),
    "vit_small_patch14_dinov2": (TINY_14, ATTENTION),
    "vit_giant_patch14_dinov2": (TINY_14, ATTENTION),
    "vit_base_patch16_siglip_224": (TINY, ATTENTION | {"q", "kv"}),
    "deit3_small_patch16_224": (TINY, ATTENTION),
    "beit_base_patch16_224": (TINY, MLP),
    "beitv2_base_patch16_224": (TINY, MLP),
    "eva_giant_patch14_224": (TINY_14, MLP),
    "eva02_base_patch14_224": (TINY_14, {"q_proj", "k_proj", "v_proj", "proj", "fc1_g", "fc1_x", "fc2"}),
    "vit_small_patch16_dinov3": (TINY, ATTENTION),
    "swin_tiny_patch4_window7_224": (STAGES, ATTENTION),
    "swinv2_tiny_window8_256": (STAGES, MLP),
    "cait_xxs24_224": (TINY, ATTENTION | {"q", "k", "v"}),
    "xcit_nano_12_p16_224": (TINY, ATTENTION | {"q", "k", "v"}),
}


@pytest.fixture
def backbone() -> nn.Module:
    torch.manual_seed(0)
    return timm.create_model("test_vit", num_classes=0).eval()


def randomise(backbone: nn.Module) -> None:
    """Give the adapters values, as training would."""
    with torch.no_grad():
        for name, parameter in backbone.named_parameters():
            if name in adapters(backbone):
                parameter.normal_(std=0.1)


def test_new_adapters_change_nothing_and_are_all_that_is_trained(backbone):
    plain = copy.deepcopy(backbone)
    add_adapters(backbone, 3, SHAPE)
    assert torch.equal(backbone(IMAGES), plain(IMAGES))
    linear = [name for name, module in plain.named_modules() if isinstance(module, nn.Linear)]
    assert adapters(backbone) == {f"{name}.lora_{part}.default.weight" for name in linear for part in "AB"}
    trained = {id(parameter) for parameter in trained_parameters(backbone, 0.0)}
    assert trained == {id(backbone.get_parameter(name)) for name in adapters(backbone)}


def test_merged_adapters_leave_a_plain_network_with_the_same_outputs(backbone):
    plain = copy.deepcopy(backbone)
    add_adapters(backbone, 3, SHAPE)
    randomise(backbone)
    before = backbone(IMAGES)
    assert (before - plain(IMAGES)).abs().max() > 1e-2
    merge(backbone)
    torch.testing.assert_close(backbone(IMAGES), before, rtol=0, atol=1e-5)
    assert list(backbone.state_dict()) == list(plain.state_dict())
    assert not hasattr(backbone, "peft_config")
    for name, weights in plain.state_dict().items():
        difference = backbone.state_dict()[name] - weights
        adapted = name.endswith(".weight") and isinstance(plain.get_submodule(name.rpartition(".")[0]), nn.Linear)
        assert torch.linalg.matrix_rank(difference, tol=1e-5) == 3 if adapted else not difference.any(), name


@pytest.mark.parametrize("name", FAMILIES)
def test_every_adapter_of_every_family_of_transformers_is_trained_and_merged(name):
    options, layers = FAMILIES[name]
    torch.manual_seed(0)
    backbone = timm.create_model(name, num_classes=0, **options).eval()
    with torch.no_grad():
        for parameter in backbone.parameters():
            if parameter.ndim == 1:  # scales that start near zero would hide what adapters do
                parameter.normal_(mean=1, std=0.1)
    plain, side = copy.deepcopy(backbone), options["img_size"]
    add_adapters(backbone.train(), 2, (3, side, side))
    assert backbone.training
    adapted = {adapter.partition(".lora_")[0] for adapter in adapters(backbone)}
    assert {layer.rpartition(".")[2] for layer in adapted} == layers
    randomise(backbone.eval())
    images = torch.randn(2, 3, side, side)
    before = backbone(images)
    before.square().sum().backward()
    for adapter in adapters(backbone):
        weight = backbone.get_parameter(adapter)
        assert weight.grad is not None, adapter
        assert weight.grad.any(), adapter
        with torch.no_grad():
            old = weight.clone()
            weight.zero_()
            assert not torch.equal(backbone(images), before), adapter
            weight.copy_(old)
    merge(backbone)
    assert list(backbone.state_dict()) == list(plain.state_dict())
    torch.testing.assert_close(backbone(images), before, rtol=1e-4, atol=1e-4)
    assert not torch.allclose(plain(images), before, rtol=1e-2, atol=1e-2)


def test_a_backbone_that_only_reads_the_weights_of_its_layers_is_refused():
    class Reads(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.qkv = nn.Linear(4, 4)

        def forward(self, inputs: torch.Tensor) -> torch.Tensor:
            return nn.functional.linear(inputs, self.qkv.weight)

    with pytest.raises(
        LecoError, match=r"network\.lora: 4, but Reads calls none of its linear layers; choose a vision"
    ):
        add_adapters(Reads(), 4, (4,))


def test_merging_a_plain_network_and_a_rank_of_zero_do_nothing(backbone):
    before = copy.deepcopy(backbone.state_dict())
    add_adapters(backbone, 0, SHAPE)
    merge(backbone)
    assert all(torch.equal(before[name], tensor) for name, tensor in backbone.state_dict().items())
    assert before.keys() == backbone.state_dict().keys()


def test_adapters_belong_to_the_layers_that_they_adapt(backbone):
    plain = layer_numbers(backbone)
    add_adapters(backbone, 2, SHAPE)
    numbers = layer_numbers(backbone)
    for name in adapters(backbone):
        assert numbers[name] == plain[f"{name.partition('.lora_')[0]}.weight"]
    upper = {name for name in adapters(backbone) if numbers[name] >= int(0.5 * (max(numbers.values()) + 1))}
    kept = {id(parameter) for parameter in trained_parameters(backbone, 0.5)}
    assert kept == {id(backbone.get_parameter(name)) for name in upper}
    assert 0 < len(upper) < len(adapters(backbone))


def test_learning_rates_of_adapters_fall_with_depth(backbone):
    add_adapters(backbone, 2, SHAPE)
    network = Network(backbone, [Version("v1", ("a", "b"))])
    for name, parameter in backbone.named_parameters():
        parameter.requires_grad_(name in adapters(backbone))
    groups = parameter_groups(network, OptimiserSettings(layer_decay=0.5, head_factor=10.0))
    factors = {id(parameter): group["factor"] for group in groups for parameter in group["params"]}
    first, second = (factors[id(backbone.blocks[n].mlp.fc1.lora_A["default"].weight)] for n in (0, 1))
    assert first == 0.5 * second
    assert factors[id(network.heads[0].weight)] == 10
    assert len(factors) == len(adapters(backbone)) + 2


def test_weights_are_averaged_with_their_adapters(backbone):
    add_adapters(backbone, 2, SHAPE)
    average = Average(backbone, AverageSettings(decay=0.5, warm_up=False))
    before = copy.deepcopy(backbone.state_dict())
    randomise(backbone)
    average.update(backbone, 0)
    for name, tensor in average.model.state_dict().items():
        expected = (before[name] + backbone.state_dict()[name]) / 2 if name in adapters(backbone) else before[name]
        torch.testing.assert_close(tensor, expected)


@pytest.mark.parametrize("name", ["wrn-10-1", "resnet18", "mlp"])
def test_backbones_without_such_layers_are_refused(name):
    shape = (12,) if name == "mlp" else (3, 32, 32)
    with pytest.raises(LecoError, match=r"network\.lora: 4, but \w+ has no linear layers of .*vision transformer"):
        add_adapters(build_backbone(name, shape), 4, shape)


def test_without_peft_its_installation_is_named(backbone, monkeypatch):
    monkeypatch.setitem(sys.modules, "peft", None)
    with pytest.raises(LecoError, match=r"network\.lora: 4 needs the package peft: pip install 'leco\[lora\]'"):
        add_adapters(backbone, 4, SHAPE)
