"""Plans from own data."""

import json
import re

import pytest
from tests.commands import assert_refused
from tests.unit.planning.conftest import HISTORY, UNLABELLED

from leco import LecoError
from leco.planning.plan import make_plan, save_plan
from leco.planning.record import read_plan
from leco.planning.strategies import Costs


def test_a_plan_says_what_to_annotate_and_keeps_to_the_budget(planned):
    plan = make_plan(planned, 40, Costs(1.0, 0.4, 0.5), "experiment.yaml")
    assert plan.now.relabellable == HISTORY
    assert plan.now.unlabelled == UNLABELLED
    for row in plan.alternatives:
        assert row.cost <= 40 + 1e-9
        assert row.collect == max(0, row.new - UNLABELLED)
        assert row.low <= row.macc <= row.high
        assert row.macc <= plan.chosen.macc + 1e-9
    assert sum(row.count for row in plan.relabel) == plan.chosen.relabel
    assert sum(row.relabel for row in plan.classes) == pytest.approx(plan.chosen.relabel, abs=1)
    assert sum(row.new for row in plan.classes) == pytest.approx(plan.chosen.new, abs=1)
    assert 0.5 < plan.now.macc < plan.chosen.macc < 1
    assert read_plan(save_plan(planned, plan)) == plan


def test_a_budget_that_buys_nothing_is_refused(planned):
    with pytest.raises(LecoError, match=r"buys nothing; the cheapest annotation costs 0\.5"):
        make_plan(planned, 0.4, Costs(1.0, 0.5), "x")


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ("[]", "Input should be an object"),
        ("{", "Invalid JSON"),
        ({"format": 0}, "format: Input should be greater than or equal to 1, not 0"),
        ({"chosen": [1]}, "chosen: Input should be an object"),
        ({"seed": True}, "seed: Input should be a valid integer, not True"),
        ({"versions": []}, "versions: Tuple should have at least 1 item"),
        ({"budget": float("inf")}, "budget: Input should be a finite number, not inf"),
    ],
)
def test_files_that_are_not_plans_are_refused(planned, tmp_path, change, problem):
    plan = make_plan(planned, 40, Costs(1.0, 0.4, 0.5), "x").model_dump(mode="json", by_alias=True)
    (tmp_path / "plan.json").write_text(change if isinstance(change, str) else json.dumps(plan | change))
    remedy = "; make a new one with `leco plan`"
    with pytest.raises(
        LecoError, match=rf"plan\.json: is damaged, or of another version .*{re.escape(problem)}.*{remedy}"
    ):
        read_plan(tmp_path / "plan.json")


def test_wrong_budgets_are_refused(own):
    budget = ["plan", "experiment.yaml", "--budget"]
    assert_refused([*budget, "0"], "--budget: must be greater than 0 and at most 1e+12, not 0", own)
    assert_refused([*budget, "nan"], "not nan", own)
    assert_refused([*budget, "5", "--cost-new", "-1"], "--cost-new: must be greater than 0", own)
    assert_refused([*budget, "5", "-o", "missing/plan.json"], "its folder does not exist", own)
    assert_refused([*budget, "5", "-o", "labels.csv"], "labels.csv: was not written by leco; choose another file", own)
