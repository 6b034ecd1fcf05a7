"""Every optimiser goes on from a checkpoint as if nothing had happened."""

import pytest
import torch
from tests.unit.training.test_loop import make_training, same

from leco import LecoError
from leco.experiments.experiment import REGISTERED
from leco.settings import Settings
from leco.training.checkpoint import read_checkpoint, write_checkpoint
from leco.training.finish import HEADS
from leco.training.optimisers import OPTIMISERS, SCHEDULES

pytestmark = pytest.mark.usefixtures("toys")  # which have the optimiser `careful`
CASES = {
    "sgd": {"name": "sgd"},
    "sgd without momentum": {"name": "sgd", "momentum": 0.0},
    "nesterov": {"name": "sgd", "nesterov": True},
    "adamw": {"name": "adamw", "learning_rate": (0.001,)},
    "an own one": {"name": "careful", "schedule": "triangle"},
}


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("killed_after", [1, 7])
def test_a_killed_training_ends_in_the_same_bits(case, killed_after, tmp_path):
    parts = {"optimiser": {"learning_rate": (0.05,)} | CASES[case]}
    whole, first, second = (make_training("lpl", **parts) for _ in range(3))
    losses = [report.losses for report in whole.run()]
    for report in first.run():
        if report.step == killed_after:
            break
    write_checkpoint(tmp_path, first.checkpoint())
    checkpoint, problems = read_checkpoint(tmp_path)
    assert problems == []
    second.resume(checkpoint)
    assert [report.losses for report in second.run()] == losses[killed_after:]
    assert same(whole.checkpoint(), second.checkpoint())


def test_numbers_of_parameters_and_groups_are_saved():
    training = make_training("ce", optimiser={"name": "careful"}, steps=3)
    list(training.run())
    kept = training.checkpoint().notes.optimiser
    assert kept["group 0/largest"] > 0
    assert kept["heads.0.bias/steps"] == 3


def test_an_optimiser_that_keeps_objects_is_refused():
    training = make_training("ce", steps=2)
    training.state.param_groups[0]["generator"] = torch.Generator()
    with pytest.raises(LecoError, match=r"the optimiser 'sgd' cannot be saved: .*Generator.* keep tensors and numbers"):
        training.checkpoint()


def test_settings_that_name_something_know_its_registry():
    for part, name, registry in (
        ("optimiser", "name", OPTIMISERS),
        ("optimiser", "schedule", SCHEDULES),
        ("finish", "head", HEADS),
    ):
        assert REGISTERED[f"{part}.{name}"] is registry
        assert getattr(getattr(Settings(), part), name) in registry
