import json
from typing import get_args

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from leco import LecoError
from leco.data.periods import Annotation, Part, Period, Split, annotate, make_split, stratified_sets


def long_tailed(seed: int, classes: int = 30, samples: int = 1_000) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    weights = 1.0 / torch.arange(1, classes + 1)
    return torch.multinomial(weights, samples, replacement=True, generator=generator)


@given(st.integers(0, 100), st.integers(1, 4), st.sampled_from(["on top", "within", "none"]))
def test_periods_are_disjoint_and_of_the_stated_sizes(seed, count, validation):
    split = make_split("x", [f"v{i}" for i in range(count)], 120, long_tailed(seed), seed, validation=validation)
    sizes = {"on top": (120, 30), "within": (96, 24), "none": (120, 0)}[validation]
    every = []
    for period in split.periods:
        assert (len(period.train), len(period.validation)) == sizes
        every += period.train.tolist() + period.validation.tolist()
    assert len(set(every)) == len(every)
    assert max(every) < 1_000


def test_cifar_10k_has_10000_training_and_2500_validation_samples_balanced_over_classes():
    labels = torch.arange(50_000) % 100
    split = make_split("cifar", ["a", "b"], 10_000, labels, seed=0)
    for period in split.periods:
        assert (len(period.train), len(period.validation)) == (10_000, 2_500)
        assert torch.bincount(labels[period.train]).tolist() == [100] * 100
        assert torch.bincount(labels[period.validation]).tolist() == [25] * 100


@given(st.integers(0, 1_000))
def test_every_set_has_its_proportion_of_every_stratum(seed):
    strata = long_tailed(seed)
    parts = stratified_sets(strata, [300, 200], torch.Generator().manual_seed(seed))
    counts = torch.bincount(strata, minlength=30)
    for part in parts:
        expected = counts * len(part) / len(strata)
        assert (torch.bincount(strata[part], minlength=30) - expected).abs().max() <= 3


def test_what_is_too_rare_for_every_set_goes_to_any_of_them_equally_often():
    strata = torch.cat([torch.zeros(396, dtype=torch.int64), torch.arange(1, 5)])  # four classes of one sample
    counts = torch.zeros(4)
    for seed in range(200):
        parts = stratified_sets(strata, [100] * 4, torch.Generator().manual_seed(seed))
        counts += torch.tensor([float((strata[part] > 0).sum()) for part in parts])
    assert counts.sum() == 800
    assert (counts - 200).abs().max() < 50  # four standard deviations


def test_rare_classes_are_drawn_from_a_large_pool_as_often_as_their_share():
    strata = torch.cat([torch.zeros(5_000, dtype=torch.int64), torch.arange(1, 101).repeat_interleave(5)])
    drawn = [
        int((strata[stratified_sets(strata, [200], torch.Generator().manual_seed(seed))[0]] > 0).sum())
        for seed in range(50)
    ]
    assert sum(drawn) / len(drawn) == pytest.approx(200 * 500 / 5_500, rel=0.15)


def test_the_same_seed_gives_the_same_split_and_another_seed_another():
    strata = long_tailed(0)
    prints = [make_split("x", ["a", "b"], 100, strata, seed).fingerprint for seed in (0, 0, 1)]
    assert prints[0] == prints[1] != prints[2]


@pytest.mark.parametrize(("validation", "held_out"), [("on top", 125), ("within", 100), ("none", 0)])
def test_a_pool_that_is_too_small_is_named_with_the_size_that_fits(validation, held_out):
    strata, train = torch.zeros(901).long(), 500 - 100 * (validation == "within")
    message = (
        f"x: 2 periods of {train} samples and {held_out} for validation need [0-9,]+, but there are 901; .* at most "
    )
    with pytest.raises(LecoError, match=message) as refused:
        make_split("x", ["a", "b"], 500, strata, 0, validation=validation)
    most = int(str(refused.value).rpartition(" ")[2])
    make_split("x", ["a", "b"], most, strata, 0, validation=validation)
    with pytest.raises(LecoError):
        make_split("x", ["a", "b"], most + 2, strata, 0, validation=validation)
    with pytest.raises(LecoError, match="x: a period must have at least 1 sample, not 0"):
        make_split("x", ["a", "b"], 0, strata, 0, validation=validation)


