"""Statistics over seeds: paired tests, corrected for their number and for seeds that were added."""

import math
from itertools import pairwise

import numpy as np
import pytest
from scipy.stats import ttest_1samp, ttest_rel

from leco.reports.comparison import (
    LEVEL,
    MARGIN,
    Comparison,
    Scores,
    average,
    compare,
    decide,
    gap_closed,
    holm,
    last_test,
)

OURS = Scores(dict(enumerate([51.0, 53.0, 52.0, 55.0, 51.5])))
THEIRS = Scores(dict(enumerate([50.0, 51.0, 52.5, 54.0, 50.5])) | {9: 99.0})
FIRST = 0.8


def zeros(count):
    return Scores(dict.fromkeys(range(count), 0.0))


def scores(differences):
    return Scores(dict(enumerate(differences)))


def test_only_seeds_that_both_cells_have_are_compared():
    found = compare(OURS, THEIRS)
    assert found.count == 5
    assert found.gain == pytest.approx((1 + 2 - 0.5 + 1 + 1) / 5)
    pairs = list(OURS.by_seed.values()), list(THEIRS.by_seed.values())[:5]
    assert found.p() == pytest.approx(ttest_rel(*pairs).pvalue / FIRST)


def test_differences_that_are_all_the_same_decide():
    shifted = Scores({seed: score - 1 for seed, score in OURS.by_seed.items()})
    cells = [(OURS, shifted), (shifted, OURS), (OURS, OURS)]
    verdicts = [decide([(compare(*pair), "better")])[0][1] for pair in cells]
    assert verdicts == ["confirmed", "contradicted", "undecided"]


@pytest.mark.parametrize("count", [0, 1, 2, 4])
def test_too_few_seeds_decide_nothing(count):
    found = compare(scores([50.0 + n for n in range(count)]), zeros(count))
    assert (found.p(), found.p("similar"), found.interval, found.count) == (None, None, None, count)
    assert decide([(found, "better"), (found, "similar")]) == [(None, "undecided")] * 2
    assert str(found).startswith("+5" if count else "–")


@pytest.mark.parametrize("shift", [0.0, 0.5, 0.9, 1.1, 2.5])
def test_similar_is_two_one_sided_tests(shift):
    differences = [shift - 0.2, shift, shift + 0.1, shift + 0.1, shift]
    found = compare(scores(differences), zeros(5))
    above = ttest_1samp(differences, -MARGIN, alternative="greater").pvalue
    below = ttest_1samp(differences, MARGIN, alternative="less").pvalue
    beyond = ttest_1samp(differences, MARGIN, alternative="greater").pvalue
    within = shift < 1
    assert found.favours("similar") == ("confirmed" if within else "contradicted")
    assert found.p("similar") == pytest.approx((max(above, below) if within else beyond) / FIRST)


def test_the_interval_is_that_of_a_t_test_at_the_level_of_this_look():
    differences = [1.0, 2.0, 0.5, 1.5, 1.2, 0.7, 1.1, 0.9, 1.3, 1.6]
    for count, share in ((5, 0.8), (10, 0.16)):
        found = compare(scores(differences[:count]), zeros(count)).interval
        expected = ttest_1samp(differences[:count], 0).confidence_interval(1 - LEVEL * share)
        assert found == pytest.approx((expected.low, expected.high))


def test_seeds_beyond_the_last_test_wait_for_the_next():
    differences = [1.0, 2.0, 0.5, 1.5, 1.2, -9.0, -9.0]
    assert compare(scores(differences), zeros(7)) == compare(scores(differences[:5]), zeros(5))


def test_all_tests_together_spend_the_level():
    shares = [last_test(5 * 2**doubled)[1] for doubled in range(12)]
    assert sum(shares) == pytest.approx(1, abs=1e-6)
    assert all(later < sooner for sooner, later in pairwise(shares))
    assert last_test(8, planned=8) == (8, FIRST)


def test_adding_seeds_until_something_is_decided_errs_no_more_often_than_stated():
    draws = np.random.default_rng(0).normal(size=(4_000, 40))
    wrong = 0
    for row in draws:
        looks = (compare(scores(row[:count]), zeros(count)) for count in (5, 10, 20, 40))
        wrong += any((look.p() or 1.0) < LEVEL for look in looks)
    naive = np.mean(
        [any(ttest_1samp(row[:count], 0).pvalue < LEVEL for count in (5, 10, 20, 40)) for row in draws[:1_000]]
    )
    error = math.sqrt(LEVEL * (1 - LEVEL) / len(draws))
    assert wrong / len(draws) < LEVEL + 3 * error
    assert naive > 2 * LEVEL  # which is what the shares are for


def test_the_correction_is_holms():
    assert holm([]) == []
    assert holm([0.04]) == [0.04]
    assert holm([0.01, None, 0.04, 0.03, 0.5]) == pytest.approx([0.04, None, 0.09, 0.09, 0.5])
    assert holm([0.6, 0.7]) == [1.0, 1.0]


def test_of_many_conclusions_that_are_false_one_is_rarely_confirmed():
    generator = np.random.default_rng(1)
    parts = 400
    wrong = 0
    for _ in range(parts):
        found = [compare(scores(generator.normal(size=5)), zeros(5)) for _ in range(18)]
        wrong += any(verdict != "undecided" for _, verdict in decide([(one, "better") for one in found]))
    assert wrong / parts < LEVEL + 3 * math.sqrt(LEVEL * (1 - LEVEL) / parts)


def test_scores_are_written_with_their_sample_standard_deviation():
    assert str(Scores({0: 50.0, 1: 52.0})) == f"51.0 ± {math.sqrt(2):.1f}"
    assert str(Scores({0: 50.0})) == "50.0"
    assert str(Comparison(-1.25, 0.5, 3, 0.0)) == "-1.2 ± 0.5"


def test_the_average_is_over_seeds_that_all_cells_have():
    assert average([OURS, Scores({0: 50.0, 9: 1.0})]).by_seed == {0: 50.5}


def test_the_gap_is_measured_over_seeds_that_all_cells_have():
    assert gap_closed(Scores({0: 55.0, 9: 0.0}), Scores({0: 50.0, 1: 0.0}), Scores({0: 60.0})) == 0.5
    assert gap_closed(Scores({0: 55.0}), Scores({1: 50.0}), Scores({0: 60.0})) is None
    assert gap_closed(Scores({0: 55.0}), Scores({0: 60.0}), Scores({0: 60.0})) is None
