"""Plans from own data: what is chosen, that it can be repeated and resumed, and what is never read."""

import json

import pytest
import torch
from tests.unit.planning.conftest import HISTORY, UNLABELLED
from tests.unit.planning.prepared import prepared

from leco import LecoError
from leco.planning import measure as measuring
from leco.planning.costs import Costs, share_out
from leco.planning.measure import Head
from leco.planning.plan import choose, make_plan, read_plan, save_plan
from leco.planning.simulate import break_even, labels_after, mixtures
from leco.experiments.run import Machine


def test_a_plan_says_what_to_annotate_and_keeps_to_the_budget(planned):
    found = planned
    plan = make_plan(found, 40, Costs(1.0, 0.4, 0.5), "experiment.yaml")
    assert plan["now"]["relabellable"] == HISTORY
    assert plan["now"]["unlabelled"] == UNLABELLED
    for row in plan["alternatives"]:
        assert row["cost"] <= 40 + 1e-9
        assert row["collect"] == max(0, row["new"] - UNLABELLED)
        assert row["low"] <= row["macc"] <= row["high"]
        assert row["macc"] <= plan["chosen"]["macc"] + 1e-9
    assert sum(row["count"] for row in plan["relabel"]) == plan["chosen"]["relabel"]
    assert sum(row["relabel"] for row in plan["classes"]) == pytest.approx(plan["chosen"]["relabel"], abs=1)
    assert sum(row["new"] for row in plan["classes"]) == pytest.approx(plan["chosen"]["new"], abs=1)
    assert 0.5 < plan["now"]["macc"] < plan["chosen"]["macc"] < 1
    assert read_plan(save_plan(found, plan)) == json.loads(json.dumps(plan))


@pytest.mark.usefixtures("few_levels")
def test_the_same_seed_gives_the_same_plan_and_nothing_is_fitted_twice(own, monkeypatch):
    first = make_plan(prepared(own), 40, Costs(1.0, 0.4), "x")
    assert make_plan(prepared(own, own / "elsewhere"), 40, Costs(1.0, 0.4), "x") == first

    def refuse(*_: object) -> None:
        raise AssertionError("fitted again")

    monkeypatch.setattr(Head, "predict", refuse)
    assert make_plan(prepared(own), 40, Costs(1.0, 0.4), "x") == first


