"""Plans of a store as a part of its report: cost against expected accuracy, the chosen point, and every class."""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from leco.reports.stored import BROKEN

_LARGEST_FILE = 10_000_000


@dataclass(frozen=True)
class Point:
    """A strategy at a cost: expected mAcc and its 90 % interval, as fractions."""

    cost: float
    macc: float
    low: float
    high: float


@dataclass(frozen=True)
class PlannedClass:
    """A newest class: what it has, what it gets, and how well it is recognised now and then, as fractions."""

    name: str
    labelled: int
    new: float
    relabel: float
    accuracy: float | None
    expected: float | None
    low: float | None
    high: float | None


@dataclass(frozen=True)
class PlanPart:
    """One plan."""

    title: str
    facts: tuple[tuple[str, str], ...]
    curve: Mapping[str, Sequence[Point]]  # by strategy
    chosen: Point
    relabel: tuple[tuple[str, int, int], ...]  # old class, how many, of how many
    classes: tuple[PlannedClass, ...]


def read_plans(runs: Path) -> tuple[tuple[PlanPart, ...], tuple[str, ...]]:
    """All plans of a store, and what is wrong with those that cannot be read."""
    parts, problems = [], []
    for path in sorted((runs / "plans").glob("*/plan-*.json")):
        try:
            if path.stat().st_size > _LARGEST_FILE:
                raise ValueError("it is too large")
            parts.append(_part(json.loads(path.read_bytes())))
        except BROKEN as error:
            problems.append(f"{path}: is no plan ({error})")
    return tuple(parts), tuple(problems)


def _part(plan: Mapping[str, Any]) -> PlanPart:
    curve: dict[str, list[Point]] = {}
    for point in plan["curve"]:
        curve.setdefault(str(point["strategy"]), []).append(_point(point))
    return PlanPart(
        f"What to annotate next: {plan['data']}, budget {_number(plan['budget']):,g}",
        tuple(_facts(plan)),
        curve,
        _point(plan["chosen"]),
        tuple((f"{row['version']}: {row['class']}", int(row["count"]), int(row["of"])) for row in plan["relabel"]),
        tuple(_class(row) for row in plan["classes"]),
    )


def _point(found: Mapping[str, Any]) -> Point:
    return Point(*(_number(found[key]) for key in ("cost", "macc", "low", "high")))


def _number(value: Any) -> float:
    number = float(value)
    if not math.isfinite(number):
        raise ValueError(f"{value} is no number")
    return number


def _class(row: Mapping[str, Any]) -> PlannedClass:
    scores = (None if row[key] is None else _number(row[key]) for key in ("accuracy", "expected", "low", "high"))
    return PlannedClass(str(row["class"]), int(row["labelled"]), _number(row["new"]), _number(row["relabel"]), *scores)


def _facts(plan: Mapping[str, Any]) -> list[tuple[str, str]]:
    now, chosen, costs = plan["now"], plan["chosen"], plan["costs"]
    new, collect = _number(costs["new"]), _number(costs["collect"])
    relabel = "nothing" if costs["relabel"] is None else f"{_number(costs['relabel']):.3g}"
    derived = " on average, by the bits that old labels leave open" if costs["relabel_from_ontology"] else ""
    prices = f"a new label {new:g}, relabelling {relabel}{derived}, collecting {collect:g}"
    rivals = ", ".join(map(str, plan["rivals"]))
    verdict = "decided at 90 %" if plan["decided"] else f"not decided: {rivals} may be as good"
    verdict = verdict if int(now["relabellable"]) else "nothing could be relabelled"
    counts = f"label {int(chosen['new']):,} new ({int(chosen['collect']):,} to be collected), relabel"
    there = f"{int(now['newest']):,} newest labels, {int(now['relabellable']):,} samples to relabel"
    facts = [
        ("costs", prices),
        ("there are", f"{there}, {int(now['unlabelled']):,} unlabelled"),
        ("chosen", f"{chosen['kind']}: {counts} {int(chosen['relabel']):,}; {verdict}"),
        ("expected", f"mAcc {_spelled(chosen)}, now {_spelled(now)}"),
    ]
    if plan["break_even"] is not None:
        worth = {key: _number(plan["break_even"][key]) for key in ("ratio", "low", "high")}
        text = (
            f"relabelling pays below {worth['ratio']:.2f} of a new label, collected "
            f"({worth['low']:.2f} to {worth['high']:.2f})"
        )
        facts.append(("break-even", text))
    training = "real training" if plan["training"] == "full" else "a linear head on them"
    how = f"{int(plan['draws'])} draws, seed {int(plan['seed'])}"
    facts.append(("measured with", f"{plan['features']}; {training}; {how}"))
    return [*facts, ("assumes", "; ".join(map(str, plan["assumes"])))]


def _spelled(found: Mapping[str, Any]) -> str:
    macc, low, high = (100 * _number(found[key]) for key in ("macc", "low", "high"))
    return f"{macc:.1f} % ({low:.1f} to {high:.1f})"
