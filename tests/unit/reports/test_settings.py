"""Settings of stored stages."""

import pytest

from leco.data.benchmarks import BENCHMARKS
from leco.data.benchmarks.benchmark import budget_of
from leco.reports.report import SHOWN
from leco.reports.settings import (
    common_settings,
    describe_budget,
    flatten,
    optional_settings,
    unusual_settings,
)
from leco.settings import NAMES, Settings

DEFAULTS = flatten(Settings().model_dump(mode="json"))


def test_every_setting_that_reports_show_exists():
    assert set(SHOWN.values()) < set(DEFAULTS) == set(NAMES)


def test_settings_away_from_what_a_reader_expects_are_named():
    assert unusual_settings(DEFAULTS) == set()
    assert unusual_settings(DEFAULTS | {"finish.adjust": 0.5, "batches.steps": 7}) == {"finish.adjust"}


def test_optional_settings_are_those_that_a_stage_uses_and_others_do_not():
    assert optional_settings(DEFAULTS, "ce", "finetune") == {}
    assert optional_settings(DEFAULTS, "ce+pl", "finetune").keys() == {
        *("history.mask_contradictions", "pseudo_labels.threshold", "pseudo_labels.soft")
    }
    assert optional_settings(DEFAULTS, "ce", "lp-ft") == {"transfer.head_steps": 0}


def test_common_settings_leave_out_learning_rates_and_optional_ones():
    found = common_settings(DEFAULTS)
    assert {"network.backbone", "optimiser.momentum", "finish.adjust"} < found.keys()
    assert not {"optimiser.learning_rate", "pseudo_labels.threshold", "transfer.head_steps"} & found.keys()


@pytest.mark.parametrize(("budget", "expected"), [("paper", "the paper's"), ("small", "small: ")])
@pytest.mark.parametrize("benchmark", ["cifar-leco-1k", "inat-leco", "cub-leco", "camvid-leco", "mapillary-leco-9k"])
def test_budgets_are_recognised_by_their_settings(benchmark, budget, expected):
    settings = Settings.model_validate(dict(BENCHMARKS[benchmark].settings[budget]))
    assert describe_budget(budget_of(benchmark, settings)).startswith(expected)
    assert budget_of(benchmark, settings.change(batches={"steps": 7})) == "other"
    assert describe_budget(budget_of("labels", settings)) == "own data"
    assert budget_of("digits-leco", settings) == "demo"
