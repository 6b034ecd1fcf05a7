"""The choice of a head by cross-validation on the samples whose newest class is certain.

Shapes: n samples, d features, c newest classes, m samples whose newest class is certain.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from leco.errors import LecoError
from leco.methods.folds import NEVER, balanced, best_temperature, held_out_folds
from leco.methods.gaussian import gaussian_head, gaussian_temperature
from leco.methods.linear import LOWEST_TEMPERATURE, Fitted, certain_rows, fit_linear

Candidate = Callable[[Tensor, Tensor], Fitted]  # features (n, d) and evidence (n, c)
NEWEST_ALONE = "linear, newest labels only"
TOLERANCE = 0.0  # standard errors by which a head may be worse than the baseline on held-out samples


@dataclass(frozen=True)
class Tried:
    """Held-out accuracy of a head, averaged over classes, and its gain over the baseline on the same samples."""

    name: str
    macc: float
    macc_error: float  # standard error
    gain: float
    gain_error: float

    def __str__(self) -> str:
        """One line for people."""
        gain = f", {100 * self.gain:+.1f} ± {100 * self.gain_error:.1f}" if self.gain or self.gain_error else ""
        return f"{self.name}: {100 * self.macc:.1f} ± {100 * self.macc_error:.1f}{gain}"


@dataclass(frozen=True, eq=False)
class Choice:
    """The head that was chosen, and all that were tried."""

    name: str
    baseline: str
    fitted: Fitted
    tried: tuple[Tried, ...]
    held_out: int  # samples on which the candidates were compared

    @property
    def chosen(self) -> Tried:
        """The scores of the chosen head."""
        return next(each for each in self.tried if each.name == self.name)


def choose_head(
    features_nd: Tensor,
    evidence_nc: Tensor,
    candidates: Mapping[str, Candidate | Sequence[str]] | None = None,
    *,
    baseline: str = NEWEST_ALONE,
    tolerance: float = TOLERANCE,
) -> Choice:
    """Fit all candidates, and choose one by cross-validation.

    Candidates come in order of preference. One that is given as the names of others averages their logits. Any that
    predicts held-out samples worse than the baseline by more than `tolerance` standard errors of the difference is
    ruled out; of the others, the first is chosen that is within one standard error of the best. So old labels are used
    unless held-out samples speak against them.
    """
    candidates = CANDIDATES if candidates is None else candidates
    if baseline not in candidates:
        raise LecoError(f"baseline: {baseline!r} is not one of the candidates: {', '.join(candidates)}")
    labels = evidence_nc[certain_rows(evidence_nc)].argmax(dim=1)
    fitted: dict[str, Fitted] = {}
    for name, candidate in candidates.items():
        if callable(candidate):
            fitted[name] = candidate(features_nd, evidence_nc)
    for name, candidate in candidates.items():
        if not callable(candidate):
            fitted[name] = average([fitted[other] for other in candidate], labels)
    return choose({name: fitted[name] for name in candidates}, labels, baseline, tolerance=tolerance)


def choose(fitted: Mapping[str, Fitted], labels_m: Tensor, baseline: str, *, tolerance: float = TOLERANCE) -> Choice:
    """Choose among fitted heads, given the classes of the certain samples; see `choose_head`."""
    tested = torch.stack([~each.held_out_mc.isnan().any(dim=1) for each in fitted.values()]).all(dim=0)
    labels = labels_m[tested].cpu()
    right = {name: (each.held_out_mc[tested].argmax(dim=1).cpu() == labels).double() for name, each in fitted.items()}
    tried = tuple(
        Tried(name, *mean_over_classes(found, labels), *mean_over_classes(found - right[baseline], labels))
        for name, found in right.items()
    )
    name = baseline
    if len(labels):
        harmless = [each for each in tried if each.gain >= -tolerance * each.gain_error]
        best = right[max(harmless, key=lambda each: each.macc).name]
        name = next(each.name for each in harmless if _not_worse(right[each.name] - best, labels))
    return Choice(name, baseline, fitted[name], tried, len(labels))


def mean_over_classes(values_m: Tensor, labels_m: Tensor) -> tuple[float, float]:
    """Mean over classes of the mean of each, and its standard error; NaN if there are no samples.

    >>> mean_over_classes(torch.tensor([1.0, 0.0, 1.0, 1.0]), torch.tensor([0, 0, 1, 1]))
    (0.75, 0.25)
    """
    if not len(labels_m):
        return math.nan, math.nan
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
    heads = [fit_linear(features_nd, evidence_nc), fit_gaussian(features_nd, evidence_nc)]
    found = average(heads, labels)
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


def newest_alone(features_nd: Tensor, evidence_nc: Tensor, *, fit: Candidate = fit_linear) -> Fitted:
    """Fit a head to the certain samples only."""
    certain = certain_rows(evidence_nc)
    return fit(features_nd[certain], evidence_nc[certain])


def _not_worse(difference_m: Tensor, labels_m: Tensor) -> bool:
    """Return whether a difference to the best is within one standard error."""
    mean, error = mean_over_classes(difference_m, labels_m)
    return mean >= -error


CANDIDATES: Mapping[str, Candidate | Sequence[str]] = {
    "linear+gaussian": ("linear", "gaussian"),
    "linear": fit_linear,
    "gaussian": fit_gaussian,
    NEWEST_ALONE: newest_alone,
}
