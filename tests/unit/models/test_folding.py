"""Networks that predict with BatchNorm folded into convolutions."""

import timm
import torch
from torch import Tensor, nn

from leco.models.folding import folded


def norms(network: nn.Module) -> int:
    return sum(isinstance(module, nn.BatchNorm2d) for module in network.modules())


def with_statistics(network: nn.Module) -> nn.Module:
    """The network as if it had been trained: statistics differ from those of initialisation."""
    generator = torch.Generator().manual_seed(0)
    for module in network.modules():
        if isinstance(module, nn.BatchNorm2d):
            module.running_mean = torch.randn(module.num_features, generator=generator) / 10
            module.running_var = torch.rand(module.num_features, generator=generator) + 0.5
            nn.init.uniform_(module.weight, 0.5, 2, generator)
            nn.init.normal_(module.bias, 0, 0.1, generator)
    return network.double().eval()


def images(count: int, side: int = 64) -> Tensor:
    generator = torch.Generator().manual_seed(1)
    return torch.rand(count, 3, side, side, generator=generator, dtype=torch.float64)


def difference(network: nn.Module, other: nn.Module) -> float:
    """The largest difference between outputs for some images, relative to the largest output."""
    with torch.no_grad():
        outputs, others = network(images(3)), other(images(3))
    return float((outputs - others).abs().max() / others.abs().max())


def test_networks_without_batchnorm_layers_answer_as_before() -> None:
    for name in ("tf_efficientnet_lite0", "resnet18", "mobilenetv3_small_050"):
        network = with_statistics(timm.create_model(name, num_classes=0))
        faster = folded(network, images(1))
        assert norms(faster) == 0
        assert norms(network) > 0  # which stays as it is
        assert difference(faster, network) < 1e-9


def test_only_batchnorm_that_directly_follows_a_convolution_is_folded() -> None:
    network = with_statistics(timm.create_model("densenet121", num_classes=0))  # most come before a convolution
    faster = folded(network, images(1))
    assert 0 < norms(faster) < norms(network)
    assert difference(faster, network) < 1e-9


class Twice(nn.Module):
    """Uses the output of a convolution with and without BatchNorm."""

    def __init__(self) -> None:
        super().__init__()
        self.convolution, self.norm = nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4)

    def forward(self, inputs: Tensor) -> Tensor:
        found = self.convolution(inputs)
        answer: Tensor = (self.norm(found) + found).mean(dim=(2, 3))
        return answer


def test_a_network_whose_outputs_would_change_is_returned_as_it_is() -> None:
    network = with_statistics(Twice())
    assert folded(network, images(1)) is network


def test_a_network_without_batchnorm_is_returned_as_it_is() -> None:
    network = nn.Sequential(nn.Conv2d(3, 4, 3), nn.Flatten()).double()
    assert folded(network, images(1)) is network