def test_an_index_file_gives_the_same_split_back_and_notices_any_change(tmp_path):
    split = make_split("x", ["a", "b"], 100, long_tailed(0), 3)
    path = tmp_path / "split.json"
    split.save(path)
    again = Split.load(path)
    assert (again.name, again.seed, again.fingerprint) == ("x", 3, split.fingerprint)
    assert torch.equal(again.periods[1].validation, split.periods[1].validation)
    content = json.loads(path.read_text())
    content["periods"][0]["train"][0] += 1
    for changed in (content, json.loads(path.read_text()) | {"seed": 4}):
        path.write_text(json.dumps(changed))
        with pytest.raises(LecoError, match=r"the fingerprint is .*, but that of the indices is"):
            Split.load(path)
    for seed in (-1, 2**63):
        with pytest.raises(LecoError, match="a seed must be an integer from 0"):
            make_split("x", ["a"], 100, long_tailed(0), seed)
    twice = Split("x", 0, (Period("a", torch.tensor([1, 2]), torch.tensor([2])),))
    twice.save(path)
    with pytest.raises(LecoError, match="duplicate or negative sample index"):
        Split.load(path)
    for broken in ("{}", "[]", '{"periods": [{"version": "a", "train": ["x"], "validation": []}]}', "{"):
        path.write_text(broken)
        with pytest.raises(LecoError, match=r"split\.json"):
            Split.load(path)


@pytest.fixture
def three() -> Split:
    parts = torch.arange(30).split(5)
    return Split("x", 0, tuple(Period(f"v{t}", parts[2 * t], parts[2 * t + 1]) for t in range(3)))


def described(part: Part) -> tuple[str, list[int]]:
    return part.version, part.indices.tolist()


def test_label_new_keeps_the_history_with_its_old_labels(three):
    annotated = annotate(three, 2, "label-new")
    assert described(annotated.newest) == ("v2", list(range(20, 25)))
    assert [described(part) for part in annotated.history] == [("v0", list(range(5))), ("v1", list(range(10, 15)))]
    assert described(annotated.validation) == ("v2", list(range(25, 30)))


def test_relabel_old_relabels_the_first_samples_and_uses_no_others(three):
    annotated = annotate(three, 2, "relabel-old")
    assert described(annotated.newest) == ("v2", list(range(5)))
    assert annotated.history == ()
    assert described(annotated.validation) == ("v2", list(range(5, 10)))


def test_all_fine_relabels_everything_so_far(three):
    annotated = annotate(three, 1, "all-fine")
    assert described(annotated.newest) == ("v1", [*range(5), *range(10, 15)])
    assert annotated.history == ()
    assert described(annotated.validation) == ("v1", [*range(5, 10), *range(15, 20)])


def test_a_mixture_relabels_a_share_of_the_first_samples_and_keeps_the_rest_as_history(three):
    annotated = annotate(three, 2, "relabel-25")
    assert described(annotated.newest) == ("v2", [0, 4, 21, 22, 23])
    assert [described(part) for part in annotated.history] == [("v0", [1, 2, 3]), ("v1", list(range(10, 15)))]
    assert described(annotated.validation) == ("v2", [5, 9, 26, 27, 28])


@pytest.mark.parametrize(("strategy", "share"), [("relabel-25", 0.25), ("relabel-50", 0.5), ("relabel-75", 0.75)])
def test_every_mixture_costs_one_period_of_labels(strategy, share):
    split = make_split("x", ["a", "b"], 100, long_tailed(0), 0)
    annotated = annotate(split, 1, strategy)
    assert len(annotated.newest.indices) == 100
    assert torch.isin(annotated.newest.indices, split.periods[0].train).sum() == 100 * share
    assert len(annotated.history[0].indices) == 100 * (1 - share)
    everything = torch.cat([annotated.newest.indices, annotated.history[0].indices, annotated.validation.indices])
    assert len(everything.unique()) == len(everything)


def test_unlabelled_samples_follow_the_history_and_are_said_to_be_of_the_newest_version(three):
    annotated = annotate(three, 1, "with-unlabelled", torch.tensor([40, 41]))
    assert [described(part) for part in annotated.history] == [("v0", list(range(5))), ("v1", [40, 41])]
    assert described(annotated.newest) == described(annotate(three, 1, "label-new").newest)
    with pytest.raises(LecoError, match="x: with-unlabelled: all samples belong to periods"):
        annotate(three, 1, "with-unlabelled", torch.zeros(0, dtype=torch.int64))


@pytest.mark.parametrize("strategy", get_args(Annotation))
def test_in_the_first_period_all_strategies_are_one(three, strategy):
    annotated = annotate(three, 0, strategy)
    assert described(annotated.newest) == ("v0", list(range(5)))
    assert annotated.history == ()


def test_unknown_strategies_and_periods_are_named(three):
    with pytest.raises(LecoError, match=r"'label-old' is not an annotation strategy; did you mean 'relabel-old'\?"):
        annotate(three, 1, "label-old")
    with pytest.raises(LecoError, match="has no period 3; valid: 0 to 2"):
        annotate(three, 3, "label-new")
