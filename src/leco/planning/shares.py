"""Counts as whole numbers, for each old class."""

from typing import Any

from torch import Tensor

from leco.planning.costs import Costs
from leco.planning.known import Known
from leco.planning.simulate import Mixture


def relabel_counts(known: Known, mixture: Mixture, costs: Costs) -> list[dict[str, Any]]:
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
