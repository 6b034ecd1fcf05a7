from leco.planning.plan import Choice
from leco.planning.simulate import Mixture, Outcome

NEW, BOTH, OLD = (
    Outcome(Mixture(share, new, old, 0, cost), macc, macc - 0.1, macc + 0.1)
    for share, new, old, cost, macc in ((0.0, 50, 0, 50, 0.6), (0.5, 29, 48, 50, 0.59), (1.0, 0, 48, 21, 0.5))
)


def test_relabelling_that_leaves_budget_does_not_lose_by_that_alone():
    ahead = ((0.0, 0.0), (-0.004, 0.013), (0.05, 0.15))
    choice = Choice((NEW, BOTH, OLD), NEW, ahead)
    assert choice.rivals == [BOTH]
    assert not choice.decided


def test_a_best_that_is_ahead_of_both_ends_is_decided():
    assert Choice((NEW, BOTH, OLD), NEW, ((0.0, 0.0), (0.004, 0.013), (0.05, 0.15))).decided
    assert Choice((NEW, BOTH, OLD), BOTH, ((0.01, 0.02), (0.0, 0.0), (0.05, 0.15))).decided