@pytest.mark.usefixtures("few_levels")
def test_a_plan_that_was_stopped_goes_on_where_it_was(own, monkeypatch):
    whole = make_plan(prepared(own, own / "whole"), 40, Costs(), "x")
    fit, calls = measuring.fit_head, []

    def stop_at_15(*arguments: object) -> torch.Tensor:
        calls.append(1)
        if len(calls) == 15:
            raise KeyboardInterrupt
        return fit(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(measuring, "fit_head", stop_at_15)
    with pytest.raises(KeyboardInterrupt):
        prepared(own)
    assert make_plan(prepared(own), 40, Costs(), "x") == whole
    assert len(calls) == 4 + 5 * 4 + 1  # priors, levels of five draws, and the one that was cut short


@pytest.mark.usefixtures("few_levels")
def test_asked_to_stop_it_stops_after_the_fit_at_hand(own):
    asked = iter([False, True])
    with pytest.raises(KeyboardInterrupt):
        prepared(own, machine=Machine(stop=lambda: next(asked)))
    assert len(list((own / "runs" / "plans").rglob("0-*.json"))) == 2


@pytest.mark.usefixtures("few_levels")
def test_samples_without_a_label_weigh_nothing(own):
    lines = (own / "labels.csv").read_text().splitlines()
    without = [line for line in lines if ",,," not in line]
    assert len(without) == len(lines) - UNLABELLED
    weight = prepared(own).ground.head.history_weight
    (own / "labels.csv").write_text("\n".join(without) + "\n")
    assert prepared(own).ground.head.history_weight == weight


@pytest.mark.usefixtures("few_levels")
def test_the_test_split_is_never_read(own):
    before = make_plan(prepared(own, own / "a"), 40, Costs(), "x")
    text = (own / "labels.csv").read_text()
    without = [line for line in text.splitlines() if not line.endswith("test")]
    (own / "labels.csv").write_text("\n".join(without) + "\n")
    assert make_plan(prepared(own, own / "b"), 40, Costs(), "x") == before


@pytest.mark.usefixtures("few_levels")
def test_a_plan_is_the_same_whatever_is_wrong_with_the_test_split(own):
    before = make_plan(prepared(own, own / "a", tested=False), 40, Costs(), "x")
    lines = (own / "labels.csv").read_text().splitlines()
    broken = [
        line if not line.endswith("test") else f"gone{number}.npy,none,v2,test" for number, line in enumerate(lines)
    ]
    (own / "labels.csv").write_text("\n".join(broken) + "\n")
    after = prepared(own, own / "a", tested=False)
    assert make_plan(after, 40, Costs(), "x") == before
    assert len(list((own / "a" / "plans").iterdir())) == 1  # what was measured is found again
    with pytest.raises(LecoError, match="60 unknown label, 60 missing file"):
        prepared(own, own / "a")


def test_cheap_relabelling_is_chosen_and_dear_relabelling_is_not(planned):
    found = planned
    cheap, dear = (choose(found.ground.known, found.curves, 40, Costs(1.0, cost)) for cost in (0.1, 5.0))
    assert cheap.best.mixture.relabel == HISTORY
    assert dear.best.mixture.kind == "label-new"
    worth = break_even(found.ground.known, found.curves, 40)
    assert 0 < worth[1] <= worth[0] <= worth[2] <= 1.5


def test_relabelling_moves_a_label_and_labelling_adds_one(planned):
    found = planned
    new, old = (choice for choice in mixtures(found.ground.known, 40, Costs(1.0, 1.0)) if choice.kind != "mixture")
    today = found.curves.today
    after_new, after_old = (labels_after(found.ground.known, today, mixture) for mixture in (new, old))
    torch.testing.assert_close(after_new.new.sum() - today.new.sum(), torch.tensor(40.0).double())
    torch.testing.assert_close(after_old.new.sum() - today.new.sum(), torch.tensor(40.0).double())
    torch.testing.assert_close(after_new.old, today.old)
    torch.testing.assert_close(after_old.old, today.old * (1 - 40 / HISTORY))


def test_a_budget_that_buys_nothing_is_refused(planned):
    with pytest.raises(LecoError, match=r"buys nothing: the cheapest annotation costs 0\.5"):
        make_plan(planned, 0.4, Costs(1.0, 0.5), "x")


def test_too_few_labels_are_refused(own):
    lines = (own / "labels.csv").read_text().splitlines()
    kept = [line for number, line in enumerate(lines) if ",v2,train" not in line or number < 9]
    (own / "labels.csv").write_text("\n".join(kept) + "\n")
    with pytest.raises(LecoError, match="a curve needs 10 at least"):
        prepared(own)


@pytest.mark.usefixtures("few_levels")
def test_what_was_measured_is_refused_when_damaged(own):
    found = prepared(own)
    for name, kept in (("0-*.json", '{"right": "01"}'), ("0-*.json", ""), ("prior.json", '{"prior": 1e999}')):
        path = next(found.ground.folder.glob(name))
        before = path.read_bytes()
        path.write_text(kept)
        with pytest.raises(LecoError, match="is damaged; delete it"):
            prepared(own)
        path.write_bytes(before)


def test_counts_are_shared_out_whole_and_never_above_what_is_there():
    for total in range(0, 24):
        shares = share_out(total, torch.tensor([7, 1, 13]))
        assert sum(shares) == min(total, 21)
        assert all(share <= there for share, there in zip(shares, [7, 1, 13], strict=True))


@pytest.mark.usefixtures("few_levels")
def test_real_training_can_take_the_place_of_the_head(own):
    found = prepared(own, full=True)
    plan = make_plan(found, 40, Costs(1.0, 0.4), "x")
    assert plan["training"] == "full"
    assert plan["now"]["macc"] > 0.3
    results = [json.loads(path.read_text()) for path in (own / "runs" / "stages").glob("*/result.json")]
    assert results
    assert all(result["test"] is None for result in results)
