"""A plan: what to annotate next under a budget, as data for a table, a file and a report."""

import hashlib
import json
import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from leco.errors import LecoError
from leco.experiments.config import Experiment
from leco.experiments.material import Material
from leco.experiments.running import Machine, Watch
from leco.experiments.store import Store
from leco.ontology.files import read_json, write_text
from leco.planning.choice import choose
from leco.planning.costs import Costs, check
from leco.planning.curves import Curves, fit_curves
from leco.planning.features import Directions, Extractor, find_extractor
from leco.planning.full import FullTraining
from leco.planning.gathering import gather_known
from leco.planning.known import HISTORY, NEWEST, VALIDATION, Known
from leco.planning.measuring import Head, Learner, choose_prior, measure
from leco.planning.simulate import (
    Mixture,
    Outcome,
    break_even,
    interval,
    labels_after,
    new_labels,
    relabelled,
)

FORMAT = 1
DRAWS = 10
FEWEST_SAMPLES = 10
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


@dataclass(frozen=True, eq=False)
class Prepared:
    """What a plan is made of, for any budget and costs."""

    material: Material
    known: Known
    curves: Curves
    extractor: Extractor
    directions: Directions
    head: Head  # on frozen features: what suggests labels
    full: bool
    draws: int
    seed: int
    folder: Path


def prepare(
    wanted: Experiment,
    material: Material,
    runs: Path,
    machine: Machine,
    watch: Watch,
    backbone: str | None = None,
    full: bool = False,
    draws: int = DRAWS,
    tick: Callable[[], object] = lambda: None,
) -> Prepared:
    """Measure the learning curves, or take what was measured before from `runs/plans`."""
    store, seed = Store(runs), wanted.seed
    extractor = find_extractor(wanted, material, store, backbone, machine, watch)
    known, directions = gather_known(material, extractor, seed)
    _check_enough(known, material)
    key = json.dumps([FORMAT, material.fingerprint, extractor.fingerprint, seed])
    folder = runs / "plans" / hashlib.sha256(key.encode()).hexdigest()[:16]
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise LecoError(f"{folder}: cannot be written: {error.strerror}") from None
    head = Head(known, _prior(known, seed, folder / "prior.json"))
    learner: Learner = FullTraining(wanted, material, known, store, machine, watch) if full else head
    curves = fit_curves(known, measure(known, learner, draws, seed, folder, tick), seed)
    if material.evaluated:  # of Mapillary's classes, not all count
        counts = torch.tensor([name in material.evaluated for name in known.evidence.ontology.newest.handles])
        curves = replace(curves, observed=curves.observed & counts)
    return Prepared(material, known, curves, extractor, directions, head, full, draws, seed, folder)


def _check_enough(known: Known, material: Material) -> None:
    count, version = len(known.samples(NEWEST)), material.versions[-1]
    if count < FEWEST_SAMPLES:
        raise LecoError(f"{count} training samples are labelled in {version}: a curve needs {FEWEST_SAMPLES} at least")
    if int((known.labelled > 0).sum()) < 2:
        raise LecoError(f"all training samples labelled in {version} are of one class: there is no accuracy to plan")


def _prior(known: Known, seed: int, path: Path) -> float:
    if path.is_file():
        found = read_json(path, _LARGEST_FILE)
        if not isinstance(found, dict) or not isinstance(found.get("prior"), float):
            raise LecoError(f"{path}: is damaged; delete it, and it is found anew")
        return float(found["prior"])
    prior = choose_prior(known, seed)
    write_text(path, json.dumps({"prior": prior}) + "\n")
    return prior


def make_plan(prepared: Prepared, budget: float, costs: Costs, source: str) -> dict[str, Any]:
    """Choose, and say it all: see docs/planning.md for what stands where."""
    check(budget, costs)
    known, curves = prepared.known, prepared.curves
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
        "data": prepared.material.name,
        "task": prepared.material.task,
        "versions": list(prepared.material.versions),
        "seed": prepared.seed,
        "features": prepared.extractor.name,
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
            *([ASSUMES_PIXELS] if prepared.material.task == "segmentation" else []),
        ],
    }


def save_plan(prepared: Prepared, plan: dict[str, Any]) -> Path:
    """Keep a plan beside its measurements, where reports find it."""
    key = json.dumps([plan["budget"], plan["costs"], plan["training"], plan["draws"]])
    path = prepared.folder / f"plan-{hashlib.sha256(key.encode()).hexdigest()[:8]}.json"
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


def relabel_counts(known: Known, mixture: Mixture, costs: Costs) -> list[dict[str, Any]]:
    """How many samples of each old class to relabel: in proportion to how many there are."""
    history = known.history
    pool = history.relabellable
    labels, counts = history.label[pool].unique(return_counts=True)  # type: ignore[no-untyped-call]
    shares = share_out(mixture.relabel, counts)
    each = costs.of_relabelling(history.open)
    rows = []
    for label, count, of in zip(labels.tolist(), shares, counts.tolist(), strict=True):
        version, name = name_of(known, label)
        cost = float(each[pool][history.label[pool] == label].mean())
        rows.append({"version": version, "class": name, "count": count, "of": of, "cost": cost})
    return rows


def share_out(total: int, counts: Tensor) -> list[int]:
    """Whole numbers that sum to `total`, in proportion to `counts` and none above its own (largest remainders).

    >>> share_out(5, torch.tensor([10, 10, 1]))
    [3, 2, 0]
    """
    if not len(counts):
        return []
    exact = counts.double() * (min(total, int(counts.sum())) / float(counts.sum()))
    whole = exact.floor()
    missing = round(float(exact.sum() - whole.sum()))
    whole[(exact - whole).argsort(descending=True, stable=True)[:missing]] += 1
    return [int(number) for number in whole.tolist()]


def name_of(known: Known, label: int) -> tuple[str, str]:
    """Version and class of a row of evidence."""
    offsets = known.evidence.offsets
    version = max((name for name in offsets if offsets[name] <= label), key=lambda name: offsets[name])
    return version, known.evidence.ontology[version].handle(label - offsets[version])


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
    numbers = [found.get("budget"), *(found.get("chosen", {}).get(key) for key in ("new", "relabel", "macc"))]
    if not all(isinstance(value, int | float) and math.isfinite(value) for value in numbers):
        raise LecoError(f"{path}: is no plan: it lacks its budget, or what was chosen")
    return found
