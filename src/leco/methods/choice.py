"""The choice of a head by cross-validation on the samples whose newest class is certain.

Shapes: n samples, d features, c newest classes, m samples whose newest class is certain.
"""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from leco.methods.folds import NEVER, balanced, best_temperature, held_out_folds
from leco.methods.gaussian import gaussian_head, gaussian_temperature
from leco.methods.linear import LOWEST_TEMPERATURE, Fitted, certain_rows, fit_linear

NEWEST_ALONE = "linear, newest labels only"


def choose_head(features_nd: Tensor, evidence_nc: Tensor) -> tuple[str, Fitted]:
    """Fit a linear and a Gaussian head, their average, and a linear head of the newest labels alone, and choose one."""
    certain = certain_rows(evidence_nc)
    labels = evidence_nc[certain].argmax(dim=1)
    linear, gaussian = fit_linear(features_nd, evidence_nc), fit_gaussian(features_nd, evidence_nc)
    heads = {
        "linear+gaussian": average([linear, gaussian], labels),
        "linear": linear,
        "gaussian": gaussian,
        NEWEST_ALONE: fit_linear(features_nd[certain], evidence_nc[certain]),
    }
    name = choose(heads, labels, NEWEST_ALONE)
    return name, heads[name]


def choose(heads: Mapping[str, Fitted], labels_m: Tensor, baseline: str) -> str:
    """Return the name of the chosen head; heads come in order of preference.

    A head that predicts held-out samples worse than the baseline is ruled out; of the others, the first is chosen that
    is within one standard error of the best. So old labels are used unless held-out samples speak against them.
    """
    tested = torch.stack([~each.held_out_mc.isnan().any(dim=1) for each in heads.values()]).all(dim=0)
    labels = labels_m[tested].cpu()
    if not len(labels):
        return baseline
    right = {name: (each.held_out_mc[tested].argmax(dim=1).cpu() == labels).double() for name, each in heads.items()}
    harmless = [name for name in heads if mean_over_classes(right[name] - right[baseline], labels)[0] >= 0]
    best = right[max(harmless, key=lambda name: mean_over_classes(right[name], labels)[0])]
    return next(name for name in harmless if _not_worse(right[name] - best, labels))


def mean_over_classes(values_m: Tensor, labels_m: Tensor) -> tuple[float, float]:
    """Mean over classes of the mean of each, and its standard error.

    >>> mean_over_classes(torch.tensor([1.0, 0.0, 1.0, 1.0]), torch.tensor([0, 0, 1, 1]))
    (0.75, 0.25)
    """
    _, place, counts = labels_m.unique(return_inverse=True, return_counts=True)  # type: ignore[no-untyped-call]
    means = torch.zeros(len(counts)).double().index_add(0, place, values_m.double()) / counts
    # Classes are small, so they share an estimate of the variance.
    freedom = max(len(labels_m) - len(counts), 1)
    variance = (values_m - means[place]).square().sum() / freedom
    error = (variance * (1 / counts).sum()).sqrt() / len(counts)
    return float(means.mean()), float(error)


def average(heads: Sequence[Fitted], labels_m: Tensor) -> Fitted:
    """Return the head whose logits are the mean of those of other heads, up to its own temperature."""
    held_out = torch.stack([each.held_out_mc for each in heads]).mean(dim=0)
    tested = ~held_out.isnan().any(dim=1)
    temperature = 1.0
    if tested.any():
        logits, labels = held_out[tested], labels_m[tested]
        weights = balanced(labels, logits.shape[1])
        temperature = best_temperature(logits, labels, lowest=LOWEST_TEMPERATURE, class_weights_c=weights)
    weight = torch.stack([each.weight for each in heads]).mean(dim=0)
    bias = torch.stack([each.bias for each in heads]).mean(dim=0)
    return Fitted(weight / temperature, bias / temperature, held_out / temperature)


def averaged_head(features_nd: Tensor, evidence_nc: Tensor) -> tuple[Tensor, Tensor]:
    """Fit a linear and a Gaussian head, and return the weights (c, d) and bias (c,) of their average."""
    labels = evidence_nc[certain_rows(evidence_nc)].argmax(dim=1)
    found = average([fit_linear(features_nd, evidence_nc), fit_gaussian(features_nd, evidence_nc)], labels)
    return found.weight, found.bias


def fit_gaussian(features_nd: Tensor, evidence_nc: Tensor) -> Fitted:
    """Fit a Gaussian head, and again without each fold, at the same temperature, for its held-out logits."""
    temperature = gaussian_temperature(features_nd, evidence_nc)
    certain = certain_rows(evidence_nc)
    fold = held_out_folds(evidence_nc[certain].argmax(dim=1), features_nd.numel() * evidence_nc.shape[1])
    held_out = torch.full((len(fold), evidence_nc.shape[1]), torch.nan, dtype=torch.float64)
    for number in sorted(set(fold.tolist()) - {NEVER}):
        rows = torch.ones_like(certain)
        rows[certain] = fold != number
        weight, bias = gaussian_head(features_nd[rows], evidence_nc[rows], temperature=temperature)
        held_out[fold == number] = (features_nd[certain][fold == number] @ weight.T + bias).double()
    return Fitted(*gaussian_head(features_nd, evidence_nc, temperature=temperature), held_out)


def _not_worse(difference_m: Tensor, labels_m: Tensor) -> bool:
    """Return whether a difference to the best is within one standard error."""
    mean, error = mean_over_classes(difference_m, labels_m)
    return mean >= -error
