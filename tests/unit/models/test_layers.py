"""Layers by depth: their numbers, and the share of them that is frozen."""

import pytest
import timm
import torch
from torch import nn

from leco.models import build_backbone
from leco.models.layers import layer_numbers, norms, trained_parameters, width


def small() -> nn.Module:
    return timm.create_model("test_efficientnet", num_classes=0)


@pytest.mark.parametrize(
    "name", ["test_efficientnet", "test_vit", "test_convnext", "resnet18", "wrn-10-1", "test_vit+mlp"]
)
def test_every_parameter_belongs_to_a_layer_and_layers_are_counted_from_the_input_without_gaps(name):
    side = 160 if "vit" in name else 32
    backbone = build_backbone(name, (3, side, side))
    numbers = layer_numbers(backbone)
    assert numbers.keys() == dict(backbone.named_parameters()).keys()
    assert set(numbers.values()) == set(range(max(numbers.values()) + 1))
    first = next(name for name, parameter in backbone.named_parameters() if parameter.ndim > 1)
    assert numbers[first] == 0


def test_modules_without_a_division_of_their_own_are_numbered_by_their_top_level():
    block = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2))
    assert layer_numbers(nn.Sequential(block, nn.ReLU(), nn.Linear(2, 2, bias=False))) == {
        **{"0.0.weight": 0, "0.0.bias": 0, "0.1.weight": 0, "0.1.bias": 0},
        "2.weight": 1,
    }
    assert layer_numbers(nn.Identity()) == {}


@pytest.mark.parametrize("share", [0.0, 0.2, 0.35, 0.5, 0.99])
def test_a_share_of_the_layers_is_frozen_from_the_input_on(share):
    backbone = small()
    numbers = layer_numbers(backbone)
    frozen = int(share * (max(numbers.values()) + 1))
    expected = [name for name, number in numbers.items() if number >= frozen]
    trained = set(map(id, trained_parameters(backbone, share)))
    assert [name for name, p in backbone.named_parameters() if id(p) in trained] == [
        name for name, _ in backbone.named_parameters() if name in expected
    ]
    assert trained  # the last layer is never frozen


def test_a_backbone_without_parameters_has_nothing_to_freeze():
    assert trained_parameters(nn.Identity(), 0.5) == []
    assert list(norms(nn.Identity(), 0.5, all_of_them=True)) == []


def test_statistics_are_kept_in_frozen_layers_or_everywhere():
    backbone = small()
    every = [module for module in backbone.modules() if isinstance(module, nn.BatchNorm2d)]
    assert list(norms(backbone, 0.0, all_of_them=False)) == []
    assert list(norms(backbone, 0.0, all_of_them=True)) == every
    some = list(norms(backbone, 0.35, all_of_them=False))
    trained = set(map(id, trained_parameters(backbone, 0.35)))
    assert some == [module for module in every if id(module.weight) not in trained]
    assert 0 < len(some) < len(every)


def test_layers_without_weights_are_kept_only_if_all_are():
    plain = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2, affine=False), nn.Linear(2, 2))
    assert list(norms(plain, 0.5, all_of_them=False)) == []
    assert list(norms(plain, 0.5, all_of_them=True)) == [plain[1]]
    assert torch.equal(plain[1].running_mean, torch.zeros(2))


def test_what_is_on_top_of_a_backbone_is_its_last_layer():
    numbers = layer_numbers(build_backbone("test_efficientnet+mlp", (3, 32, 32)))
    below = layer_numbers(build_backbone("test_efficientnet", (3, 32, 32)))
    assert {name: numbers[f"trunk.{name}"] for name in below} == below
    assert numbers["top.layers.0.weight"] == max(below.values()) + 1


@pytest.mark.parametrize("name", ["mobilenetv3_small_050", "ghostnet_050", "resnet18+mlp", "wrn-10-1"])
def test_the_width_is_that_of_the_features_that_a_backbone_returns(name):
    backbone = build_backbone(name, (3, 32, 32)).eval()
    assert backbone(torch.rand(1, 3, 32, 32)).shape == (1, width(backbone))
