import pytest
import torch
from safetensors.torch import load_file
from torch import nn

from leco.data.rng import Draws
from leco.devices import make_fabric
from leco.experiments.experiment import experiment
from leco.experiments.machine import Machine
from leco.experiments.run import build_network, make_job, run_stage
from leco.experiments.stages import plan
from leco.experiments.store import Store
from leco.experiments.train import periods_of
from leco.training import frozen
from leco.training.frozen import make_bank, number_of_views, on_features

SETTINGS = {"training.network.backbone": "wrn-10-1", "training.batches.steps": "60", "training.batches.size": "16"}


def stages_of(method, tmp_path, steps="60", strategy="freeze"):
    torch.set_num_threads(1)
    wanted = experiment(
        "digits-leco", {"method": method, "strategy": strategy}, SETTINGS | {"training.batches.steps": steps}
    )
    periods = periods_of(wanted, tmp_path)
    return plan(wanted, periods), periods, Store(tmp_path / "runs")


class Counting(nn.Module):
    """A backbone that counts the images it sees."""

    def __init__(self, backbone):
        super().__init__()
        self.backbone, self.seen = backbone, 0
        self.num_features = backbone.num_features

    def forward(self, images):
        self.seen += len(images)
        return self.backbone(images)


@pytest.mark.parametrize("method", ["lpl+st-hard/cond", "joint+fixmatch"])
def test_a_frozen_backbone_stays_what_it_was_and_its_heads_learn(method, tmp_path):
    planned, periods, store = stages_of(method, tmp_path, "200")
    for stage in planned.stages:
        run_stage(stage, periods, store, Machine("cpu"))
    (first,), (last,) = planned.periods
    before, after = (load_file(store.weights(stage.fingerprint)) for stage in (first, last))
    frozen = [name for name in before if name.startswith("backbone.")]
    assert frozen
    assert all(torch.equal(before[name], after[name]) for name in frozen)
    assert store.require(last.fingerprint).test["v2"].macc > 0.3  # chance is 0.1


def test_a_bank_has_the_features_of_the_views_of_the_first_steps(tmp_path):
    planned, periods, _ = stages_of("ce+fixmatch", tmp_path)
    stage = planned.periods[-1][0]
    job = make_job(stage, periods, 0, make_fabric("cpu"), None)
    network = build_network(stage, periods)
    network.backbone = Counting(network.backbone)
    banked, student = on_features(job, network, 4)
    views, _ = number_of_views(job, student.heads[0].in_features, 4)
    ids = job.steps.new.indices[:1]
    for bank in (banked.views.strong, banked.views.weak):
        bank(torch.empty(1, 0), Draws(0, 0, ids))
    drawn = torch.cat([job.steps.new.indices, job.steps.history.indices]).unique()
    assert network.backbone.seen == views * (
        len(drawn) + len(job.steps.history.indices)
    )  # all strong, old ones weak, too
    assert student.heads is network.heads

    ids = drawn[:5]
    with torch.no_grad():
        expected = [
            network.backbone(job.normalise(job.views.strong(job.steps.samples.inputs.read(ids), Draws(0, number, ids))))
            for number in range(views)
        ]
    found = banked.views.strong(torch.empty(5, 0), Draws(0, 77, ids))
    distances = (torch.stack(expected, dim=1) - found[:, None]).abs().amax(dim=2)
    assert (distances.amin(dim=1) < 1e-5).all()


def test_a_bank_is_made_only_where_it_saves_something(tmp_path):
    for steps, strategy in (("2", "freeze"), ("60", "finetune")):
        planned, periods, _ = stages_of("ce", tmp_path, steps, strategy)
        stage = planned.periods[-1][0]
        job = make_job(stage, periods, 0, make_fabric("cpu"), None)
        assert on_features(job, build_network(stage, periods), 4) is None


def test_more_draws_per_view_make_a_smaller_bank(tmp_path):
    planned, periods, _ = stages_of("ce", tmp_path)
    job = make_job(planned.periods[-1][0], periods, 0, make_fabric("cpu"), None)
    drawn = 60 * 16 / len(job.steps.new.indices)
    found = [number_of_views(job, 64, draws) for draws in (1, 4, 1_000)]
    assert found == [(int(drawn), int(drawn)), (int(drawn / 4), int(drawn / 4)), (1, 1)]


@pytest.mark.parametrize("fitting", [1, 2, 3])
def test_views_that_do_not_fit_into_memory_are_made_when_their_steps_come(fitting, tmp_path, monkeypatch):
    planned, periods, _ = stages_of("ce", tmp_path)
    stage = planned.periods[-1][0]
    job = make_job(stage, periods, 0, make_fabric("cpu"), None)
    network = build_network(stage, periods)
    network.backbone = Counting(network.backbone)
    samples, features = len(job.steps.new.indices), network.backbone.num_features
    views, _ = number_of_views(job, features, 1)
    assert views > fitting
    monkeypatch.setattr(frozen, "_LARGEST", fitting * samples * features * 4)
    assert number_of_views(job, features, 1) == (views, fitting)
    banked, _ = on_features(job, network, 1)
    bank, ids = banked.views.strong, job.steps.new.indices[:7]
    inputs = job.steps.samples.inputs.read(ids)
    with torch.no_grad():
        every = [
            network.backbone.backbone(job.normalise(job.views.strong(inputs, Draws(0, number, ids))))
            for number in range(views)
        ]
    drawn = set()
    for step in range(len(job.steps)):
        found = bank(torch.empty(7, 0), Draws(0, step, ids))
        assert bank.features.shape[1] <= fitting
        near = torch.stack([(view - found).abs().amax(dim=1) < 1e-5 for view in every])
        assert near.any(dim=0).all()
        drawn |= set(near.nonzero()[:, 0].tolist())
    assert drawn == set(range(views))
    assert network.backbone.seen == views * samples  # each once
    again, _ = on_features(job, network, 1)  # a run that is resumed late has the views of that step
    torch.testing.assert_close(again.views.strong(torch.empty(7, 0), Draws(0, len(job.steps) - 1, ids)), found)


def test_a_bank_too_large_for_a_single_view_is_not_made(tmp_path, monkeypatch):
    planned, periods, _ = stages_of("ce", tmp_path)
    job = make_job(planned.periods[-1][0], periods, 0, make_fabric("cpu"), None)
    monkeypatch.setattr(frozen, "_LARGEST", 1)
    assert on_features(job, build_network(planned.periods[-1][0], periods), 1) is None


def test_the_setting_decides_how_many_views_a_stage_makes(tmp_path, monkeypatch):
    made = []
    monkeypatch.setattr(frozen, "make_bank", lambda *given: made.append(given[-2]) or make_bank(*given))
    for draws in ("1", "1000"):
        wanted = experiment(
            "digits-leco",
            {"method": "ce", "strategy": "freeze"},
            SETTINGS | {"training.transfer.draws_per_view": draws},
        )
        periods, store = periods_of(wanted, tmp_path), Store(tmp_path / "runs")
        for stage in plan(wanted, periods).stages:
            run_stage(stage, periods, store, Machine("cpu"))
    several, one = made
    assert several > one == 1
