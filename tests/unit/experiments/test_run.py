"""The effect of an experiment's settings on its networks and their training."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from torch import nn

from leco.data.benchmarks import BENCHMARKS
from leco.data.rng import Draws
from leco.devices import make_fabric
from leco.evaluation.evaluate import Judge
from leco.experiments.experiment import experiment
from leco.experiments.grid import shared_periods
from leco.experiments.machine import Machine
from leco.experiments.run import make_network, make_training, previous_network, run_stage
from leco.experiments.stages import plan
from leco.experiments.store import Store
from leco.experiments.train import periods_of
from leco.settings import NetworkSettings


def planned(settings: dict[str, str], **changes: object):
    wanted = experiment(
        "digits-leco", {"method": "ce", "size": 40, **changes}, {"training.batches.steps": "3", **settings}
    )
    periods = periods_of(wanted, Path())
    return periods, plan(wanted, periods)


def test_batch_normalisation_and_momentum_are_as_they_were_set(tmp_path):
    settings = {
        "training.network.backbone": "wrn-10-1",
        "training.network.norm_momentum": "0.25",
        "training.optimiser.nesterov": "true",
    }
    periods, stages = planned(settings)
    stage, store, fabric = stages.stages[0], Store(tmp_path), make_fabric("cpu")
    held_out = periods.annotated(0, "label-new").validation
    judge = Judge(periods, 0, held_out, fabric)
    training, *_ = make_training(stage, store, Machine("cpu"), judge)
    norms = [module for module in training.network.modules() if isinstance(module, nn.BatchNorm2d)]
    assert norms
    assert all(norm.momentum == 0.25 for norm in norms)
    assert [group["nesterov"] for group in training.state.param_groups] == [True]


@pytest.mark.parametrize("head_start", [False, True])
def test_with_a_head_start_a_period_begins_as_the_one_before_ended(head_start, tmp_path):
    periods, stages = planned({}, head_start=head_start)
    first, second = stages.stages
    store = Store(tmp_path)
    run_stage(first, periods, store, Machine("cpu"))
    ids = torch.arange(30)
    inputs = periods.normalise(periods.views.evaluate(periods.pool.inputs.read(ids), Draws(0, 0, ids)))
    before = make_network(first, periods, None)  # untrained, for its shape only
    before.load_state_dict(load_file(store.weights(first.fingerprint)))
    old = before.eval()(inputs)["v1"].argmax(dim=1)
    new = make_network(second, periods, previous_network(second, periods, store)).eval()(inputs)["v2"].softmax(dim=1)
    summed = periods.ontology.evidence().rows(torch.arange(len(periods.ontology["v1"])), "v1").exp()
    agrees = (new @ summed.T).argmax(dim=1) == old
    assert agrees.all() == head_start


def test_pretrained_statistics_fit_grey_images():
    periods, _ = planned({})
    network = NetworkSettings(backbone="resnet18", weights="pretrained")
    grey = periods.modality.normaliser(periods.pool, torch.arange(4), network)
    assert grey(periods.pool.inputs.read(torch.arange(2))).shape == (2, 1, 8, 8)


def test_a_grid_trains_on_what_a_run_trains_on(vistas_root, monkeypatch):
    """Also where the transition is soft: an ontology with shares, and so other periods."""
    small = replace(BENCHMARKS["mapillary-leco-2.5k"], classes=(4, 6), size=10, image_size=40, evaluated=5)
    monkeypatch.setitem(BENCHMARKS._entries, small.name, small)
    found = {}
    for transition in ("tree", "soft"):
        wanted = experiment(
            small.name,
            {"transition": transition},
            {"training.network.backbone": "tiny", "training.network.weights": "random"},
        )
        found[transition] = periods_of(wanted, vistas_root).fingerprint
        assert shared_periods(wanted, vistas_root).fingerprint == found[transition]
    assert found["tree"] != found["soft"]
