"""A plan: what to annotate next under a budget, as data for a table, a file and a report."""

import hashlib
import json
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from leco.errors import LecoError
from leco.io import read_json, write_text
from leco.planning.curves import Curves
from leco.planning.known import HISTORY, NEWEST, VALIDATION, Known
from leco.planning.prepare import Prepared
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

FORMAT = 1
_CURVE = (0.125, 0.25, 0.5, 0.75, 1.0, 1.5, 2.0)  # of the budget, in the report's figure
_LARGEST_FILE = 10_000_000

ASSUMES = (
    "new samples have the class frequencies of the newest labels, and look like them",
    "samples to relabel are drawn at random from those whose old label leaves several classes open",
    "old and new labels are correct",
    "the model is trained on everything that is annotated, in addition to the present data",
    "a linear head on frozen features gains from labels as the real training does",
    "intervals are for one training; they cover the held-out samples, the fit and other draws, not a shift of the data",
)
ASSUMES_PIXELS = "whole images are annotated at one price; a class counts an image once, and accuracy is over pixels"


def make_plan(prepared: Prepared, budget: float, costs: Costs, source: str) -> dict[str, Any]:
    """Choose a strategy, and return the plan as docs/how-to/planning.md describes it."""
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
    return {
        "format": FORMAT,
        "source": source,
        "data": context.periods.name,
        "task": context.periods.modality.name,
        "versions": list(context.periods.versions),
        "seed": context.seed,
        "features": context.reader.extractor.name,
        "draws": prepared.draws,
        "budget": budget,
        "costs": {
            "new": costs.new,
            "relabel": float(each.mean()) if len(each) else costs.relabel,
            "collect": costs.collect,
            "relabel_from_ontology": costs.relabel is None,
        },
        "now": {
            "newest": len(known.samples(NEWEST)),
            "validation": len(known.samples(VALIDATION)),
            "history": len(known.samples(HISTORY)),
            "relabellable": len(history.relabellable),
            "known_already": int((history.open == 0).sum()),
            "unlabelled": len(history.unlabelled),
            **{"macc": float(now.mean()), "low": low, "high": high},
        },
        "chosen": _outcome(choice.best),
        "decided": choice.decided,
        "rivals": [found.mixture.kind for found in choice.rivals],
        "break_even": _break_even(known, curves, best.new + best.relabel),
        "alternatives": [
            _outcome(found) | {"ahead": list(ahead)} for found, ahead in zip(choice.outcomes, choice.ahead, strict=True)
        ],
        "relabel": _relabel(known, best, each),
        "classes": _classes(known, curves, best),
        "curve": _curve(known, curves, budget, costs),
        "assumes": [*ASSUMES, *([ASSUMES_PIXELS] if context.periods.modality.has_masks else [])],
    }


def save_plan(prepared: Prepared, plan: dict[str, Any]) -> Path:
    """Write a plan beside its measurements, where reports find it; return its path."""
    key = json.dumps([plan[name] for name in ("budget", "costs", "draws")])
    path = prepared.context.folder / f"plan-{hashlib.sha256(key.encode()).hexdigest()[:8]}.json"
    write_text(path, json.dumps(plan, ensure_ascii=False, indent=1) + "\n")
    return path


def read_plan(path: Path) -> dict[str, Any]:
    """Read a plan that `leco plan` wrote, and check what a batch relies on."""
    found = read_json(path, _LARGEST_FILE)
    if not isinstance(found, dict) or found.get("format") != FORMAT:
        raise LecoError(f"{path}: is not a plan of this version of leco; make a new one with `leco plan`")
    chosen = found.get("chosen")
    counts = [found.get("seed"), *(chosen.get(key) for key in ("new", "relabel"))] if isinstance(chosen, dict) else []
    if not counts or not all(type(count) is int and 0 <= count < 2**63 for count in counts):
        raise LecoError(f"{path}: is not a plan: `seed`, `chosen.new` or `chosen.relabel` is missing")
    if not isinstance(found.get("versions"), list):
        raise LecoError(f"{path}: is not a plan: `versions` is missing")
    return found


def _outcome(found: Outcome) -> dict[str, Any]:
    mixture = found.mixture
    return {
        "kind": mixture.kind,
        **{"new": mixture.new, "relabel": mixture.relabel, "collect": mixture.collect, "cost": mixture.cost},
        **{"macc": found.macc, "low": found.low, "high": found.high},
    }


def _break_even(known: Known, curves: Curves, count: int) -> dict[str, float] | None:
    found = break_even(known, curves, count)
    return None if found is None else dict(zip(("ratio", "low", "high"), found, strict=True))


def _relabel(known: Known, mixture: Mixture, each: Tensor) -> list[dict[str, Any]]:
    """Number of samples to relabel of each old class, in proportion to its frequency, and their mean cost."""
    label = known.history.label[known.history.relabellable]
    labels, counts = label.unique(return_counts=True)  # type: ignore[no-untyped-call]
    rows = []
    for old, count, of in zip(labels.tolist(), share_out(mixture.relabel, counts), counts.tolist(), strict=True):
        version, name = known.name(old)
        cost = float(each[label == old].mean())
        rows.append({"version": version, "class": name, "count": count, "of": of, "cost": cost})
    return rows


def _classes(known: Known, curves: Curves, mixture: Mixture) -> list[dict[str, Any]]:
    """Labels of every newest class, now and added, and its accuracy, now and expected."""
    after = labels_after(known, curves.today, mixture)
    now, then = curves.accuracy(curves.today), curves.accuracy(after)
    new, old = new_labels(known, mixture), relabelled(known, mixture)
    low, high = torch.quantile(then, torch.tensor(QUANTILES).double(), dim=0)
    possible = known.history.expected[known.history.relabellable].sum(dim=0)
    accuracies = {"accuracy": now.mean(dim=0), "expected": then.mean(dim=0), "low": low, "high": high}
    return [
        {
            "class": name,
            "labelled": round(float(known.labelled[index])),
            "history": round(float(possible[index]), 1),
            "new": round(float(new[index]), 1),
            "relabel": round(float(old[index]), 1),
        }
        | {key: float(values[index]) if curves.observed[index] else None for key, values in accuracies.items()}
        for index, name in enumerate(known.evidence.ontology.newest.handles)
    ]


def _curve(known: Known, curves: Curves, budget: float, costs: Costs) -> list[dict[str, Any]]:
    """Cost and expected mAcc of LabelNew, RelabelOld and the best mixture at several budgets."""
    found = []
    for share in _CURVE:
        choice = choose(known, curves, share * budget, costs)
        if choice is None:
            continue
        tried = {kind: choice.pure(kind) for kind in ("label-new", "relabel-old")} | {"best": choice.best}
        for name, one in tried.items():
            if one is not None:
                point = {"strategy": name, "cost": one.mixture.cost, "macc": one.macc, "low": one.low, "high": one.high}
                found.append(point)
    return found
