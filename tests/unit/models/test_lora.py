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

IMAGES = torch.randn(2, 3, 160, 160, generator=torch.Generator().manual_seed(0))


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
    add_adapters(backbone, 3)
    assert torch.equal(backbone(IMAGES), plain(IMAGES))
    linear = [name for name, module in plain.named_modules() if isinstance(module, nn.Linear)]
    assert adapters(backbone) == {f"{name}.lora_{part}.default.weight" for name in linear for part in "AB"}
    trained = {id(parameter) for parameter in trained_parameters(backbone, 0.0)}
    assert trained == {id(backbone.get_parameter(name)) for name in adapters(backbone)}


def test_merged_adapters_leave_a_plain_network_with_the_same_outputs(backbone):
    plain = copy.deepcopy(backbone)
    add_adapters(backbone, 3)
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


def test_merging_a_plain_network_and_a_rank_of_zero_do_nothing(backbone):
    before = copy.deepcopy(backbone.state_dict())
    add_adapters(backbone, 0)
    merge(backbone)
    assert all(torch.equal(before[name], tensor) for name, tensor in backbone.state_dict().items())
    assert before.keys() == backbone.state_dict().keys()


def test_adapters_belong_to_the_layers_that_they_adapt(backbone):
    plain = layer_numbers(backbone)
    add_adapters(backbone, 2)
    numbers = layer_numbers(backbone)
    for name in adapters(backbone):
        assert numbers[name] == plain[f"{name.partition('.lora_')[0]}.weight"]
    upper = {name for name in adapters(backbone) if numbers[name] >= int(0.5 * (max(numbers.values()) + 1))}
    kept = {id(parameter) for parameter in trained_parameters(backbone, 0.5)}
    assert kept == {id(backbone.get_parameter(name)) for name in upper}
    assert 0 < len(upper) < len(adapters(backbone))


def test_learning_rates_of_adapters_fall_with_depth(backbone):
    add_adapters(backbone, 2)
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
    add_adapters(backbone, 2)
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
    with pytest.raises(LecoError, match=r"network\.lora: 4, but \w+ has no linear layers named .*vision transformer"):
        add_adapters(build_backbone(name, shape), 4)


def test_without_peft_its_installation_is_named(backbone, monkeypatch):
    monkeypatch.setitem(sys.modules, "peft", None)
    with pytest.raises(LecoError, match=r"network\.lora: 4 needs the package peft: pip install 'leco\[lora\]'"):
        add_adapters(backbone, 4)
