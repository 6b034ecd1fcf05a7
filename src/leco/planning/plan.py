"""Make a plan: what to annotate next under a budget."""

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from leco.errors import LecoError
from leco.planning.curves import Curves
from leco.planning.known import HISTORY, NEWEST, VALIDATION, Known
from leco.planning.prepare import Prepared
from leco.planning.record import Alternative, BreakEven, CurvePoint, NewClass, Now, OldClass, Option, Plan, Prices
from leco.planning.strategies import (
    QUANTILES,
    Costs,
    Mixture,
    Outcome,
    break_even,
    choose,
    interval,
    labels_after,
    new_labels,
    relabelled,
    share_out,
)

_CURVE = (0.125, 0.25, 0.5, 0.75, 1.0, 1.5, 2.0)  # of the budget, in the report's figure

ASSUMES = (
    "new samples have the class frequencies of the newest labels, and look like them",
    "samples to relabel are drawn at random from those whose old label leaves several classes open",
    "old and new labels are correct",
    "the model is trained on everything that is annotated, in addition to the present data",
    "a linear head on frozen features gains from labels as the real training does",
    "intervals are for one training; they cover the held-out samples, the fit and other draws, not a shift of the data",
)
ASSUMES_PIXELS = "whole images are annotated at one price; a class counts an image once, and accuracy is over pixels"


def make_plan(prepared: Prepared, budget: float, costs: Costs, source: str) -> Plan:
    """Choose a strategy."""
    costs.check(budget)
    context, known, curves = prepared.context, prepared.context.known, prepared.curves
    choice = choose(known, curves, budget, costs)
    history = known.history
    each = costs.of_relabelling(history.open[history.relabellable])
    if choice is None:
        cheapest = min([costs.new + costs.collect, *each.tolist()])
        raise LecoError(f"--budget: {budget:g} buys nothing; the cheapest annotation costs {cheapest:g}")
    now = curves.macc(curves.today)
    low, high = interval((now + curves.noise).clamp(0, 1))
    best = choice.best.mixture
    return Plan(
        source=source,
        data=context.periods.name,
        task=context.periods.modality.name,
        versions=tuple(context.periods.versions),
        seed=context.seed,
        features=context.reader.extractor.name,
        draws=prepared.draws,
        budget=budget,
        costs=Prices(
            new=costs.new,
            relabel=float(each.mean()) if len(each) else costs.relabel,
            collect=costs.collect,
            relabel_from_ontology=costs.relabel is None,
        ),
        now=Now(
            newest=len(known.samples(NEWEST)),
            validation=len(known.samples(VALIDATION)),
            history=len(known.samples(HISTORY)),
            relabellable=len(history.relabellable),
            known_already=int((history.open == 0).sum()),
            unlabelled=len(history.unlabelled),
            macc=float(now.mean()),
            low=low,
            high=high,
        ),
        chosen=Option(**_outcome(choice.best)),
        decided=choice.decided,
        rivals=tuple(found.mixture.kind for found in choice.rivals),
        break_even=_break_even(known, curves, best.new + best.relabel),
        alternatives=tuple(
            Alternative(**_outcome(found), ahead=ahead)
            for found, ahead in zip(choice.outcomes, choice.ahead, strict=True)
        ),
        relabel=tuple(_relabel(known, best, each)),
        classes=tuple(_classes(known, curves, best)),
        curve=tuple(_curve(known, curves, budget, costs)),
        assumes=(*ASSUMES, *([ASSUMES_PIXELS] if context.periods.modality.has_masks else [])),
    )


def save_plan(prepared: Prepared, plan: Plan) -> Path:
    """Write a plan beside its measurements, where reports find it; return its path."""
    key = json.dumps([plan.budget, plan.costs.model_dump(), plan.draws])
    path = prepared.context.folder / f"plan-{hashlib.sha256(key.encode()).hexdigest()[:8]}.json"
    plan.write(path)
    return path


def _outcome(found: Outcome) -> dict[str, Any]:
    mixture = found.mixture
    return {
        "kind": mixture.kind,
        **{"new": mixture.new, "relabel": mixture.relabel, "collect": mixture.collect, "cost": mixture.cost},
        **{"macc": found.macc, "low": found.low, "high": found.high},
    }


def _break_even(known: Known, curves: Curves, count: int) -> BreakEven | None:
    found = break_even(known, curves, count)
    return None if found is None else BreakEven(**dict(zip(("ratio", "low", "high"), found, strict=True)))


def _relabel(known: Known, mixture: Mixture, each: Tensor) -> Iterator[OldClass]:
    """Number of samples to relabel of each old class, in proportion to its frequency, and their mean cost."""
    label = known.history.label[known.history.relabellable]
    labels, counts = label.unique(return_counts=True)  # type: ignore[no-untyped-call]
    for old, count, of in zip(labels.tolist(), share_out(mixture.relabel, counts), counts.tolist(), strict=True):
        version, name = known.name(old)
        yield OldClass(version=version, name=name, count=count, of=of, cost=float(each[label == old].mean()))


def _classes(known: Known, curves: Curves, mixture: Mixture) -> Iterator[NewClass]:
    """Labels of every newest class, now and added, and its accuracy, now and expected."""
    after = labels_after(known, curves.today, mixture)
    now, then = curves.accuracy(curves.today), curves.accuracy(after)
    new, old = new_labels(known, mixture), relabelled(known, mixture)
    low, high = torch.quantile(then, torch.tensor(QUANTILES).double(), dim=0)
    possible = known.history.expected[known.history.relabellable].sum(dim=0)
    accuracies = {"accuracy": now.mean(dim=0), "expected": then.mean(dim=0), "low": low, "high": high}
    for index, name in enumerate(known.evidence.ontology.newest.handles):
        yield NewClass(
            name=name,
            labelled=round(float(known.labelled[index])),
            history=round(float(possible[index]), 1),
            new=round(float(new[index]), 1),
            relabel=round(float(old[index]), 1),
            **{key: float(values[index]) if curves.observed[index] else None for key, values in accuracies.items()},
        )


def _curve(known: Known, curves: Curves, budget: float, costs: Costs) -> Iterator[CurvePoint]:
    """Cost and expected mAcc of LabelNew, RelabelOld and the best mixture at several budgets."""
    for share in _CURVE:
        choice = choose(known, curves, share * budget, costs)
        if choice is None:
            continue
        tried = {kind: choice.pure(kind) for kind in ("label-new", "relabel-old")} | {"best": choice.best}
        for name, one in tried.items():
            if one is not None:
                yield CurvePoint(strategy=name, cost=one.mixture.cost, macc=one.macc, low=one.low, high=one.high)
