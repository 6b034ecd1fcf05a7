"""Wide residual networks, and the released code's, against a reference that was written from its description."""

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from leco import LecoError
from leco.models.backbones import build_backbone
from leco.models.wide_resnet import WideResNet


def released_features(weights: dict[str, Tensor], images: Tensor, depth: int) -> Tensor:
    """The released network in evaluation, from weights named as ours.

    A block that keeps the number of channels adds to its input. The first block of the network activates its input for
    both ways. The first ones of groups 2 and 3 normalise and activate it, and then use the input itself for both.
    """

    def activated(x: Tensor, name: str) -> Tensor:
        kept = [weights[f"{name}.{part}"] for part in ("running_mean", "running_var", "weight", "bias")]
        return F.leaky_relu(F.batch_norm(x, *kept, training=False), 0.1)

    def convolved(x: Tensor, name: str, stride: int = 1) -> Tensor:
        weight = weights[f"{name}.weight"]
        return F.conv2d(x, weight, stride=stride, padding=weight.shape[-1] // 2)

    x = convolved(images, "stem")
    per_group = (depth - 4) // 6
    for number in range(3 * per_group):
        name, stride = f"blocks.{number}", 2 if number in (per_group, 2 * per_group) else 1
        if f"{name}.shortcut.weight" not in weights:
            inside, around = activated(x, f"{name}.norm1"), x
        else:
            inside = activated(x, f"{name}.norm1") if number == 0 else x
            around = convolved(inside, f"{name}.shortcut", stride)
        hidden = activated(convolved(inside, f"{name}.conv1", stride), f"{name}.norm2")
        x = around + convolved(hidden, f"{name}.conv2")
    return activated(x, "norm").mean(dim=(2, 3))


def trained(network: nn.Module) -> nn.Module:
    """Weights and statistics as after training: no BatchNorm is the identity."""
    generator = torch.Generator().manual_seed(0)
    for tensor in network.state_dict().values():
        if tensor.ndim == 1:
            tensor.copy_(0.5 + torch.rand(tensor.shape, generator=generator))
    return network.double().eval()


@pytest.mark.parametrize("name", ["wrn-10-1", "wrn-16-2", "wrn-28-2"])
def test_the_released_network_is_that_of_the_released_code(name):
    network = trained(build_backbone(f"{name}-released", (3, 32, 32)))
    images = torch.randn(2, 3, 16, 16, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    depth = int(name.split("-")[1])
    with torch.no_grad():
        torch.testing.assert_close(network(images), released_features(dict(network.state_dict()), images, depth))
    usual = trained(build_backbone(name, (3, 32, 32)))
    usual.load_state_dict(network.state_dict())  # the same parameters
    count, expected = (sum(p.numel() for p in n.parameters()) for n in (network, usual))
    assert count == expected
    with torch.no_grad():
        assert not torch.allclose(usual(images), network(images))


def test_wrn_28_2_for_ten_classes_has_1467610_parameters():
    for released in (False, True):
        network = nn.Sequential(WideResNet(28, 2, released=released), nn.Linear(128, 10))
        assert sum(p.numel() for p in network.parameters()) == 1_467_610


def test_all_parameters_of_the_released_network_get_gradients_although_some_are_zero():
    network = WideResNet(10, 1, released=True)
    network(torch.randn(2, 3, 8, 8)).sum().backward()
    unused = [name for name, p in network.named_parameters() if not p.grad.any()]
    assert unused == [f"blocks.{n}.norm1.{part}" for n in (1, 2) for part in ("weight", "bias")]


@pytest.mark.parametrize("name", ["wrn-28-2-relesed", "wrn-28-2-"])
def test_a_misspelt_network_is_named(name):
    with pytest.raises(LecoError, match=f"'{name}' is not a backbone"):
        build_backbone(name, (3, 32, 32))
