"""What annotations cost, and how much of a question an old label has already answered."""

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from leco.errors import LecoError
from leco.ontology.evidence import Evidence

if TYPE_CHECKING:
    from leco.planning.known import Known
    from leco.planning.simulate import Mixture


@dataclass(frozen=True)
class Costs:
    """Cost of one annotation, in any unit; `relabel` is None where the ontology is to say it.

    A new sample costs `collect` and `new`, an unlabelled one that is there already only `new`.
    """

    new: float = 1.0
    relabel: float | None = None
    collect: float = 0.0

    def of_relabelling(self, shares: Tensor) -> Tensor:
        """The cost of each old sample, of which `shares` of the question are still open; nothing where it is 0."""
        each = self.new * shares if self.relabel is None else torch.full_like(shares, self.relabel)
        return each.where(shares > 0, 0.0)

    def of_new(self, count: int, unlabelled: int) -> float:
        """The cost of labelling so many new samples; those `unlabelled` need not be collected."""
        return count * self.new + max(0, count - unlabelled) * self.collect

    def affordable_new(self, budget: float, unlabelled: int) -> int:
        """How many new samples a budget buys."""
        without = _whole(budget / self.new)
        if without <= unlabelled:
            return without
        return unlabelled + _whole((budget - unlabelled * self.new) / (self.new + self.collect))


def _whole(number: float) -> int:
    return math.floor(number + 1e-9)  # 0.3 / 0.1 buys three


_MOST = 10**12


def check(budget: float, costs: Costs) -> None:
    """Refuse what makes no sense."""
    named = {"--budget": budget, "--cost-new": costs.new, "--cost-collect": costs.collect}
    named |= {} if costs.relabel is None else {"--cost-relabel": costs.relabel}
    for name, value in named.items():
        if not math.isfinite(value) or value < 0 or value > _MOST:
            least = "from 0" if name == "--cost-collect" else "above 0, up"
            raise LecoError(f"{name} {value:g}: say a number {least} to {_MOST:g}")
    for name in ("--budget", "--cost-new", "--cost-relabel"):
        if named.get(name) == 0:
            raise LecoError(f"{name} 0: must be above 0, or there is nothing to weigh")
    if budget / min(costs.new, costs.relabel or costs.new) > 10**8:
        raise LecoError(f"--budget {budget:g} buys more than 10^8 annotations; are budget and costs in the same unit?")


def choices(evidence: Evidence, rows: Tensor) -> Tensor:
    """How many newest classes each row of evidence leaves possible: what has to be offered to an annotator."""
    counts = evidence.starts[rows + 1] - evidence.starts[rows]
    return counts.where(counts > 0, evidence.num_classes)  # no label says nothing


def open_share(evidence: Evidence, rows: Tensor) -> Tensor:
    """Share of the bits of a label that an older one leaves open: log2 of the choices, of log2 of all classes.

    >>> from leco import Ontology
    >>> history = {"v1": ["dog", "cat"], "v2": {"poodle": {"from": "dog"}, "husky": {"from": "dog"}, "cat": None}}
    >>> ontology = Ontology.from_dict({"versions": [{"name": k, "classes": v} for k, v in history.items()]})
    >>> evidence = ontology.evidence()
    >>> open_share(evidence, evidence.ids(["dog", "cat", ""], "v1"))
    tensor([0.6309, 0.0000, 1.0000], dtype=torch.float64)
    """
    if evidence.num_classes < 2:
        raise LecoError(f"{evidence.ontology.newest.name} has one class: there is nothing to annotate")
    return choices(evidence, rows).double().log2() / math.log2(evidence.num_classes)


def relabel_counts(known: "Known", mixture: "Mixture", costs: Costs) -> list[dict[str, Any]]:
    """How many samples of each old class to relabel: in proportion to how many there are."""
    history = known.history
    pool = history.relabellable
    labels, counts = history.label[pool].unique(return_counts=True)  # type: ignore[no-untyped-call]
    shares = share_out(mixture.relabel, counts)
    each = costs.of_relabelling(history.open)
    rows = []
    for label, count, of in zip(labels.tolist(), shares, counts.tolist(), strict=True):
        version, name = known.name(label)
        cost = float(each[pool][history.label[pool] == label].mean())
        rows.append({"version": version, "class": name, "count": count, "of": of, "cost": cost})
    return rows


def share_out(total: int, counts: Tensor) -> list[int]:
    """Whole numbers that sum to `total`, in proportion to `counts` and none above its own (largest remainders).

    >>> import torch
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
