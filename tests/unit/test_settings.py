"""Settings in parts: defaults, what a stage ignores, and where old names went."""

import pytest
from pydantic import ValidationError

from leco.methods.method import ALL_METHODS, Method
from leco.nested import merge, nest
from leco.renamed import MOVED, RENAMED
from leco.settings import NAMES, PARTS, STRATEGIES, BatchSettings, Settings


def test_every_old_name_has_a_place_among_the_new_ones():
    assert {*MOVED.values(), *RENAMED.values()} <= set(NAMES)
    assert not RENAMED.keys() & set(NAMES)
    assert len(set(MOVED.values())) == len(MOVED)


def test_every_setting_and_every_part_is_described():
    for part in PARTS.values():
        assert part.__doc__
        assert [name for name, field in part.model_fields.items() if not field.description] == []


@pytest.mark.parametrize("method", ALL_METHODS, ids=str)
def test_a_stage_forgets_the_settings_that_it_ignores_and_no_others(method):
    everything = Settings.model_validate(
        {
            "network": {"backbone": "mlp", "weights": "pretrained"},
            "pseudo_labels": {"threshold": 0.1, "soft": True, "st_soft_masked": True, "balance": True},
            "history": {"coarse_on_new": False, "mask_contradictions": True},
            "transfer": {"head_steps": 3, "draws_per_view": 9, "max_views": 99},
            "batches": {"steps": 7},
        }
    )
    for strategy in STRATEGIES:
        mine = everything.used_by(method, strategy)
        assert mine == mine.used_by(method, strategy)
        assert (mine.network.backbone, mine.batches.steps) == ("mlp", 7)
        assert mine.network.weights == ("pretrained" if strategy == "scratch" else "random")
        assert (mine.transfer.head_steps, mine.transfer.draws_per_view) == (
            3 if strategy == "lp-ft" else 0,
            9 if strategy == "freeze" else 4,
        )
        assert mine.transfer.max_views == (99 if strategy == "freeze" else 256)
        assert mine.pseudo_labels.threshold == (0.1 if method.pseudo in ("pl", "fixmatch") else 0.95)
        assert mine.pseudo_labels.balance == method.needs_teacher
        assert mine.pseudo_labels.st_soft_masked == (method.pseudo == "st-soft" and method.refine != "cond")
        assert mine.history.coarse_on_new == (method.coarse == "ce")
        assert mine.history.mask_contradictions == (method != Method())


def test_parts_are_frozen_and_know_no_other_settings():
    with pytest.raises(ValidationError, match="frozen"):
        Settings().batches.steps = 3
    with pytest.raises(ValidationError, match="Extra inputs"):
        BatchSettings(stesp=3)
    with pytest.raises(ValidationError, match="must be even, not 7"):
        Settings.model_validate({"batches": {"size": 7}})
    with pytest.raises(ValidationError, match="must be fewer than the 5 steps"):
        Settings.model_validate({"batches": {"steps": 5}, "transfer": {"head_steps": 5}})


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (
            {"network": {"embed": True}},
            "embed: needs pretrained weights; set weights to pretrained, download or a file",
        ),
        ({"network": {"embed": True, "weights": "pretrained", "lora": 2}}, "lora: 2 would train the backbone"),
        ({"loss": {"adjust": 1}, "finish": {"adjust": 0.5}}, "finish.adjust: 0.5, but loss.adjust: 1 already"),
    ],
)
def test_settings_that_contradict_each_other_are_refused(given, message):
    with pytest.raises(ValidationError, match=message):
        Settings.model_validate(given)


def test_learning_rates_are_one_several_or_text():
    for given in (0.5, "0.5", [0.5], ("0.5",)):
        assert Settings.model_validate({"optimiser": {"learning_rate": given}}).learning_rate == 0.5
    several = Settings.model_validate({"optimiser": {"learning_rate": "0.5, 1e-2"}})
    assert several.optimiser.learning_rate == (0.5, 0.01)


def test_nested_and_dotted_settings_are_merged():
    base = {"batches": {"steps": 5, "size": 8}, "network": {"backbone": "mlp"}}
    assert merge(base, nest({"batches.steps": "7", "average.decay": "0"})) == {
        "batches": {"steps": "7", "size": 8},
        "network": {"backbone": "mlp"},
        "average": {"decay": "0"},
    }
    assert base["batches"]["steps"] == 5
