import pytest
import torch

from leco import LecoClassifier, LecoError
from leco.devices import make_fabric
from leco.experiments import run as running
from leco.experiments.experiment import experiment
from leco.experiments.machine import Machine
from leco.experiments.run import build_network, make_job, run_stage, stored_network
from leco.experiments.stages import plan
from leco.experiments.store import Store
from leco.experiments.train import periods_of
from leco.methods.gaussian import gaussian_head
from leco.methods.linear import linear_head
from leco.training.finish import fit_head, with_head
from leco.training.loop import DivergedError

GAUSSIAN = {"training.finish.head": "gaussian", "training.batches.steps": "20", "training.batches.evaluate_every": "10"}


def planned(tmp_path, method="lpl", **changes):
    wanted = experiment("digits-leco", {"method": method}, GAUSSIAN | changes)
    periods = periods_of(wanted, tmp_path)
    return plan(wanted, periods), periods


def test_the_head_is_fitted_to_features_and_evidence_of_new_samples_and_history(tmp_path):
    stages, periods = planned(tmp_path)
    stage = stages.periods[-1][0]
    job = make_job(stage, periods, 0, make_fabric("cpu"), None)
    network = build_network(stage, periods)
    before = {name: tensor.clone() for name, tensor in network.state_dict().items()}
    found = with_head(network, fit_head(network, job))
    assert all(torch.equal(tensor, before[name]) for name, tensor in network.state_dict().items())
    steps, evidence = job.steps, job.steps.evidence
    ids = torch.cat([steps.new.indices, steps.history.indices])
    rows = [
        evidence.ids(steps.samples.labels[version].read(pool.indices), version)
        for pool, version in ((steps.new, "v2"), (steps.history, "v1"))
    ]
    with torch.no_grad():
        features = network.backbone.eval()(job.normalise(steps.samples.inputs.read(ids)))
    weight, bias = gaussian_head(features, evidence.gather(torch.cat(rows)))
    torch.testing.assert_close(found.heads[-1].weight, weight)
    torch.testing.assert_close(found.heads[-1].bias, bias)


def test_a_method_without_history_fits_new_labels_alone(tmp_path):
    stages, periods = planned(tmp_path, "ce")
    job = make_job(stages.periods[-1][0], periods, 0, make_fabric("cpu"), None)
    assert not len(job.steps.history.indices)
    network = build_network(stages.periods[-1][0], periods)
    assert with_head(network, fit_head(network, job)).heads[-1].weight.isfinite().all()


def test_a_stage_keeps_and_scores_the_fitted_head(tmp_path):
    stages, periods = planned(tmp_path)
    store = Store(tmp_path / "runs")
    for stage in stages.stages:
        run_stage(stage, periods, store, Machine())
    last = stages.periods[-1][0]
    job = make_job(last, periods, 0, make_fabric("cpu"), None)
    kept = stored_network(last, periods, store)
    again = with_head(kept, fit_head(kept, job))  # fitted to the same features
    torch.testing.assert_close(again.heads[-1].weight, kept.heads[-1].weight, rtol=1e-4, atol=1e-5)
    result = store.require(last.fingerprint).model_dump(mode="json", by_alias=True)
    assert result["validation_score"] == result["validation"]["v2"]["macc"] > 0.5


@pytest.mark.parametrize("method", ["ce", "lpl"])
def test_a_stage_fits_a_linear_head_with_and_without_history(tmp_path, method):
    stages, periods = planned(tmp_path, method, **{"training.finish.head": "linear"})
    store = Store(tmp_path / "runs")
    for stage in stages.stages:
        run_stage(stage, periods, store, Machine())
    last = stages.periods[-1][0]
    job = make_job(last, periods, 0, make_fabric("cpu"), None)
    kept = stored_network(last, periods, store)
    again = with_head(kept, fit_head(kept, job, linear_head))  # fitted to the same features
    torch.testing.assert_close(again.heads[-1].weight, kept.heads[-1].weight, rtol=1e-3, atol=1e-4)
    assert store.require(last.fingerprint).validation["v2"].macc > 0.5


def test_an_adjustment_on_top_is_refused(tmp_path):
    with pytest.raises(LecoError, match=r"training\.finish\.adjust: 1 is for trained heads.*set it to 0"):
        planned(tmp_path, **{"training.finish.adjust": "1"})


@pytest.mark.parametrize("head", ["gaussian", "linear", "linear+gaussian"])
def test_the_classifier_has_it_too(head):
    random = torch.Generator().manual_seed(0)
    features = torch.cat([torch.randn(30, 4, generator=random) + 3 * n for n in range(3)]).numpy()
    labels = ["a"] * 30 + ["b"] * 30 + ["c"] * 30
    fitted = LecoClassifier(head=head, steps=1).fit(features, labels)
    assert fitted.score(features, labels) > 0.95
    with pytest.raises(LecoError, match="head"):
        LecoClassifier(head="round").fit(features, labels)


def test_where_features_never_change_one_fit_is_enough(tmp_path, monkeypatch):
    for model, fits in (("linear", 1), ("roots", 1), ("mlp", 3)):
        stages, periods = planned(tmp_path, "ce", **{"training.network.backbone": model})
        seen = []
        monkeypatch.setattr(running, "fit_head", lambda *of, seen=seen: seen.append(1) or fit_head(*of))
        run_stage(stages.stages[0], periods, Store(tmp_path / model), Machine())
        assert len(seen) == fits  # two validations, and the model that is kept


def test_features_that_are_nan_mean_that_training_diverged(tmp_path):
    stages, periods = planned(tmp_path)
    network = build_network(stages.stages[0], periods)
    torch.nn.init.constant_(network.backbone.layers[0].bias, torch.nan)
    job = make_job(stages.stages[0], periods, 0, make_fabric("cpu"), None)
    with pytest.raises(DivergedError, match="features are NaN or infinite"):
        fit_head(network, job)


def test_a_rate_that_diverges_in_its_last_step_is_left_out_of_the_choice(tmp_path):
    changes = {
        "training.optimiser.learning_rate": "1e30,0.05",
        "training.batches.steps": "1",
        "training.batches.evaluate_every": "1",
    }
    stages, periods = planned(tmp_path, "ce", **changes | {"training.finish.head": "trained"})
    store = Store(tmp_path / "runs")
    for stage in stages.periods[0]:
        run_stage(stage, periods, store, Machine(), may_diverge=stages.may_diverge(stage))
    diverged, other = (store.require(stage.fingerprint) for stage in stages.periods[0])
    assert "step 1: predictions at v1 are NaN or infinite" in diverged.diverged
    assert other.test["v1"].macc > 0
