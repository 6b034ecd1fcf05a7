"""Experiments as graphs of stages: sharing, selection, and every cell of the paper."""

import json
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from tests.trainings import assert_consistent

from leco import LecoError
from leco.dataset import Periods
from leco.experiments.experiment import Experiment, experiment
from leco.experiments.machine import Machine
from leco.experiments.run import run_stage, starting_weights, stored_network
from leco.experiments.stages import Plan, choose, plan, stage_names
from leco.experiments.store import Store
from leco.experiments.train import periods_of
from leco.methods.method import ALL_METHODS

SHORT = {"training.batches.steps": "2", "training.batches.evaluate_every": "1", "training.batches.size": "16"}


def make(settings: dict[str, str] | None = None, **changes: object) -> tuple[Experiment, Periods, Plan]:
    wanted = experiment("digits-leco", changes, settings or {})
    periods = periods_of(wanted, Path())
    return wanted, periods, plan(wanted, periods)


def last(settings: dict[str, str] | None = None, **changes: object) -> str:
    return make(settings, **changes)[2].periods[-1][0].fingerprint


def run(stages: Plan, periods: Periods, store: Store) -> int:
    """Train the missing stages, and return their number."""
    missing = [stage for stage in stages.stages if store.result(stage.fingerprint) is None]
    for stage in missing:
        run_stage(stage, periods, store, Machine("cpu"))
    return len(missing)


def test_stages_differ_where_anything_they_depend_on_does():
    changed = [
        *(last(), last(seed=1), last(method="lpl"), last(strategy="scratch"), last(annotation="all-fine")),
        *(
            last(head_start=True),
            last({"training.batches.steps": "5"}),
            last({"training.optimiser.learning_rate": "0.1"}),
        ),
        *(last(method="lpl+pl"), last({"training.pseudo_labels.threshold": "0.5"}, method="lpl+pl"), last(size=100)),
    ]
    assert len(set(changed)) == len(changed)
    assert last() == last()


def test_what_a_stage_does_not_use_does_not_make_it_another():
    assert last({"training.pseudo_labels.threshold": "0.5"}, method="lpl") == last(method="lpl")
    first = [make(**changes)[2].periods[0][0] for changes in ({}, {"head_start": True}, {"strategy": "lp-ft"})]
    assert len({stage.fingerprint for stage in first}) == 1


def test_ways_to_save_memory_make_no_other_stage_where_results_are_the_same():
    saving = {"training.network.recompute": "true", "training.network.shard": "true"}
    assert last(saving) == last()
    assert last({"training.batches.parts": "2"}) != last()  # BatchNorm normalises each part by itself
    frozen = make(saving, strategy="freeze")[2].periods[-1][0].training.network  # whose blocks keep nothing anyway
    assert (frozen.recompute, frozen.shard) == (False, False)


def test_a_stage_can_be_identified_without_its_test_set():
    wanted, periods, whole = make(method="lpl+st-hard/cond")
    untested = plan(wanted, periods.without_test())
    assert [stage.untested for stage in whole.stages] == untested.stages
    assert [stage.untested for stage in untested.stages] == untested.stages
    assert not set(whole.stages) & set(untested.stages)  # they lack test scores
    assert periods_of(wanted, Path(), tested=False).fingerprint == periods.learned


def test_each_stage_is_renamed_once_however_many_need_it():
    rates = {"training.optimiser.learning_rate": "0.1, 0.01"}
    first, last = make(rates, method="lpl+st-hard/cond")[2].periods
    assert all(
        mine is stage.untested for student in last for mine, stage in zip(student.untested.previous, first, strict=True)
    )


def test_a_teacher_is_the_plain_model_of_its_period_and_learning_rate():
    rates = {"training.optimiser.learning_rate": "0.1, 0.01"}
    students = make(rates, method="joint+st-hard")[2].periods[1]
    plain = make(rates, method="ce")[2].periods[1]
    assert [student.teacher for student in students] == list(plain)


