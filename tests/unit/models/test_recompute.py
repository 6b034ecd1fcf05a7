"""Recomputed activations: the same features, gradients and statistics, and fewer tensors that are kept."""

import copy

import pytest
import torch
from torch import Tensor, nn

from leco import LecoError
from leco.models import build_backbone
from leco.models.recompute import blocks, recompute_activations

SHAPE = (3, 64, 64)


def kept_bytes(backbone: nn.Module, images: Tensor) -> int:
    """Bytes of the tensors that a forward pass keeps for the backward pass, besides the weights."""
    weights = {parameter.data_ptr() for parameter in backbone.parameters()}
    kept: dict[int, int] = {}

    def keep(tensor: Tensor) -> Tensor:
        if tensor.data_ptr() not in weights:
            kept[tensor.data_ptr()] = tensor.numel() * tensor.element_size()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        backbone(images).sum().backward()
    return sum(kept.values())


@pytest.mark.parametrize(
    "name",
    ["wrn-16-1", "resnet18", "tf_efficientnet_lite0", "regnety_002", "test_vit", "convnext_atto", "hrnet_w18_small"],
)
def test_recomputing_changes_neither_gradients_nor_statistics_and_keeps_less(name):
    torch.manual_seed(0)
    torch.set_num_threads(1)
    plain = build_backbone(name, SHAPE)
    recomputed = copy.deepcopy(plain)
    recompute_activations(recomputed)
    images = torch.randn(4, *SHAPE)
    for backbone in (plain, recomputed):
        torch.manual_seed(1)  # of dropout
        backbone.train()(images).square().sum().backward()
    theirs = dict(recomputed.named_parameters())
    for parameter_name, parameter in plain.named_parameters():
        assert torch.equal(parameter.grad, theirs[parameter_name].grad)
    for buffer, other in zip(plain.buffers(), recomputed.buffers(), strict=True):
        assert torch.equal(buffer, other)
    assert kept_bytes(recomputed, images) < 0.6 * kept_bytes(plain, images)


class Strict(nn.BatchNorm2d):
    """Like BatchNorm that is synchronised between GPUs, refuses to do without its count of batches."""

    def forward(self, images: Tensor) -> Tensor:
        assert self.num_batches_tracked is not None
        return super().forward(images)


def test_batchnorm_has_its_count_while_activations_are_recomputed_and_counts_once():
    backbone = build_backbone("wrn-10-1", (3, 32, 32))
    norms = [norm for norm in backbone.modules() if isinstance(norm, nn.BatchNorm2d)]
    for norm in norms:
        norm.__class__ = Strict
    recompute_activations(backbone)
    backbone.train()(torch.randn(2, 3, 32, 32)).sum().backward()
    assert {int(norm.num_batches_tracked) for norm in norms} == {1}


def test_a_backbone_without_blocks_is_refused():
    with pytest.raises(LecoError, match=r"network.recompute: this backbone has no blocks of layers"):
        recompute_activations(build_backbone("linear", (8,)))


def test_blocks_are_the_innermost_ones():
    backbone = build_backbone("tf_efficientnet_lite0", SHAPE)
    assert {type(block).__name__ for block in blocks(backbone)} == {"InvertedResidual", "DepthwiseSeparableConv"}
    assert len(blocks(build_backbone("wrn-28-2", (3, 32, 32)))) == 12
