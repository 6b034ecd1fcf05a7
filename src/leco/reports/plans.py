"""The plans of a store: cost against expected accuracy, the chosen point, and every class."""

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from leco.errors import printable
from leco.text import interval, percent

_LARGEST_FILE = 10_000_000
# Errors of reading files that are damaged, or that hold something else.
_UNREADABLE = (OSError, ValueError, LookupError, TypeError, AttributeError, ArithmeticError, RecursionError)


@dataclass(frozen=True)
class Expectation:
    """The mAcc to expect at a cost, and its 90 % interval, as fractions."""

    cost: float
    macc: float
    low: float
    high: float


@dataclass(frozen=True)
class PlannedClass:
    """A newest class: its labels now, those to come, and its accuracy now and then, as fractions."""

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
    """The part of a report on one plan."""

    title: str
    facts: tuple[tuple[str, str], ...]
    curve: Mapping[str, Sequence[Expectation]]  # by strategy
    chosen: Expectation
    relabel: tuple[tuple[str, int, int], ...]  # old class, samples to relabel, samples in all
    classes: tuple[PlannedClass, ...]


def read_plans(runs: Path) -> tuple[tuple[PlanPart, ...], tuple[str, ...]]:
    """All plans of a store, and a message for each that cannot be read."""
    parts, problems = [], []
    for path in sorted((runs / "plans").glob("*/plan-*.json")):
        try:
            if path.stat().st_size > _LARGEST_FILE:
                raise ValueError(f"it is larger than {_LARGEST_FILE / 1e6:.0f} MB")
            parts.append(_part(json.loads(path.read_bytes())))
        except _UNREADABLE as error:
            problems.append(printable(f"{path}: {_explain(error)}"))
    return tuple(parts), tuple(problems)


def _explain(error: Exception) -> str:
    """Say why a file cannot be read as a plan."""
    match error:
        case OSError():
            return str(error.strerror)
        case json.JSONDecodeError() | UnicodeDecodeError():
            return "is not valid JSON"
        case KeyError():
            return f"{error} is missing"
    return f"is not a plan ({error})"


def _part(plan: Mapping[str, Any]) -> PlanPart:
    curve: dict[str, list[Expectation]] = {}
    for point in plan["curve"]:
        curve.setdefault(str(point["strategy"]), []).append(_expectation(point))
    return PlanPart(
        f"What to annotate next: {plan['data']}, budget {_number(plan['budget']):,g}",
        tuple(_facts(plan)),
        curve,
        _expectation(plan["chosen"]),
        tuple((f"{row['version']}: {row['class']}", int(row["count"]), int(row["of"])) for row in plan["relabel"]),
        tuple(_class(row) for row in plan["classes"]),
    )


def _expectation(found: Mapping[str, Any]) -> Expectation:
    return Expectation(*(_number(found[key]) for key in ("cost", "macc", "low", "high")))


def _number(value: Any) -> float:
    number = float(value)
    if not math.isfinite(number):
        raise ValueError(f"{value} is not a finite number")
    return number


def _class(row: Mapping[str, Any]) -> PlannedClass:
    scores = (None if row[key] is None else _number(row[key]) for key in ("accuracy", "expected", "low", "high"))
    return PlannedClass(str(row["class"]), int(row["labelled"]), _number(row["new"]), _number(row["relabel"]), *scores)


def _facts(plan: Mapping[str, Any]) -> Iterable[tuple[str, str]]:
    now, chosen, costs = plan["now"], plan["chosen"], plan["costs"]
    new, collect = _number(costs["new"]), _number(costs["collect"])
    relabel = "nothing" if costs["relabel"] is None else f"{_number(costs['relabel']):.3g}"
    derived = " on average, by the bits that old labels leave open" if costs["relabel_from_ontology"] else ""
    yield "costs", f"a new label {new:g}, relabelling {relabel}{derived}, collecting {collect:g}"
    labelled = f"{int(now['newest']):,} newest labels, {int(now['relabellable']):,} samples to relabel"
    yield "samples", f"{labelled}, {int(now['unlabelled']):,} unlabelled"
    rivals = ", ".join(map(str, plan["rivals"]))
    verdict = "decided at 90 %" if plan["decided"] else f"not decided: {rivals} may be as good"
    verdict = verdict if int(now["relabellable"]) else "nothing could be relabelled"
    counts = f"label {int(chosen['new']):,} new ({int(chosen['collect']):,} to be collected), relabel"
    yield "chosen", f"{chosen['kind']}: {counts} {int(chosen['relabel']):,}; {verdict}"
    yield "expected", f"mAcc {_with_interval(chosen)}, now {_with_interval(now)}"
    if plan["break_even"] is not None:
        ratio, low, high = (_number(plan["break_even"][key]) for key in ("ratio", "low", "high"))
        yield (
            "break-even",
            f"relabelling pays below {ratio:.2f} of the cost of a new, collected label ({low:.2f} to {high:.2f})",
        )
    training = "real training" if plan.get("training") == "full" else "a linear head on them"
    draws = f"{int(plan['draws'])} draws, seed {int(plan['seed'])}"
    yield "measured with", f"{plan['features']}; {training}; {draws}"
    yield "assumes", "; ".join(map(str, plan["assumes"]))


def _with_interval(found: Mapping[str, Any]) -> str:
    macc, low, high = (_number(found[key]) for key in ("macc", "low", "high"))
    return f"{percent(macc)} % ({interval(low, high)})"
