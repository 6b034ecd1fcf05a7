import math

import pytest
import torch
from torch import nn

from leco import Ontology
from leco.models import Network, build_backbone
from leco.models.heads import hand_over
from leco.settings import AverageSettings
from leco.training.averaging import Average
from leco.training.loop import heads_only
from leco.training.optimisers import SCHEDULES, cosine, poly

ONTOLOGY = Ontology.from_dict(
    {
        "versions": [
            {"name": "v1", "classes": ["dog", "cat"]},
            {
                "name": "v2",
                "classes": {"cat": None, "husky": {"from": "dog"}, "poodle": {"from": "dog"}, "eel": None},
            },
        ]
    }
)


def make(*versions: str, seed: int = 0) -> Network:
    torch.manual_seed(seed)
    return Network(build_backbone("mlp", (6,)), [ONTOLOGY[version] for version in versions])


def test_the_schedules_are_the_papers():
    for step in (0, 1, 37, 100):
        assert cosine(step, 100) == math.cos(7 * math.pi * step / 1600)
        assert poly(step, 100) == pytest.approx((1 - step / 100) ** 0.9)
    for schedule in SCHEDULES.values():
        values = [schedule(step, 50) for step in range(51)]
        assert values[0] == 1
        assert values == sorted(values, reverse=True)


def test_the_average_follows_every_weight_as_a_loop_would():
    model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4))
    average = Average(model, AverageSettings(decay=0.9, warm_up=False))
    expected = [p.detach().clone() for p in model.parameters()]
    for step in range(5):
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.add_(torch.randn_like(parameter))
        model(torch.randn(8, 3))
        average.update(model, step)
        expected = [0.9 * e + 0.1 * p.detach() for e, p in zip(expected, model.parameters(), strict=True)]
    for mine, e in zip(average.model.parameters(), expected, strict=True):
        torch.testing.assert_close(mine, e)
    assert torch.equal(average.model[1].running_mean, model[1].running_mean)
    assert not average.model.training
    assert not any(p.requires_grad for p in average.model.parameters())


def test_a_short_run_is_not_dominated_by_its_first_weights():
    average = Average(nn.Linear(1, 1), AverageSettings())
    assert average.decay_at(0) == pytest.approx(0.1)
    assert average.decay_at(10_000) == 0.999
    assert Average(nn.Linear(1, 1), AverageSettings(warm_up=False)).decay_at(0) == 0.999


def test_statistics_of_batchnorm_are_averaged_if_asked():
    norm = nn.BatchNorm1d(2)
    average = Average(norm, AverageSettings(decay=0.9, warm_up=False, norm=True))
    expected = norm.running_var.clone()
    for step in range(3):
        norm(10 * torch.randn(8, 2))
        average.update(norm, step)
        expected = 0.9 * expected + 0.1 * norm.running_var
    torch.testing.assert_close(average.model.running_var, expected)
    assert average.model.num_batches_tracked == 3  # a count has no average


def test_finetuning_takes_the_features_and_a_new_head():
    previous, network = make("v1", seed=1), make("v2", seed=2)
    head = network.heads[0].weight.detach().clone()
    hand_over(previous, network, ONTOLOGY, "finetune", head_start=False)
    for old, new in zip(previous.backbone.parameters(), network.backbone.parameters(), strict=True):
        assert torch.equal(old, new)
    assert torch.equal(network.heads[0].weight, head)


def test_training_from_scratch_takes_nothing():
    previous, network = make("v1", seed=1), make("v2", seed=2)
    before = [p.detach().clone() for p in network.parameters()]
    hand_over(previous, network, ONTOLOGY, "scratch", head_start=True)
    assert all(torch.equal(a, b) for a, b in zip(before, network.parameters(), strict=True))


def test_with_a_head_start_the_new_model_predicts_what_the_old_one_predicted():
    previous, network = make("v1", seed=1), make("v2", seed=2)
    hand_over(previous, network, ONTOLOGY, "finetune", head_start=True)
    inputs = torch.randn(7, 6)
    old = previous(inputs)["v1"].softmax(dim=1)
    with_past = network(inputs)["v2"][:, :3].softmax(dim=1)  # without eel, which has no past
    torch.testing.assert_close(with_past[:, 0], old[:, 1])
    torch.testing.assert_close(with_past[:, 1] + with_past[:, 2], old[:, 0])
    assert not torch.allclose(network.heads[0].weight[3], previous.heads[0].weight[0])


def test_in_joint_training_the_old_head_is_kept():
    previous, network = make("v1", seed=1), make("v1", "v2", seed=2)
    hand_over(previous, network, ONTOLOGY, "finetune", head_start=False)
    assert torch.equal(network.heads[0].weight, previous.heads[0].weight)


@pytest.mark.parametrize(
    ("strategy", "step", "expected"),
    [("freeze", 99, True), ("finetune", 0, False), ("scratch", 0, False), ("lp-ft", 9, True), ("lp-ft", 10, False)],
)
def test_a_strategy_decides_what_a_step_may_change(strategy, step, expected):
    assert heads_only(strategy, step, head_steps=10) == expected
