"""The choice of `auto`: which of its trials becomes the model, and the same training on all labels."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import pvariance

from leco.dataset import Periods
from leco.errors import LecoError
from leco.experiments.stages import HEAD_WITH_OLD, RATE, REGRESSION, Plan, Stage
from leco.experiments.store import AnyStore
from leco.model.description import Trial
from leco.records import ClassScore, Result

HEADS = (REGRESSION, HEAD_WITH_OLD)  # trials that leave the network as it is

# Before validation is seen, the gain of old labels over new ones alone, and of a network over a head: mean and standard
# deviation of accuracies, from our own measurements (docs/explanation/decisions/0020-auto.md). Of heads, old labels are
# safer: cross-validation on all new labels has already ruled out those that lose by them.
_EXPECTED_GAIN, _SPREAD, _SPREAD_OF_HEADS = 0.02, 0.04, 0.02


@dataclass(frozen=True)
class Score:
    """A score on validation, its standard error, and which samples were right."""

    value: float
    error: float
    right: str = ""  # of each sample: 1, 0 or, if unknown, -

    def gains_on(self, simpler: "Score", spread: float = _SPREAD) -> bool:
        """Whether this is expected to be better than a simpler model, given both scores and earlier experience.

        The expected gain is the mean of the prior, of standard deviation `spread`, and of the difference on validation,
        each weighted by its precision.

        >>> few, many = 0.06, 0.01  # with few samples, experience decides
        >>> Score(0.77, few).gains_on(Score(0.80, few)), Score(0.77, many).gains_on(Score(0.80, many))
        (True, False)
        """
        variance = (self.error**2 + simpler.error**2) * share_of_variance(self.right, simpler.right)
        return (self.value - simpler.value) * spread**2 + _EXPECTED_GAIN * variance > 0


def share_of_variance(right: str, other: str) -> float:
    """Return how uncertain the difference of two scores is on the same samples, relative to independent ones.

    Two disagreements are added, one for each model, since a few samples that agree do not prove that all would.

    >>> round(share_of_variance("1101" * 25, "1101" * 25), 2), share_of_variance("1101", "")
    (0.05, 1.0)
    """
    both = [(a == "1", b == "1") for a, b in zip(right, other, strict=False) if "-" not in (a, b)]
    if len(right) != len(other) or not both:
        return 1.0
    both += [(True, False), (False, True)]
    ours, theirs = ([float(pair[place]) for pair in both] for place in (0, 1))
    alone = pvariance(ours) + pvariance(theirs)
    return min(1.0, pvariance([a - b for a, b in zip(ours, theirs, strict=True)]) / alone)


def score_of(result: Result) -> Score:
    """Return the validation score of a stage; the standard error follows from the accuracy and support of each class.

    Counts are smoothed by one success and one failure, since a class that has one sample is not known for certain.
    """
    value = result.validation_score
    classes = [row for row in _classes(result) if row.support]
    if value is None or not classes:
        return Score(0.0 if value is None else value, 1.0)
    variance = 0.0
    for row in classes:
        count = row.support
        share = ((row.accuracy or 0.0) * count + 1) / (count + 2)
        variance += share * (1 - share) / count
    return Score(value, math.sqrt(variance) / len(classes), result.validation_right or "")


def decide(plan: Plan, store: AnyStore) -> str:
    """Return the name of the trial that becomes the model.

    A head with old labels competes with logistic regression, a network with old labels with one of new labels alone,
    and the two winners with each other. The second of each pair wins if it is expected to be better, given the scores
    on validation and how uncertain they are. Of several learning rates, only the best takes part.
    """
    results = {label: store.require(stage.fingerprint) for label, stage in plan.trials.items()}
    scores = {label: score_of(result) for label, result in results.items() if result.diverged is None}
    if not scores:
        raise LecoError(f"every trial diverged: {next(iter(results.values())).diverged}")
    best_rates: dict[str, str] = {}
    for label, score in scores.items():
        kind = label.partition(RATE)[0]
        if kind not in best_rates or score.value > scores[best_rates[kind]].value:
            best_rates[kind] = label
    heads = [label for label in best_rates.values() if label in HEADS]
    networks = [label for label in best_rates.values() if label not in HEADS]
    kinds = ((heads, _SPREAD_OF_HEADS), (networks, _SPREAD))
    winners = [_last_that_gains(kind, scores, spread) for kind, spread in kinds if kind]
    return _last_that_gains(winners, scores, _SPREAD)


def _last_that_gains(labels: Sequence[str], scores: Mapping[str, Score], spread: float) -> str:
    chosen = labels[0]
    for label in labels[1:]:
        chosen = label if scores[label].gains_on(scores[chosen], spread) else chosen
    return chosen


def refitted(stage: Stage, periods: Periods) -> tuple[Stage, Periods]:
    """Return the training of a trial on all labels, validation included, and the periods for it.

    Its teacher is the trial's. A trial that starts from earlier periods remains as it is, as does one for which
    validation samples were given.
    """
    if not periods.refits or stage.previous or stage.start:
        return stage, periods
    full = periods.refitted()
    material, learned = (f"{full.name} {digest}" for digest in (full.fingerprint, full.learned))
    return replace(stage, material=material, learned=learned), full


def first_answer(plan: Plan, store: AnyStore) -> str | None:
    """Return the better trial of the heads on features, once both are complete; None if there are none."""
    heads = {label: plan.trials[label] for label in HEADS if label in plan.trials}
    if not heads or any(store.result(stage.fingerprint) is None for stage in heads.values()):
        return None
    return decide(Plan(((*heads.values(),),), heads), store)


def trials(plan: Plan, store: AnyStore) -> tuple[Trial, ...]:
    """Return the scores of all trials, for people."""
    chosen = decide(plan, store)
    found = []
    for label, stage in plan.trials.items():
        result = store.require(stage.fingerprint)
        found.append(
            Trial(
                name=label,
                method=str(stage.method),
                validation=result.score("validation"),
                test=result.score("test"),
                seconds=result.seconds or 0.0,
                chosen=label == chosen,
            )
        )
    return tuple(found)


def _classes(result: Result) -> tuple[ClassScore, ...]:
    """The scores of the newest classes on validation."""
    return result.validation[result.version].per_class if result.validation else ()
