import math

import pytest
import torch

from leco import LecoError
from leco.planning.costs import Costs, check, choices, open_share


def test_what_is_offered_is_what_the_old_label_can_be(street):
    evidence = street.until("v2").evidence()
    rows = evidence.ids(["bus", "sidewalk", "background", ""], "v1")
    assert choices(evidence, rows).tolist() == [2, 1, 2, len(street["v2"])]


def test_bits_of_a_question_are_those_that_the_old_label_leaves_open(street):
    evidence = street.until("v2").evidence()
    shares = open_share(evidence, evidence.ids(["bus", "sidewalk", ""], "v1"))
    expected = [math.log2(2) / math.log2(10), 0, 1]
    torch.testing.assert_close(shares, torch.tensor(expected, dtype=torch.double))
    torch.testing.assert_close(Costs(3.0).of_relabelling(shares), 3 * torch.tensor(expected, dtype=torch.double))
    assert Costs(3.0, 0.5).of_relabelling(shares).tolist() == [0.5, 0, 0.5]  # what is known costs nothing


@pytest.mark.parametrize(("budget", "bought"), [(3, 3), (5, 5), (8, 7), (0.9, 0)])
def test_unlabelled_samples_need_not_be_collected(budget, bought):
    costs = Costs(1.0, None, 0.5)
    assert costs.affordable_new(budget, unlabelled=5) == bought
    assert costs.of_new(bought, 5) <= budget
    assert costs.of_new(bought + 1, 5) > budget


@pytest.mark.parametrize(
    ("budget", "costs", "message"),
    [
        (0, Costs(), "--budget 0"),
        (-5, Costs(), "--budget -5"),
        (math.nan, Costs(), "--budget nan"),
        (math.inf, Costs(), "--budget inf"),
        (5, Costs(new=0), "--cost-new 0"),
        (5, Costs(relabel=0), "--cost-relabel 0"),
        (5, Costs(relabel=-1), "--cost-relabel -1"),
        (5, Costs(collect=-1), "--cost-collect -1"),
        (1e11, Costs(new=1e-3), "same unit"),
    ],
)
def test_budgets_and_costs_that_make_no_sense_are_refused(budget, costs, message):
    with pytest.raises(LecoError, match=message):
        check(budget, costs)