def test_a_grid_over_weight_decay_is_one_over_learning_rates():
    grid = {"training.optimiser.learning_rate": "0.1, 0.01", "training.optimiser.weight_decay": "1e-3,1e-5"}
    stages = make(grid | SHORT, method="lpl+st-hard")[2]
    expected = [(0.1, 1e-3), (0.1, 1e-5), (0.01, 1e-3), (0.01, 1e-5)]
    for candidates in stages.periods:
        assert [(s.training.learning_rate, s.training.optimiser.weight_decay) for s in candidates] == expected
    for student in stages.periods[1]:
        assert student.previous == stages.periods[0]
        assert student.teacher.training.optimiser == student.training.optimiser
    names = stage_names(stages.stages).values()
    assert len(set(names)) == len(stages.stages) == 12
    assert "TP1 ce, lr 0.01, weight decay 1e-05" in names
    one = make({"training.optimiser.weight_decay": "1e-3"})[2].periods[0][0]
    assert one == make({"training.optimiser.weight_decay": "0.001"})[2].periods[0][0]
    assert list(stage_names([one]).values()) == [str(one)]
    assert json.loads(json.dumps(one.config()))["training"]["optimiser"]["weight_decay"] == 0.001


@pytest.mark.parametrize("decay", ["", "1e-3,x", "-1", "[]"])
def test_a_weight_decay_that_is_no_number_is_refused(decay):
    with pytest.raises(LecoError, match="weight_decay"):
        make({"training.optimiser.weight_decay": decay})


def test_training_from_random_weights_ignores_those_of_the_network():
    small = {"training.network.backbone": "wrn-10-1", **SHORT}
    scratch, random = (make(small, method="lpl", strategy=name)[2].periods[1][0] for name in ("scratch", "random"))
    assert scratch == random  # there are no other weights
    assert random.strategy == "scratch"


def test_training_from_random_weights_is_another_stage_where_networks_start_from_others(monkeypatch):
    monkeypatch.setattr("leco.experiments.stages.find_weights", lambda *_: SimpleNamespace(digest="abc"))
    pretrained = {"training.network.backbone": "resnet18", "training.network.weights": "pretrained", **SHORT}
    plans = {name: make(pretrained, method="ce", strategy=name)[2].periods for name in ("scratch", "random")}
    assert plans["scratch"][0] == plans["random"][0]  # TP0 starts from them
    (scratch,), (random,) = (periods[1] for periods in plans.values())
    assert (scratch.weights, scratch.training.network.weights) == ("abc", "pretrained")
    assert (random.weights, random.training.network.weights, random.previous) == ("", "random", ())
    assert random.strategy == "random"  # as the paper's tables name it
    assert starting_weights(random) is None


def test_training_from_scratch_waits_for_nothing():
    assert make(strategy="scratch", method="ce")[2].periods[1][0].previous == ()


def test_every_cell_of_the_paper_can_be_trained_and_shares_what_it_can(tmp_path):
    store, trained = Store(tmp_path), 0
    for method in ALL_METHODS:
        _, periods, stages = make(SHORT | {"training.network.backbone": "linear"}, method=str(method))
        trained += run(stages, periods, store)
        result = store.require(stages.periods[-1][0].fingerprint).model_dump(mode="json", by_alias=True)
        assert_consistent(result["test"]["v2"])
        assert set(result["pseudo_labels"]) == (set() if method.pseudo == "none" else {"kept", "agreement"})
        if method.refine == "cond" and method.needs_teacher:
            assert result["pseudo_labels"]["kept"] == 1  # nothing is rejected
    assert trained == 1 + len(ALL_METHODS)  # TP0 once; the teachers are the `ce` cell


def test_the_next_period_starts_from_the_learning_rate_that_is_best_on_validation(tmp_path):
    store = Store(tmp_path)
    wanted, periods, stages = make(
        SHORT | {"training.optimiser.learning_rate": "1e-6, 0.1", "training.batches.steps": "60"}, method="ce"
    )
    assert wanted.training.optimiser.learning_rate == (1e-6, 0.1)
    assert run(stages, periods, store) == 4
    chosen = choose(stages.periods[0], store)
    scores = [store.require(stage.fingerprint).validation_score for stage in stages.periods[0]]
    assert store.require(chosen.fingerprint).validation_score == max(scores)
    assert chosen.training.learning_rate == 0.1
    # At a rate of next to nothing, the second period still has the features it started from: those of the chosen one.
    slow = stored_network(stages.periods[1][0], periods, store).backbone.layers[0].weight
    assert (slow - stored_network(chosen, periods, store).backbone.layers[0].weight).abs().max() < 1e-3


