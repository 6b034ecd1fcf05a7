"""The plans of a store: cost against expected accuracy, the chosen point, and every class."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from leco.errors import LecoError, printable
from leco.planning.record import CurvePoint, Expected, NewClass, Option, Plan, read_plan
from leco.text import interval, percent


@dataclass(frozen=True)
class PlanPart:
    """The part of a report on one plan."""

    title: str
    facts: tuple[tuple[str, str], ...]
    curve: Mapping[str, Sequence[CurvePoint]]  # by strategy
    chosen: Option
    relabel: tuple[tuple[str, int, int], ...]  # old class, samples to relabel, samples in all
    classes: tuple[NewClass, ...]


def read_plans(runs: Path) -> tuple[tuple[PlanPart, ...], tuple[str, ...]]:
    """All plans of a store, and a message for each that cannot be read."""
    parts, problems = [], []
    for path in sorted((runs / "plans").glob("*/plan-*.json")):
        try:
            parts.append(_part(read_plan(path)))
        except LecoError as error:
            problems.append(printable(str(error)))
    return tuple(parts), tuple(problems)


def _part(plan: Plan) -> PlanPart:
    curve: dict[str, list[CurvePoint]] = {}
    for point in plan.curve:
        curve.setdefault(point.strategy, []).append(point)
    return PlanPart(
        f"What to annotate next: {plan.data}, budget {plan.budget:,g}",
        tuple(_facts(plan)),
        curve,
        plan.chosen,
        tuple((f"{row.version}: {row.name}", row.count, row.of) for row in plan.relabel),
        plan.classes,
    )


def _facts(plan: Plan) -> Iterator[tuple[str, str]]:
    now, chosen, costs = plan.now, plan.chosen, plan.costs
    relabel = "nothing" if costs.relabel is None else f"{costs.relabel:.3g}"
    derived = " on average, by the bits that old labels leave open" if costs.relabel_from_ontology else ""
    yield "costs", f"a new label {costs.new:g}, relabelling {relabel}{derived}, collecting {costs.collect:g}"
    labelled = f"{now.newest:,} newest labels, {now.relabellable:,} samples to relabel"
    yield "samples", f"{labelled}, {now.unlabelled:,} unlabelled"
    verdict = "decided at 90 %" if plan.decided else f"not decided: {', '.join(plan.rivals)} may be as good"
    verdict = verdict if now.relabellable else "nothing could be relabelled"
    counts = f"label {chosen.new:,} new ({chosen.collect:,} to be collected), relabel {chosen.relabel:,}"
    yield "chosen", f"{chosen.kind}: {counts}; {verdict}"
    yield "expected", f"mAcc {_with_interval(chosen)}, now {_with_interval(now)}"
    if (share := plan.break_even) is not None:
        yield (
            "break-even",
            f"relabelling pays below {share.ratio:.2f} of the cost of a new, collected label "
            f"({share.low:.2f} to {share.high:.2f})",
        )
    draws = f"{plan.draws} draws, seed {plan.seed}"
    yield "measured with", f"{plan.features}; a linear head on them; {draws}"
    yield "assumes", "; ".join(plan.assumes)


def _with_interval(found: Expected) -> str:
    return f"{percent(found.macc)} % ({interval(found.low, found.high)})"
