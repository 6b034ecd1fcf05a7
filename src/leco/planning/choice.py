"""Which mixture to recommend, and whether the data decide it."""

from dataclasses import dataclass

from leco.planning.costs import Costs
from leco.planning.curves import Curves
from leco.planning.known import Known
from leco.planning.simulate import Mixture, Outcome, differences, mixtures, outcome


@dataclass(frozen=True)
class Choice:
    """The best of all mixtures, and how far it is ahead of each."""

    outcomes: tuple[Outcome, ...]
    best: Outcome
    ahead: tuple[tuple[float, float], ...]  # of each outcome: 90 % interval of the difference in expected mAcc

    @property
    def rivals(self) -> list[Outcome]:
        """What the data do not tell from the best: a pure strategy, or all that can be relabelled and the rest new.

        The latter, since relabelling alone may leave a part of the budget, and would lose by that.
        """
        most = max(found.mixture.relabel for found in self.outcomes)
        return [
            found
            for found, (low, _) in zip(self.outcomes, self.ahead, strict=True)
            if found is not self.best
            and low <= 0
            and (found.mixture.kind != "mixture" or found.mixture.relabel == most > self.best.mixture.relabel)
        ]

    @property
    def decided(self) -> bool:
        """Whether the best is better than both ends (but for itself), new labels alone and as many old as can be."""
        return not self.rivals

    def pure(self, kind: str) -> Outcome | None:
        """LabelNew or RelabelOld, if the budget and the data allow it."""
        return next((found for found in self.outcomes if found.mixture.kind == kind), None)


def choose(known: Known, curves: Curves, budget: float, costs: Costs) -> Choice | None:
    """The mixture with the highest expected mAcc; of equally good ones, the cheapest. None if nothing can be bought."""
    outcomes = [outcome(known, curves, mixture) for mixture in mixtures(known, budget, costs)]
    if not outcomes:
        return None
    best = max(outcomes, key=lambda found: (round(found.macc, 9), -found.mixture.cost))
    others: list[Mixture] = [found.mixture for found in outcomes]
    return Choice(tuple(outcomes), best, tuple(differences(known, curves, best.mixture, others)))