def test_a_stage_folder_records_everything_that_made_it(tmp_path):
    store = Store(tmp_path)
    _, periods, stages = make(SHORT, method="lpl+pl/cond")
    run(stages, periods, store)
    stage = stages.periods[-1][0]
    folder = tmp_path / "stages" / stage.fingerprint
    config = json.loads((folder / "config.json").read_text())
    assert config["source"] == "digits-leco, 200 samples a period, tree transition"
    assert (config["method"], config["seed"], config["training"]["batches"]["steps"]) == ("lpl+pl/cond", 0, 2)
    assert config["previous"] == [stages.periods[0][0].fingerprint]
    assert sorted(path.name for path in folder.iterdir()) == [
        *(
            "SHA256SUMS",
            "bundle.json",
            "config.json",
            "metrics.jsonl",
            "model.safetensors",
            "result.json",
            "summary.json",
        )
    ]
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    assert [line["step"] for line in lines] == [1, 2]
    assert set(lines[0]["means"]) == {"ce", "lpl", "pl/cond", "kept", "agreement"}


@pytest.mark.parametrize("method", ["ce", "lpl", "joint+fixmatch"])
def test_every_method_sees_as_many_images_a_step(method):
    from leco.devices import make_fabric
    from leco.evaluation.evaluate import Judge
    from leco.experiments.run import make_training

    _, periods, stages = make(SHORT, method=method, strategy="scratch")
    stage, fabric = stages.periods[-1][0], make_fabric("cpu")
    judge = Judge(periods, 1, periods.annotated(1, "label-new").validation, fabric)
    training, *_ = make_training(stage, Store(Path("nowhere")), Machine("cpu"), judge)
    assert {len(training.job.steps[step]) for step in range(2)} == {16}


def test_judging_moves_no_statistics():
    from leco.devices import make_fabric
    from leco.evaluation.evaluate import Judge
    from leco.experiments.run import build_network

    _, periods, stages = make(SHORT | {"training.network.backbone": "wrn-10-1"}, method="ce", strategy="scratch")
    network = build_network(stages.periods[-1][0], periods).train()
    before = {name: tensor.clone() for name, tensor in network.state_dict().items()}
    judge = Judge(periods, 1, periods.annotated(1, "label-new").validation, make_fabric("cpu"))
    assert judge.score(network) == judge.validation(network)["v2"].macc
    assert network.training
    assert all(torch.equal(before[name], tensor) for name, tensor in network.state_dict().items())


def test_the_model_that_was_best_on_validation_is_kept_and_not_the_last(tmp_path, monkeypatch):
    from leco.evaluation.evaluate import Judge

    seen: list[dict[str, torch.Tensor]] = []

    def worse_and_worse(_: Judge, network: torch.nn.Module) -> float:
        seen.append({name: tensor.clone() for name, tensor in network.state_dict().items()})
        return 1.0 / len(seen)

    monkeypatch.setattr(Judge, "score", worse_and_worse)
    store = Store(tmp_path)
    _, periods, stages = make(SHORT | {"training.batches.steps": "3"}, method="ce", strategy="scratch")
    stage = stages.periods[-1][0]
    run_stage(stage, periods, store, Machine("cpu"))
    assert store.require(stage.fingerprint).best_step == 1
    kept = stored_network(stage, periods, store).state_dict()
    assert all(torch.equal(kept[name], seen[0][name]) for name in kept)
    assert not all(torch.equal(kept[name], seen[-1][name]) for name in kept)


def test_one_learning_rate_of_several_may_diverge(tmp_path):
    store = Store(tmp_path)
    _, periods, stages = make(
        SHORT | {"training.optimiser.learning_rate": "1e30, 0.05", "training.batches.steps": "8"}, method="lpl+st-hard"
    )
    for stage in stages.stages:
        run_stage(stage, periods, store, Machine("cpu"), may_diverge=stages.may_diverge(stage))
    chosen = [choose(candidates, store).training.learning_rate for candidates in stages.periods]
    assert chosen == [0.05, 0.05]
    wild = store.require(stages.periods[1][0].fingerprint)
    assert "its teacher: step" in wild.diverged
    for every, problem in (("8", "the loss of the term 'ce' is"), ("1", "step 1: predictions at v1 are NaN")):
        changes = {
            "training.optimiser.learning_rate": "1e30",
            "training.batches.steps": "8",
            "training.batches.evaluate_every": every,
        }
        _, periods, alone = make(SHORT | changes, method="ce")
        with pytest.raises(LecoError, match=problem):
            run(alone, periods, store)


def test_without_history_there_are_no_pseudo_labels_and_no_teacher():
    stages = make(method="lpl+st-hard/cond", annotation="all-fine")[2]
    assert [str(stage.method) for stage in stages.stages] == ["ce", "lpl"]


def test_lp_ft_trains_the_heads_alone_for_a_tenth_of_the_steps():
    assert make({"training.batches.steps": "300"}, strategy="lp-ft")[2].periods[1][0].training.transfer.head_steps == 30
