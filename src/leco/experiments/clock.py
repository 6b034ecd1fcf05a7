"""A time limit for `auto`: the number of steps that fits into it, from measured speed.

The number is decided once and kept in the store, so that the same command continues with the same stages.
"""

import hashlib
import json
import os
from typing import Annotated

from pydantic import Field

from leco.dataset import Periods
from leco.errors import LecoError
from leco.experiments.auto import HEADS, refitted
from leco.experiments.experiment import Procedure, seconds_of
from leco.experiments.stages import Plan, plan
from leco.experiments.store import Store
from leco.experiments.timing import SECONDS_OF_HEADS, measure, seconds_to_embed, seconds_to_score
from leco.records import FirstFormat, StoredRecord, read

_FEWEST_STEPS, _MOST_STEPS = 50, 20_000
_RESERVE = 0.85  # of the time; the rest is for reading and writing


class Decision(StoredRecord):
    """A file in `auto/`: the number of steps that was decided for a time."""

    format: FirstFormat = 1
    time: str = ""
    steps: Annotated[int, Field(ge=0, le=_MOST_STEPS)]


def fit_into(procedure: Procedure, periods: Periods, store: Store, device: str) -> Plan:
    """Plan `auto` with as many steps as its time allows; only heads if it is short."""
    assert procedure.time is not None
    whole = plan(procedure, periods)
    key = json.dumps([procedure.time, [stage.fingerprint for stage in whole.stages]])
    path = store.auto / f"{hashlib.sha256(key.encode()).hexdigest()[:16]}.json"
    if os.path.lexists(path):
        steps = read(Decision, path, "delete it, and the speed is measured again").steps
    else:
        if int(os.environ.get("WORLD_SIZE", "1")) > 1:
            raise LecoError("time: speed is measured in one process only; set training.batches.steps under torchrun")
        steps = _steps_within(seconds_of(procedure.time), whole, periods, device)
        try:
            store.auto.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise LecoError(f"{store.auto}: cannot be written: {error.strerror}") from None
        Decision(time=procedure.time, steps=steps).write(path)
    if not steps:
        heads = {label: stage for label, stage in whole.trials.items() if label in HEADS}
        return Plan((tuple(heads.values()),), heads)
    settings = procedure.training.change(batches={"steps": steps})
    return plan(procedure.model_copy(update={"training": settings}), periods)


def _steps_within(seconds: float, whole: Plan, periods: Periods, device: str) -> int:
    """Return the number of steps of each training that fits; 0 if only heads do."""
    heads = [stage for label, stage in whole.trials.items() if label in HEADS]
    stages = [stage for stage in whole.stages if stage not in heads]
    if not stages:
        return 0
    embedded = [stage for stage in heads if stage.on_features]
    left = _RESERVE * seconds - (seconds_to_embed(embedded[0], periods, device) + SECONDS_OF_HEADS if embedded else 0.0)
    trained = [(stage, periods) for stage in stages]
    trained += [again for again in [refitted(stages[-1], periods)] if again[0] is not stages[-1]]  # on all labels
    paces = {method: measure(stage, periods, device) for method, stage in {str(s.method): s for s in stages}.items()}
    per_step = sum(paces[str(stage.method)].step for stage, _ in trained)
    scoring = sum(seconds_to_score(stage, seen, paces[str(stage.method)]) for stage, seen in trained)
    steps = int((left - scoring) / per_step)
    if steps < _FEWEST_STEPS and not heads:
        least = _FEWEST_STEPS * per_step + scoring
        raise LecoError(f"time: {seconds:.0f} s is too short: {_FEWEST_STEPS} steps take {least:.0f} s; allow more")
    return 0 if steps < _FEWEST_STEPS else min(steps, _MOST_STEPS)
