"""Costs, mixtures, and the choice between them."""

import math

import pytest
import torch
from tests.unit.planning.conftest import HISTORY

from leco import LecoError
from leco.planning.strategies import (
    Choice,
    Costs,
    Mixture,
    Outcome,
    break_even,
    choose,
    labels_after,
    mixtures,
    share_out,
)

NEW, BOTH, OLD = (
    Outcome(Mixture(share, new, old, 0, cost), macc, macc - 0.1, macc + 0.1)
    for share, new, old, cost, macc in ((0.0, 50, 0, 50, 0.6), (0.5, 29, 48, 50, 0.59), (1.0, 0, 48, 21, 0.5))
)


@pytest.mark.parametrize(("budget", "bought"), [(3, 3), (5, 5), (8, 7), (0.9, 0)])
def test_unlabelled_samples_need_not_be_collected(budget, bought):
    costs = Costs(1.0, None, 0.5)
    assert costs.affordable_new(budget, unlabelled=5) == bought
    assert costs.of_new(bought, 5) <= budget
    assert costs.of_new(bought + 1, 5) > budget


@pytest.mark.parametrize(
    ("budget", "costs", "message"),
    [
        (0, Costs(), "--budget: must be greater than 0 and at most 1e\\+12, not 0"),
        (-5, Costs(), "--budget: .* not -5"),
        (math.nan, Costs(), "--budget: .* not nan"),
        (math.inf, Costs(), "--budget: .* not inf"),
        (5, Costs(new=0), "--cost-new: .* not 0"),
        (5, Costs(relabel=0), "--cost-relabel: .* not 0"),
        (5, Costs(relabel=-1), "--cost-relabel: .* not -1"),
        (5, Costs(collect=-1), "--cost-collect: must be at least 0 .* not -1"),
        (1e11, Costs(new=1e-3), "same unit"),
    ],
)
def test_budgets_and_costs_that_make_no_sense_are_refused(budget, costs, message):
    with pytest.raises(LecoError, match=message):
        costs.check(budget)


def test_counts_are_shared_out_whole_and_never_above_what_is_there():
    for total in range(0, 24):
        shares = share_out(total, torch.tensor([7, 1, 13]))
        assert sum(shares) == min(total, 21)
        assert all(share <= there for share, there in zip(shares, [7, 1, 13], strict=True))


def test_relabelling_moves_a_label_and_labelling_adds_one(planned):
    found = planned
    new, old = (choice for choice in mixtures(found.context.known, 40, Costs(1.0, 1.0)) if choice.kind != "mixture")
    today = found.curves.today
    after_new, after_old = (labels_after(found.context.known, today, mixture) for mixture in (new, old))
    torch.testing.assert_close(after_new.new.sum() - today.new.sum(), torch.tensor(40.0).double())
    torch.testing.assert_close(after_old.new.sum() - today.new.sum(), torch.tensor(40.0).double())
    torch.testing.assert_close(after_new.old, today.old)
    torch.testing.assert_close(after_old.old, today.old * (1 - 40 / HISTORY))


def test_cheap_relabelling_is_chosen_and_expensive_relabelling_is_not(planned):
    found = planned
    cheap, dear = (choose(found.context.known, found.curves, 40, Costs(1.0, cost)) for cost in (0.1, 5.0))
    assert cheap.best.mixture.relabel == HISTORY
    assert dear.best.mixture.kind == "label-new"
    worth = break_even(found.context.known, found.curves, 40)
    assert 0 < worth[1] <= worth[0] <= worth[2] <= 1.5


def test_relabelling_that_leaves_budget_does_not_lose_by_that_alone():
    ahead = ((0.0, 0.0), (-0.004, 0.013), (0.05, 0.15))
    choice = Choice((NEW, BOTH, OLD), NEW, ahead)
    assert choice.rivals == [BOTH]
    assert not choice.decided


def test_a_best_that_is_ahead_of_both_ends_is_decided():
    assert Choice((NEW, BOTH, OLD), NEW, ((0.0, 0.0), (0.004, 0.013), (0.05, 0.15))).decided
    assert Choice((NEW, BOTH, OLD), BOTH, ((0.01, 0.02), (0.0, 0.0), (0.05, 0.15))).decided
