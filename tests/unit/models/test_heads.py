"""Transfer between segmentation networks; `training/test_averaging.py` has those between classifiers."""

import pytest
import torch
from torch import nn

from leco import LecoError, Ontology
from leco.models import SegmentationNetwork, build_segmenter
from leco.models.heads import hand_over, start_from_parents

ONTOLOGY = Ontology.from_dict(
    {
        "versions": [
            {"name": "v1", "classes": ["vehicle", "road"]},
            {
                "name": "v2",
                "classes": {"road": None, "car": {"from": "vehicle"}, "bus": {"from": "vehicle"}, "cone": None},
            },
        ]
    }
)


def make(name: str, *versions: str, seed: int) -> SegmentationNetwork:
    torch.manual_seed(seed)
    return build_segmenter(name, [ONTOLOGY[version] for version in versions]).eval()


@torch.no_grad()
def test_with_a_head_start_every_pixel_keeps_its_predicted_class():
    previous, network = make("tiny", "v1", seed=1), make("tiny", "v2", seed=2)
    hand_over(previous, network, ONTOLOGY, "finetune", head_start=True)
    images = torch.randn(2, 3, 32, 40)
    old = previous(images)["v1"].softmax(dim=1)
    with_past = network(images)["v2"][:, :3].softmax(dim=1)  # without cone, which has no past
    torch.testing.assert_close(with_past[:, 0], old[:, 1])
    torch.testing.assert_close(with_past[:, 1] + with_past[:, 2], old[:, 0])


@pytest.mark.parametrize("head_start", [False, True])
def test_an_ocr_head_passes_on_all_layers_that_do_not_depend_on_classes(head_start):
    previous, network = make("hrnet_w18_small", "v1", seed=1), make("hrnet_w18_small", "v2", seed=2)
    own = {name: tensor.clone() for name, tensor in network.heads[0].state_dict().items()}
    hand_over(previous, network, ONTOLOGY, "finetune", head_start)
    old, new = previous.heads[0].state_dict(), network.heads[0].state_dict()
    for name, tensor in new.items():
        if "classifier" not in name:
            assert torch.equal(tensor, old[name]), name
        elif not head_start:
            assert torch.equal(tensor, own[name]), name
        else:
            shared = torch.tensor([1, 2, 2]).log() if name.endswith("bias") else 0
            torch.testing.assert_close(tensor[:3], old[name][[1, 0, 0]] - shared)
            assert torch.equal(tensor[3], own[name][3])


def test_in_joint_training_the_old_ocr_head_is_kept_and_the_new_one_starts_from_its_features():
    previous, network = make("hrnet_w18_small", "v1", seed=1), make("hrnet_w18_small", "v1", "v2", seed=2)
    hand_over(previous, network, ONTOLOGY, "finetune", head_start=False)
    old = previous.heads[0].state_dict()
    for name, tensor in network.heads[0].state_dict().items():
        assert torch.equal(tensor, old[name])
    assert torch.equal(network.heads[1].pixels[0].weight, previous.heads[0].pixels[0].weight)


def test_heads_without_rows_of_classes_are_refused():
    with pytest.raises(LecoError, match="classes cannot start from their parents in a Sequential"):
        start_from_parents(nn.Sequential(), nn.Sequential(), ONTOLOGY, "v1", "v2")
