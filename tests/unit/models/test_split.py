"""A backbone in two parts: frozen layers, and those above them."""

import pytest
import timm
import torch

from leco import LecoError
from leco.models.layers import layer_numbers
from leco.models.split import Trunk, check_split, rest


def network(name):
    torch.manual_seed(0)
    return timm.create_model(name, num_classes=0).eval()


@pytest.mark.parametrize("name", ["test_efficientnet", "test_resnet", "resnet18"])
@pytest.mark.parametrize("frozen", [0.3, 0.6, 0.9])
def test_both_parts_one_after_the_other_are_the_whole(name, frozen):
    whole, images = network(name), torch.randn(2, 3, 64, 64)
    maps = Trunk(whole, frozen).eval()(images)
    assert maps.ndim == 2
    torch.testing.assert_close(rest(whole, frozen).eval()(maps), whole(images))
    check_split(whole, frozen, (3, 64, 64), name)


def test_the_upper_part_has_the_trained_layers_under_their_names():
    whole = network("test_efficientnet")
    numbers, top = layer_numbers(whole), rest(whole, 0.5)
    first = int(0.5 * (max(numbers.values()) + 1))
    kept = dict(top.named_parameters())
    assert set(kept) == {name for name, number in numbers.items() if number >= first}
    assert all(torch.equal(kept[name], tensor) for name, tensor in whole.named_parameters() if name in kept)


def test_the_upper_part_can_be_trained_and_copied():
    whole = network("test_efficientnet")
    maps = Trunk(whole, 0.5)(torch.randn(4, 3, 64, 64)).detach()
    top = rest(whole, 0.5)
    top(maps).sum().backward()
    assert all(parameter.grad is not None for parameter in top.parameters())
    assert all(parameter.grad is None for parameter in whole.parameters())


def test_backbones_whose_layers_are_no_chain_are_refused():
    with pytest.raises(LecoError, match=r"network.embed: test_vit cannot be divided after 0.5 of its layers"):
        check_split(network("test_vit"), 0.5, (3, 160, 160), "test_vit")
