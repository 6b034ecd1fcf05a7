"""A plan: what to annotate next under a budget, as data for a table, a file and a report."""

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from leco.errors import LecoError
from leco.io import read_json, write_text
from leco.planning.costs import Costs, check, relabel_counts
from leco.planning.curves import Curves
from leco.planning.known import HISTORY, NEWEST, VALIDATION, Known
from leco.planning.prepare import Prepared
from leco.planning.simulate import (
    Mixture,
    Outcome,
    break_even,
    differences,
    interval,
    labels_after,
    mixtures,
    new_labels,
    outcome,
    relabelled,
)

FORMAT = 1
_CURVE = (0.125, 0.25, 0.5, 0.75, 1.0, 1.5, 2.0)  # of the budget, in the report's figure
_LARGEST_FILE = 10_000_000

ASSUMES = (
    "new samples show the classes as often as the newest labels do, and look like them",
    "samples to relabel are taken at random from those whose old label leaves several classes open",
    "old labels are right; an annotation is right",
    "all that is annotated is trained on, in addition to what is there",
    "intervals are of one training; they count the samples looked at, the fit and other draws, not a shift of the data",
)
ASSUMES_HEAD = "a linear head on frozen features learns as the real training does; --full trains for real"
ASSUMES_PIXELS = "whole images are annotated, at one price; a class counts an image once, and accuracy is over pixels"


def make_plan(prepared: Prepared, budget: float, costs: Costs, source: str) -> dict[str, Any]:
    """Choose, and say it all: see docs/how-to/planning.md for what stands where."""
    check(budget, costs)
    known, curves = prepared.ground.known, prepared.curves
    choice = choose(known, curves, budget, costs)
    if choice is None:
        cheapest = min([costs.new + costs.collect, *_each(known, costs).tolist()])
        raise LecoError(f"--budget {budget:g} buys nothing: the cheapest annotation costs {cheapest:g}")
    history = known.history
    now = curves.macc(curves.today)
    low, high = interval((now + curves.noise).clamp(0, 1))
    count = choice.best.mixture.new + choice.best.mixture.relabel
    return {
        "format": FORMAT,
        "source": source,
        "data": prepared.ground.material.name,
        "task": prepared.ground.material.task,
        "versions": list(prepared.ground.material.versions),
        "seed": prepared.ground.seed,
        "features": prepared.ground.extractor.name,
        "training": "full" if prepared.full else "head",
        "draws": prepared.draws,
        "budget": budget,
        "costs": {"new": costs.new, "relabel": _mean_cost(known, costs), "collect": costs.collect}
        | {"relabel_from_ontology": costs.relabel is None},
        "now": {
            "newest": len(known.samples(NEWEST)),
            "validation": len(known.samples(VALIDATION)),
            "history": len(known.samples(HISTORY)),
            "relabellable": len(history.relabellable),
            "known_already": int((history.open == 0).sum()),
            "unlabelled": len(history.unlabelled),
            **{"macc": float(now.mean()), "low": low, "high": high},
        },
        "chosen": _told(choice.best),
        "decided": choice.decided,
        "rivals": [found.mixture.kind for found in choice.rivals],
        "break_even": _break_even(known, curves, count),
        "alternatives": [
            _told(found) | {"ahead": list(ahead)} for found, ahead in zip(choice.outcomes, choice.ahead, strict=True)
        ],
        "relabel": relabel_counts(known, choice.best.mixture, costs),
        "classes": _classes(known, curves, choice.best.mixture),
        "curve": _curve(known, curves, budget, costs),
        "assumes": [
            *ASSUMES,
            *([] if prepared.full else [ASSUMES_HEAD]),
            *([ASSUMES_PIXELS] if prepared.ground.material.task == "segmentation" else []),
        ],
    }


def save_plan(prepared: Prepared, plan: dict[str, Any]) -> Path:
    """Keep a plan beside its measurements, where reports find it."""
    key = json.dumps([plan["budget"], plan["costs"], plan["training"], plan["draws"]])
    path = prepared.ground.folder / f"plan-{hashlib.sha256(key.encode()).hexdigest()[:8]}.json"
    write_text(path, json.dumps(plan, ensure_ascii=False, indent=1) + "\n")
    return path


def _each(known: Known, costs: Costs) -> Tensor:
    return costs.of_relabelling(known.history.open[known.history.relabellable])


def _mean_cost(known: Known, costs: Costs) -> float | None:
    each = _each(known, costs)
    return float(each.mean()) if len(each) else costs.relabel


def _told(found: Outcome) -> dict[str, Any]:
    mixture = found.mixture
    return {
        "kind": mixture.kind,
        **{"new": mixture.new, "relabel": mixture.relabel, "collect": mixture.collect, "cost": mixture.cost},
        **{"macc": found.macc, "low": found.low, "high": found.high},
    }


def _break_even(known: Known, curves: Curves, count: int) -> dict[str, float] | None:
    found = break_even(known, curves, count)
    return None if found is None else dict(zip(("ratio", "low", "high"), found, strict=True))


def _classes(known: Known, curves: Curves, mixture: Mixture) -> list[dict[str, Any]]:
    """What every newest class has, gets, and is expected to reach."""
    after = labels_after(known, curves.today, mixture)
    now, then = curves.accuracy(curves.today), curves.accuracy(after)
    new, old = new_labels(known, mixture), relabelled(known, mixture)
    bounds = torch.quantile(then, torch.tensor([0.05, 0.95]).double(), dim=0)
    names = known.evidence.ontology.newest.handles
    possible = known.history.expected[known.history.relabellable].sum(dim=0)
    return [
        {
            "class": name,
            "labelled": round(float(known.labelled[index])),
            "history": round(float(possible[index]), 1),
            "new": round(float(new[index]), 1),
            "relabel": round(float(old[index]), 1),
            "accuracy": float(now[:, index].mean()) if curves.observed[index] else None,
            "expected": float(then[:, index].mean()) if curves.observed[index] else None,
            "low": float(bounds[0, index]) if curves.observed[index] else None,
            "high": float(bounds[1, index]) if curves.observed[index] else None,
        }
        for index, name in enumerate(names)
    ]


def _curve(known: Known, curves: Curves, budget: float, costs: Costs) -> list[dict[str, Any]]:
    """Cost against expected accuracy at some budgets: LabelNew, RelabelOld and the best mixture."""
    found = []
    for share in _CURVE:
        choice = choose(known, curves, share * budget, costs)
        if choice is None:
            continue
        pure = {kind: choice.pure(kind) for kind in ("label-new", "relabel-old")}
        for name, one in (pure | {"best": choice.best}).items():
            if one is not None:
                point = {"strategy": name, "cost": one.mixture.cost, "macc": one.macc, "low": one.low, "high": one.high}
                found.append(point)
    return found


def read_plan(path: Path) -> dict[str, Any]:
    """Read a plan that `leco plan` wrote, checking what others rely on."""
    found = read_json(path, _LARGEST_FILE)
    if not isinstance(found, dict) or found.get("format") != FORMAT:
        raise LecoError(f"{path}: is no plan of this version of leco; make it anew with `leco plan`")
    chosen, versions = found.get("chosen"), found.get("versions")
    counts = [found.get("seed"), *(chosen.get(key) for key in ("new", "relabel"))] if isinstance(chosen, dict) else []
    if not counts or not all(type(count) is int and 0 <= count < 2**63 for count in counts):
        raise LecoError(f"{path}: is no plan: it lacks its seed, or how many samples were chosen")
    if not isinstance(versions, list):
        raise LecoError(f"{path}: is no plan: it lacks its versions")
    return found


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
