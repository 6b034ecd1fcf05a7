"""Settings for pretrained networks: frozen layers, learning rates by depth, warm-up and clipping."""

import math

import pytest
import torch
from tests.unit.training.test_loop import STEPS, make_training, same

from leco.models.layers import layer_numbers
from leco.settings import OptimiserSettings
from leco.training.checkpoint import read_checkpoint, write_checkpoint
from leco.training.loop import Training
from leco.training.optimisers import SCHEDULES, parameter_groups, rate_factor

EVERYTHING = {
    "network": {"frozen_layers": 0.35, "frozen_norm": True},
    "optimiser": {
        **{"name": "adamw", "learning_rate": (0.003,), "weight_decay": 0.1, "schedule": "half-cosine"},
        **{"warm_up": 0.25, "head_factor": 10.0, "layer_decay": 0.8, "clip": 0.5},
    },
    "average": {"decay": 0.0},
}


def state(training: Training) -> dict[str, torch.Tensor]:
    return {name: tensor.clone() for name, tensor in training.network.state_dict().items()}


def layer_of(training: Training, name: str) -> int | None:
    """Layer of a tensor of the network; buffers belong to that of the parameters beside them; None for heads."""
    numbers = layer_numbers(training.network.backbone)
    if not name.startswith("backbone."):
        return None
    module = name.removeprefix("backbone.").rpartition(".")[0]
    return next(number for other, number in numbers.items() if other.rpartition(".")[0] == module)


@pytest.mark.parametrize("method", ["ce", "lpl+st-soft/cond"])
def test_frozen_layers_do_not_change_and_neither_do_their_statistics(method):
    training = make_training(method, network={"frozen_layers": 0.35}, optimiser={"weight_decay": 0.1})
    before = state(training)
    list(training.run())
    layers = max(layer_numbers(training.network.backbone).values()) + 1
    first = int(0.35 * layers)
    assert 0 < first < layers
    for name, tensor in training.network.state_dict().items():
        layer = layer_of(training, name)
        frozen = layer is not None and layer < first
        assert torch.equal(tensor, before[name]) == frozen, name


def test_statistics_are_kept_everywhere_though_weights_are_trained():
    training = make_training("lpl", network={"frozen_norm": True})
    before = state(training)
    list(training.run())
    for name, tensor in training.network.state_dict().items():
        kept = name.endswith(("running_mean", "running_var", "num_batches_tracked"))
        assert torch.equal(tensor, before[name]) == kept, name


def test_statistics_follow_the_samples_if_nothing_is_frozen():
    training = make_training("ce")
    before = state(training)
    list(training.run())
    moved = [not torch.equal(t, before[name]) for name, t in training.network.state_dict().items() if "running" in name]
    assert moved
    assert all(moved)


def test_frozen_layers_get_no_gradient_and_no_state():
    training = make_training("ce", network={"frozen_layers": 0.35}, optimiser={"name": "adamw"})
    list(training.run())
    trained = set(training.state.state)
    for parameter in training.network.backbone.parameters():
        assert (parameter in trained) == parameter.requires_grad


def test_learning_rates_decay_with_depth_and_heads_have_their_own():
    optimiser = {"learning_rate": (0.1,), "head_factor": 10.0, "layer_decay": 0.5}
    training = make_training("ce", optimiser=optimiser)
    next(training.run())  # the first step sets the rates
    rates = {id(p): group["lr"] for group in training.state.param_groups for p in group["params"]}
    top = max(layer_numbers(training.network.backbone).values())
    for name, parameter in training.network.named_parameters():
        layer = layer_of(training, name)
        expected = 0.1 * (10 if layer is None else 0.5 ** (top - layer))
        assert rates[id(parameter)] == pytest.approx(expected), name


def test_of_parameters_in_groups_only_those_of_several_dimensions_decay():
    settings = OptimiserSettings(head_factor=2.0, weight_decay=0.3)
    network = make_training("ce").network
    groups = parameter_groups(network, settings)
    decays = {id(p): group["weight_decay"] for group in groups for p in group["params"]}
    assert len(decays) == sum(len(group["params"]) for group in groups) == len(list(network.parameters()))
    for name, parameter in network.named_parameters():
        assert decays[id(parameter)] == (0.3 if parameter.ndim > 1 else 0.0), name


def test_without_factors_there_are_no_groups():
    network = make_training("ce").network
    assert parameter_groups(network, OptimiserSettings()) == list(network.parameters())


def test_parameters_that_are_not_trained_are_in_no_group():
    network = make_training("ce").network
    network.backbone.requires_grad_(False)
    for settings in (OptimiserSettings(), OptimiserSettings(head_factor=2.0)):
        found = parameter_groups(network, settings)
        flat = [p for group in found for p in group["params"]] if settings.head_factor > 1 else found
        assert set(map(id, flat)) == set(map(id, network.heads.parameters()))


def step_length(clip: float) -> float:
    """Length of the first step of plain gradient descent at a learning rate of one."""
    plain = {"name": "sgd", "momentum": 0.0, "weight_decay": 0.0, "learning_rate": (1.0,), "clip": clip}
    training = make_training("ce", optimiser=plain)
    before = [parameter.detach().clone() for parameter in training.network.parameters()]
    next(training.run())
    moved = zip(before, training.network.parameters(), strict=True)
    return math.sqrt(sum((one - other).square().sum().item() for one, other in moved))


def test_clipping_bounds_the_length_of_a_step_and_a_large_bound_changes_nothing():
    free = step_length(0.0)
    assert step_length(free / 3) == pytest.approx(free / 3, rel=1e-3)
    assert step_length(3 * free) == pytest.approx(free, rel=1e-6)


def test_the_learning_rate_grows_linearly_and_then_follows_the_schedule():
    settings = OptimiserSettings(schedule="half-cosine", warm_up=0.1, learning_rate=(1.0,))
    for step in range(200):
        plain = (1 + math.cos(math.pi * step / 200)) / 2
        assert rate_factor(settings, step, 200) == pytest.approx(plain * min(1.0, (step + 1) / 20))
    for name, schedule in SCHEDULES.items():
        unwarmed = OptimiserSettings(schedule=name)
        assert [rate_factor(unwarmed, step, 9) for step in range(9)] == [schedule(step, 9) for step in range(9)]


def test_warm_up_of_less_than_a_step_changes_nothing():
    warm, cold = (OptimiserSettings(warm_up=share) for share in (0.05, 0.0))
    assert [rate_factor(warm, step, STEPS) for step in range(STEPS)] == [
        rate_factor(cold, step, STEPS) for step in range(STEPS)
    ]


@pytest.mark.parametrize("method", ["ce", "lpl+st-soft/cond"])
@pytest.mark.parametrize("killed_after", [1, 7])
def test_a_killed_fine_tuning_ends_in_the_same_bits(method, killed_after, tmp_path):
    whole, first, second = (make_training(method, **EVERYTHING) for _ in range(3))
    reports = list(whole.run())
    for report in first.run():
        if report.step == killed_after:
            break
    write_checkpoint(tmp_path, first.checkpoint())
    checkpoint, problems = read_checkpoint(tmp_path)
    assert problems == []
    second.resume(checkpoint)
    rest = list(second.run())
    assert [report.losses for report in rest] == [report.losses for report in reports[killed_after:]]
    assert [report.learning_rate for report in rest] == [report.learning_rate for report in reports[killed_after:]]
    assert same(whole.checkpoint(), second.checkpoint())
