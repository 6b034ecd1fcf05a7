"""The choice of `auto`: which of its trials becomes the model, and the same training on all labels."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from leco.dataset import Periods
from leco.errors import LecoError
from leco.experiments.stages import HEAD_WITH_OLD, RATE, REGRESSION, Plan, Stage
from leco.experiments.store import AnyStore
from leco.model.description import Trial

HEADS = (REGRESSION, HEAD_WITH_OLD)  # trials that leave the network as it is


@dataclass(frozen=True)
class Score:
    """A score on validation, and its standard error."""

    value: float
    error: float

    def reaches(self, other: "Score") -> bool:
        """Whether this is no worse than another score, up to the standard error of their difference."""
        return self.value >= other.value - math.hypot(self.error, other.error)


def score_of(result: Mapping[str, Any]) -> Score:
    """Return the validation score of a stage; the standard error follows from the accuracy and support of each class.

    Counts are smoothed by one success and one failure, since a class that has one sample is not known for certain.
    """
    value = result.get("validation_score")
    classes = [row for row in _newest(result, "validation").get("per_class", ()) if row["support"]]
    if value is None or not classes:
        return Score(0.0 if value is None else value, 1.0)
    variance = 0.0
    for row in classes:
        count = row["support"]
        share = ((row["accuracy"] or 0.0) * count + 1) / (count + 2)
        variance += share * (1 - share) / count
    return Score(value, math.sqrt(variance) / len(classes))


def decide(plan: Plan, store: AnyStore) -> str:
    """Return the name of the trial that becomes the model.

    Of the heads, and of the networks, the last one is taken that is no worse than the best of its kind on validation,
    up to the standard error of their difference: with old labels, unless they clearly do harm. Of these two, the better
    one on validation is chosen, or the head if they are equal. Of several learning rates, only the best takes part.
    """
    results = {label: store.require(stage.fingerprint) for label, stage in plan.trials.items()}
    scores = {label: score_of(result) for label, result in results.items() if not result.get("diverged")}
    if not scores:
        raise LecoError(f"every trial diverged: {next(iter(results.values()))['diverged']}")
    best_rates: dict[str, str] = {}
    for label, score in scores.items():
        kind = label.partition(RATE)[0]
        if kind not in best_rates or score.value > scores[best_rates[kind]].value:
            best_rates[kind] = label
    heads = [label for label in best_rates.values() if label in HEADS]
    networks = [label for label in best_rates.values() if label not in HEADS]
    finalists = [_last_of_the_best(kind, scores) for kind in (heads, networks) if kind]
    return max(finalists, key=lambda label: scores[label].value)


def _last_of_the_best(labels: Sequence[str], scores: Mapping[str, Score]) -> str:
    best = max((scores[label] for label in labels), key=lambda score: score.value)
    return next(label for label in reversed(labels) if scores[label].reaches(best))


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
        validation, test = (
            _newest(result, split).get(result.get("metric", "macc")) for split in ("validation", "test")
        )
        found.append(
            Trial(
                name=label,
                method=str(stage.method),
                validation=validation,
                test=test,
                seconds=result["seconds"] or 0.0,
                chosen=label == chosen,
            )
        )
    return tuple(found)


def _newest(result: Mapping[str, Any], split: str) -> Mapping[str, Any]:
    found: Mapping[str, Any] = (result.get(split) or {}).get(result["version"]) or {}
    return found
