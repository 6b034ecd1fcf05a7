from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from torch import nn

from leco.data.rng import Draws
from leco.data.samples import Files, Samples
from leco.devices import make_fabric
from leco.experiments.experiment import experiment
from leco.experiments.machine import Machine
from leco.experiments.run import build_network, make_job, run_stage
from leco.experiments.stages import plan
from leco.experiments.store import Store
from leco.experiments.train import periods_of
from leco.settings import TransferSettings
from leco.training import frozen
from leco.training.frozen import make_bank, number_of_views, on_features

EVERY = TransferSettings(draws_per_view=1)
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
    banked, student = on_features(job, network, TransferSettings())
    views, _ = number_of_views(job, student.heads[0].in_features, TransferSettings())
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
        assert on_features(job, build_network(stage, periods), TransferSettings()) is None


def test_more_draws_per_view_make_a_smaller_bank(tmp_path):
    planned, periods, _ = stages_of("ce", tmp_path)
    job = make_job(planned.periods[-1][0], periods, 0, make_fabric("cpu"), None)
    drawn = 60 * 16 / len(job.steps.new.indices)
    found = [number_of_views(job, 64, TransferSettings(draws_per_view=draws)) for draws in (1, 4, 1_000)]
    assert found == [(int(drawn), int(drawn)), (int(drawn / 4), int(drawn / 4)), (1, 1)]


@pytest.mark.parametrize("fitting", [1, 2, 3])
def test_views_that_do_not_fit_into_memory_are_made_when_their_steps_come(fitting, tmp_path, monkeypatch):
    planned, periods, _ = stages_of("ce", tmp_path)
    stage = planned.periods[-1][0]
    job = make_job(stage, periods, 0, make_fabric("cpu"), None)
    network = build_network(stage, periods)
    network.backbone = Counting(network.backbone)
    samples, features = len(job.steps.new.indices), network.backbone.num_features
    views, _ = number_of_views(job, features, EVERY)
    assert views > fitting
    monkeypatch.setattr(frozen, "_LARGEST", fitting * samples * features * 4)
    assert number_of_views(job, features, EVERY) == (views, fitting)
    banked, _ = on_features(job, network, EVERY)
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
    again, _ = on_features(job, network, EVERY)  # a run that is resumed late has the views of that step
    torch.testing.assert_close(again.views.strong(torch.empty(7, 0), Draws(0, len(job.steps) - 1, ids)), found)


def test_as_many_views_are_made_as_are_asked_for(tmp_path):
    planned, periods, _ = stages_of("ce", tmp_path, "60000")
    job = make_job(planned.periods[-1][0], periods, 0, make_fabric("cpu"), None)
    drawn = 60_000 * 16 // len(job.steps.new.indices)
    assert drawn > 2_000
    for most in (10, 256, 2_000):
        views, _ = number_of_views(job, 64, TransferSettings(draws_per_view=1, max_views=most))
        assert views == min(drawn, most)


@pytest.mark.parametrize("workers", [0, 2])
def test_files_are_read_ahead_for_a_bank(workers, tmp_path):
    planned, periods, _ = stages_of("ce", tmp_path)
    stage = planned.periods[-1][0]
    network, fabric = build_network(stage, periods), make_fabric("cpu")
    found = []
    for pool, count in ((periods.pool, 0), (in_files(periods.pool, tmp_path), workers)):
        job = make_job(stage, replace(periods, pool=pool), count, fabric, None)
        assert pool.in_memory == (pool is periods.pool)
        bank = make_bank(job, network.backbone, "strong", job.steps.new.indices, 2)
        bank.enter(0)
        found.append(bank.features)
    assert torch.equal(*found)


def in_files(samples: Samples, folder: Path) -> Samples:
    """The same samples, of which each input is read from a file."""
    paths = [folder / f"{number}.pt" for number in range(len(samples))]
    for path, image in zip(paths, samples.inputs.read(torch.arange(len(samples))), strict=True):
        torch.save(image.clone(), path)
    return replace(samples, inputs=Files(paths, torch.load))


def test_a_bank_too_large_for_a_single_view_is_not_made(tmp_path, monkeypatch):
    planned, periods, _ = stages_of("ce", tmp_path)
    job = make_job(planned.periods[-1][0], periods, 0, make_fabric("cpu"), None)
    monkeypatch.setattr(frozen, "_LARGEST", 1)
    assert on_features(job, build_network(planned.periods[-1][0], periods), EVERY) is None


def test_the_setting_decides_how_many_views_a_stage_makes(tmp_path, monkeypatch):
    made = []
    monkeypatch.setattr(frozen, "make_bank", lambda *given, **more: made.append(given[-1]) or make_bank(*given, **more))
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
