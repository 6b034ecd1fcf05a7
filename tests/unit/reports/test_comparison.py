"""Statistics over seeds."""

import math

import pytest
from scipy.stats import ttest_1samp, ttest_rel

from leco.reports.comparison import MARGIN, Comparison, Scores, average, compare, gap_closed

OURS = Scores({0: 51.0, 1: 53.0, 2: 52.0, 3: 55.0})
THEIRS = Scores({0: 50.0, 1: 51.0, 2: 52.5, 4: 99.0})


def test_only_seeds_that_both_cells_have_are_compared():
    found = compare(OURS, THEIRS)
    assert found.count == 3
    assert found.gain == pytest.approx((1 + 2 - 0.5) / 3)
    assert found.p == ttest_rel([51, 53, 52], [50, 51, 52.5]).pvalue
    assert found.better == "undecided"


def test_differences_that_are_all_the_same_decide():
    shifted = Scores({seed: score - 1 for seed, score in OURS.by_seed.items()})
    assert (compare(OURS, shifted).better, compare(shifted, OURS).better) == ("confirmed", "contradicted")
    assert compare(OURS, OURS).better == "undecided"


@pytest.mark.parametrize("theirs", [Scores({7: 1.0}), Scores({0: 1.0})], ids=["no common seed", "one common seed"])
def test_too_few_seeds_decide_nothing(theirs):
    found = compare(OURS, theirs)
    assert (found.better, found.similar, found.p) == ("undecided", "undecided", None)
    assert str(found) == ("+50.0" if found.count else "–")


@pytest.mark.parametrize("shift", [0.0, 0.5, 0.9, 1.1, 2.5])
def test_similar_is_two_one_sided_tests(shift):
    differences = [shift - 0.2, shift, shift + 0.1, shift + 0.1]
    found = compare(Scores(dict(enumerate(differences))), Scores(dict.fromkeys(range(4), 0.0)))
    above = ttest_1samp(differences, -MARGIN, alternative="greater").pvalue
    below = ttest_1samp(differences, MARGIN, alternative="less").pvalue
    assert (found.similar == "confirmed") == (max(above, below) < 0.05)
    beyond = min(
        ttest_1samp(differences, side * MARGIN, alternative=other).pvalue
        for side, other in ((1, "greater"), (-1, "less"))
    )
    assert (found.similar == "contradicted") == (beyond < 0.05)


def test_scores_are_written_with_their_sample_standard_deviation():
    assert str(Scores({0: 50.0, 1: 52.0})) == f"51.0 ± {math.sqrt(2):.1f}"
    assert str(Scores({0: 50.0})) == "50.0"
    assert str(Comparison(-1.25, 0.5, 3, 0.1)) == "-1.2 ± 0.5"


def test_the_average_is_over_seeds_that_all_cells_have():
    assert average([OURS, THEIRS]).by_seed == {0: 50.5, 1: 52.0, 2: 52.25}


def test_the_gap_is_measured_over_seeds_that_all_cells_have():
    assert gap_closed(Scores({0: 55.0, 9: 0.0}), Scores({0: 50.0, 1: 0.0}), Scores({0: 60.0})) == 0.5
    assert gap_closed(Scores({0: 55.0}), Scores({1: 50.0}), Scores({0: 60.0})) is None
    assert gap_closed(Scores({0: 55.0}), Scores({0: 60.0}), Scores({0: 60.0})) is None
