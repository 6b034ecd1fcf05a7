import copy

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from leco import LecoError, Ontology, Version
from leco.methods import Method
from leco.methods.terms import HISTORY, NEW, forward_once, terms
from leco.models import Network, build_backbone
from leco.models.network import MANY
from leco.models.wide_resnet import WideResNet

TEN = Version("v1.2", tuple(str(i) for i in range(10)))  # a name with a dot
TWO = Version("v1", ("a", "b"))


def parameters(module: nn.Module) -> int:
    return sum(parameter.numel() for parameter in module.parameters())


def test_wrn_28_2_has_fixmatchs_size_and_constants():
    network = Network(build_backbone("wrn-28-2", (3, 32, 32)), [TEN])
    assert parameters(network) == 1_467_610  # FixMatch's 1.47 M for CIFAR-10
    norms = [module for module in network.modules() if isinstance(module, nn.BatchNorm2d)]
    assert len(norms) == 25
    assert {norm.momentum for norm in norms} == {0.001}
    assert network(torch.randn(2, 3, 32, 32))["v1.2"].shape == (2, 10)


def naive_wrn(model: WideResNet, x: torch.Tensor) -> torch.Tensor:
    """The same network, written out block by block from its weights."""

    def activated(norm: nn.BatchNorm2d, maps: torch.Tensor) -> torch.Tensor:
        shape = (1, -1, 1, 1)
        scaled = (maps - norm.running_mean.view(shape)) / (norm.running_var.view(shape) + norm.eps).sqrt()
        scaled = scaled * norm.weight.view(shape) + norm.bias.view(shape)
        return torch.where(scaled > 0, scaled, 0.1 * scaled)

    x = F.conv2d(x, model.stem.weight, padding=1)
    strides = [1, 2, 2]
    per_group = len(model.blocks) // 3
    for number, block in enumerate(model.blocks):
        stride = strides[number // per_group] if number % per_group == 0 else 1
        inner = activated(block.norm1, x)
        out = F.conv2d(inner, block.conv1.weight, stride=stride, padding=1)
        out = F.conv2d(activated(block.norm2, out), block.conv2.weight, padding=1)
        if isinstance(block.shortcut, nn.Conv2d):
            x = F.conv2d(inner if number == 0 else x, block.shortcut.weight, stride=stride)
        x = x + out
    return activated(model.norm, x).mean(dim=(2, 3))


@pytest.mark.parametrize(("depth", "width", "channels", "side"), [(10, 1, 3, 16), (16, 2, 1, 8), (28, 2, 3, 32)])
def test_a_wide_resnet_computes_what_its_definition_says(depth, width, channels, side):
    torch.manual_seed(0)
    model = WideResNet(depth, width, channels).eval()
    for module in model.modules():
        if isinstance(module, nn.BatchNorm2d):
            nn.init.normal_(module.running_mean)
            nn.init.uniform_(module.running_var, 0.5, 2)
    images = torch.randn(3, channels, side, side)
    torch.testing.assert_close(model(images), naive_wrn(model, images), atol=1e-4, rtol=1e-4)


def test_one_head_per_version_shares_the_features():
    network = Network(build_backbone("linear", (5,)), [TWO, TEN])
    logits = network(torch.randn(4, 5))
    assert {name: tuple(z.shape) for name, z in logits.items()} == {"v1": (4, 2), "v1.2": (4, 10)}
    assert parameters(network) == 5 * 2 + 2 + 5 * 10 + 10


def test_an_mlp_has_one_hidden_layer():
    assert build_backbone("mlp", (7,))(torch.randn(2, 7)).shape == (2, 512)


def test_roots_keep_signs_and_lengths():
    vectors = torch.tensor([[4.0, -9.0, 0.0], [0.0, 0.0, 0.0]])
    roots = build_backbone("roots", (3,))(vectors)
    torch.testing.assert_close(roots.norm(dim=1), vectors.norm(dim=1))
    torch.testing.assert_close(roots[0] / roots[0, 0], torch.tensor([1.0, -1.5, 0.0]))


def test_any_timm_model_is_a_backbone():
    backbone = build_backbone("resnet18", (3, 32, 32))
    assert backbone.num_features == 512
    network = Network(backbone, [TWO])
    assert network(torch.randn(2, 3, 64, 64))["v1"].shape == (2, 2)


def test_resnet_50_is_timms():
    assert build_backbone("resnet50", (3, 32, 32)).num_features == 2_048


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("wrn-27-2", "wrn-27-2: the depth must be 10, 16, 22, 28"),
        ("resnet-50", r"'resnet-50' is not a backbone; did you mean 'resnet50"),
        ("wrn-28", "is not a backbone"),
    ],
)
def test_unknown_backbones_are_named(name, message):
    with pytest.raises(LecoError, match=message):
        build_backbone(name, (3, 32, 32))


def test_many_classes_are_predicted_for_both_parts_together_and_batchnorm_sees_them_apart():
    tree = Ontology.from_taxonomy("many", ["v1", "v2"], [(f"a{k // 10}", f"b{k}") for k in range(MANY)])
    torch.manual_seed(0)
    together = Network(build_backbone("wrn-10-1", (1, 8, 8)), [tree.newest])
    apart = copy.deepcopy(together)
    views = {(part, "strong"): torch.randn(size, 1, 8, 8) for part, size in (("new", 6), ("history", 4))}
    summands = terms(Method.parse("lpl"))
    found = forward_once({"student": together}, views, summands)
    expected = forward_once({"student": lambda inputs: apart(inputs)}, views, summands)  # a plain function
    assert together.joins_parts
    for request in (NEW, HISTORY):
        torch.testing.assert_close(found[request]["v2"], expected[request]["v2"])
        (found[request]["v2"].square().mean() + expected[request]["v2"].square().mean()).backward(retain_graph=True)
    for mine, theirs in zip(together.parameters(), apart.parameters(), strict=True):
        torch.testing.assert_close(mine.grad, theirs.grad, rtol=1e-4, atol=1e-6)
    for mine, theirs in zip(together.buffers(), apart.buffers(), strict=True):
        assert torch.equal(mine, theirs)
    assert not Network(build_backbone("wrn-10-1", (1, 8, 8)), [tree["v1"]]).joins_parts
