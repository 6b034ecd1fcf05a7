"""A linear head of maximal penalised likelihood, from labels of any version: logistic regression on evidence.

Shapes: n samples, d features, r of them after rotation, c newest classes, m samples whose newest class is certain.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from leco.errors import LecoError
from leco.methods.folds import CHEAP, FOLDS, NEVER, balanced, best_temperature, held_out_folds
from leco.methods.refine import condition

STRENGTHS = tuple(10 ** (-power / 2) for power in range(3, 11))  # of the penalty, for features of mean square length 1
DEFAULT_STRENGTH = 1e-3  # if too few labels are certain to choose one
HISTORY_SHARES = (0.25, 1.0)  # weight of all uncertain labels together, relative to that of the certain ones
LOWEST_TEMPERATURE = 0.1
_NEVER = 1e4  # subtracted from the logit of a class that no label allows
_BLOCK = 16_384  # rows whose logits are held at once
_STEPS = 500
_TOLERANCE, _VALIDATION_TOLERANCE = 1e-7, 1e-4  # of the gradient
_WORSE = 2  # strengths in a row that are worse than the best, after which weaker ones are not tried


@dataclass(frozen=True, eq=False)
class Fitted:
    """A linear head, and its held-out logits: those of each certain sample, by a head fitted without its fold."""

    weight: Tensor  # (c, d)
    bias: Tensor  # (c,)
    held_out_mc: Tensor  # float64; NaN for samples that are never held out
    strength: float | None = None  # of the penalty


def linear_head(features_nd: Tensor, evidence_nc: Tensor) -> tuple[Tensor, Tensor]:
    """Fit the weights (c, d) and bias (c,) of a head to features and the evidence of their labels.

    Minimises the evidence loss (cross-entropy for newest labels, learning with partial labels for older ones) plus an
    L2 penalty to convergence. Cross-validation on the samples whose class is certain chooses the strength of the
    penalty, the temperature, and whether all uncertain labels together weigh a quarter as much as the certain ones or
    the same (an uncertain label never weighs more than a certain one). Class frequencies, of certain and of uncertain
    labels, are part of the loss but not of the head (logit adjustment): all classes have the same prior, since scores
    are means over classes. A class without a certain label is hardly ever predicted, as nothing tells it from the
    others that its labels allow. Samples whose labels rule nothing out are ignored.

    >>> features = torch.tensor([[0.0, 0.1], [0.2, 0.0], [3.0, 0.1], [3.1, 0.0], [2.9, 0.0]])
    >>> evidence = torch.tensor([[0.0, -torch.inf]] * 2 + [[-torch.inf, 0.0]] * 2 + [[0.0, -1.0]])
    >>> weight, bias = linear_head(features, evidence)
    >>> (features @ weight.T + bias).argmax(dim=1)
    tensor([0, 0, 1, 1, 1])
    """
    found = fit_linear(features_nd, evidence_nc)
    return found.weight, found.bias


def fit_linear(
    features_nd: Tensor,
    evidence_nc: Tensor,
    *,
    strengths: Sequence[float] = STRENGTHS,
    history_shares: Sequence[float] = HISTORY_SHARES,
) -> Fitted:
    """Fit a head as `linear_head` does, and return it with its held-out logits and the strength of its penalty.

    The strength is chosen at the first of the shares, and the share at that strength.
    """
    labelled = labelled_rows(evidence_nc)
    evidence = evidence_nc[labelled]
    certain, possible = certain_rows(evidence), (evidence > -torch.inf).any(dim=0)
    if not certain.any():
        raise LecoError(
            "no label determines a newest class, so a linear head cannot be fitted; label some in the newest version"
        )
    rotated = _Rotated.of(features_nd[labelled])
    work = rotated.x.numel() * int(possible.sum())
    if work > CHEAP:
        rotated = replace(rotated, x=rotated.x.float())  # twice as fast
    samples = _Labelled(rotated, evidence[:, possible], certain, history_shares[0])
    fold = held_out_folds(samples.labels_m, work)
    held_out, strength = _cross_validate(samples, fold, strengths)
    for share in () if certain.all() or (fold == NEVER).all() else history_shares[1:]:
        other = replace(samples, history_share=share)
        found, _ = _cross_validate(other, fold, [strength])
        if _balanced_loss(found, samples.labels_m)[0] < _balanced_loss(held_out, samples.labels_m)[0]:
            samples, held_out = other, found
    everything = samples.without(torch.zeros_like(fold, dtype=torch.bool))
    stronger = [other for other in strengths if other > strength]
    start = everything.solve(min(stronger)) if stronger else None
    temperature = _balanced_loss(held_out, samples.labels_m)[1]
    weight, bias = rotated.unrotate(everything.solve(strength, start) / temperature)
    return Fitted(
        _widen(weight, possible, 0.0).to(features_nd),
        _widen(bias, possible, float(bias.min()) - _NEVER).to(features_nd),
        _widen(held_out.T / temperature, possible, -_NEVER).T,
        strength,
    )


def labelled_rows(evidence_nc: Tensor) -> Tensor:
    """Return whether each row of evidence rules something out: (n,); with a single class, all rows count."""
    return (evidence_nc != 0).any(dim=1) | (evidence_nc.shape[1] == 1)


def certain_rows(evidence_nc: Tensor) -> Tensor:
    """Return whether each row of evidence allows a single class: (n,)."""
    return (evidence_nc > -torch.inf).sum(dim=1) == 1


def minimise(
    x_nr: Tensor,
    table: Tensor,
    ids_n: Tensor,
    weights_n: Tensor,
    l2: float,
    *,
    offsets_nc: Tensor | None = None,
    spread_r: Tensor | None = None,
    start: Tensor | None = None,
    tolerance: float = _TOLERANCE,
) -> Tensor:
    """Return the weights and, in the last row, the bias (r + 1, c) of the smallest loss.

    The loss is the weighted mean of evidence losses plus `l2` / 2 times the sum of squared weights. The evidence of a
    sample is `table[ids_n]`; `offsets_nc` are added to its logits. Found by L-BFGS from `start` or zero. If the columns
    of x are uncorrelated with mean squares `spread_r`, parameters are scaled by their expected curvature, which saves
    most of the steps. Products with x are computed in its precision, everything else in float64.
    """
    from scipy.optimize import minimize  # imported here, since only these heads need it

    width, classes = x_nr.shape[1], table.shape[1]
    weights = (weights_n.double() / weights_n.sum()).unsqueeze(1)
    tolerance = max(tolerance, 1e-5) if x_nr.dtype == torch.float32 else tolerance  # rounding allows no less
    curvature = torch.ones(width + 1, dtype=torch.float64)
    if spread_r is not None:
        curvature[:-1] = spread_r + l2 * classes / 2
    scale = (curvature * 2 / classes).rsqrt().unsqueeze(1)

    def loss(parameters: NDArray[np.float64]) -> tuple[float, NDArray[np.float64]]:
        head = scale * torch.from_numpy(parameters).view(width + 1, classes)
        value, gradient = l2 / 2 * float(head[:-1].square().sum()), l2 * head
        gradient[-1] = 0
        for first in range(0, len(x_nr), _BLOCK):
            block = slice(first, first + _BLOCK)
            logits = (x_nr[block] @ head[:-1].to(x_nr)).double() + head[-1]
            if offsets_nc is not None:
                logits += offsets_nc[block]
            log_probs = F.log_softmax(logits, dim=1)
            joint = log_probs + table[ids_n[block]]
            log_likelihood = joint.logsumexp(dim=1, keepdim=True)
            value -= float((weights[block] * log_likelihood).sum())
            residual = weights[block] * (log_probs.exp() - (joint - log_likelihood).exp())
            gradient[:-1] += (residual.T.to(x_nr) @ x_nr[block]).T  # three times as fast as x.T @ residual
            gradient[-1] += residual.sum(dim=0)
        return value, (scale * gradient).numpy().ravel()

    initial = torch.zeros(width + 1, classes) if start is None else start / scale
    options = {"maxiter": _STEPS, "maxcor": 10, "gtol": tolerance, "ftol": tolerance**2}
    found = minimize(loss, initial.double().numpy().ravel(), jac=True, method="L-BFGS-B", options=options)
    return scale * torch.from_numpy(found.x).view(width + 1, classes)


@dataclass(frozen=True, eq=False)
class _Rotated:
    """Centred features along their principal axes, with mean square length 1; the penalty is invariant to rotation."""

    x: Tensor  # (n, r)
    spread: Tensor  # (r,) mean square of each column
    centre: Tensor  # (d,)
    axes: Tensor  # (d, r): x = (features - centre) @ axes

    @classmethod
    def of(cls, features_nd: Tensor) -> "_Rotated":
        """Rotate features; drop the axes along which they do not vary."""
        x = features_nd.cpu().double()
        if not x.isfinite().all():
            raise LecoError("features hold NaN or infinity, so a linear head cannot be fitted; clean them first")
        largest = x.abs().max().clamp(min=1e-300)
        x = x / largest  # squares could overflow
        centre = x.mean(dim=0)
        x = x - centre
        wide = len(x) < x.shape[1]
        squares, vectors = torch.linalg.eigh(x @ x.T if wide else x.T @ x)
        # The rounding of float32 inputs gives constant features about this much variance.
        kept = squares > max(1e-10 * float(squares.max()), 1e-13 * len(x) * float(centre.square().sum()))
        squares, vectors = squares[kept].flip(0), vectors[:, kept].flip(1)
        axes = x.T @ vectors / squares.sqrt() if wide else vectors
        length = (squares.sum() / len(x)).sqrt() if len(squares) else torch.ones(())
        spread = squares / len(x) / length.square()
        return cls(x @ axes / length, spread, centre * largest, axes / length / largest)

    def unrotate(self, head: Tensor) -> tuple[Tensor, Tensor]:
        """Return the weights (c, d) and bias (c,) for the original features."""
        weight = (self.axes @ head[:-1]).T
        return weight, head[-1] - weight @ self.centre


@dataclass(frozen=True, eq=False)
class _Labelled:
    """Rotated features and evidence of samples; every class is allowed by some label."""

    rotated: _Rotated
    evidence_nc: Tensor
    certain: Tensor  # (n,)
    history_share: float

    @property
    def labels_m(self) -> Tensor:
        """Class of each certain sample."""
        return self.evidence_nc[self.certain].argmax(dim=1)

    def without(self, held_out_m: Tensor) -> "_Part":
        """Return the samples to train on if some of the certain ones are held out."""
        rows = torch.ones_like(self.certain)
        rows[self.certain] = ~held_out_m
        certain, evidence = self.certain[rows], self.evidence_nc[rows]
        counts = (evidence[certain] > -torch.inf).sum(dim=0).double() + 1
        history = evidence[~certain].double()
        expected = condition(counts.log().expand_as(history), history).sum(dim=0) + 1
        priors = torch.stack([expected / expected.sum(), counts / counts.sum()]).log()
        weight = min(1.0, self.history_share * int(certain.sum()) / max(len(history), 1))
        return _Part(
            self.rotated.x[rows],
            self.rotated.spread,
            evidence,
            torch.where(certain, 1.0, weight),
            priors.float()[certain.long()],
        )


@dataclass(frozen=True, eq=False)
class _Part:
    """Samples to train on, with their weights and, per sample, the log frequency of each class among such labels."""

    x: Tensor
    spread: Tensor
    evidence_nc: Tensor
    weights: Tensor
    offsets_nc: Tensor

    def halved(self) -> "_Part":
        """The same in float32, twice as fast: precise enough to compare penalties."""
        return replace(self, x=self.x.float())

    def solve(self, strength: float, start: Tensor | None = None, tolerance: float = _TOLERANCE) -> Tensor:
        """Return the head (r + 1, c)."""
        ids = torch.arange(len(self.x))
        return minimise(
            *(self.x, self.evidence_nc, ids, self.weights, strength),
            offsets_nc=self.offsets_nc,
            spread_r=self.spread,
            start=start,
            tolerance=tolerance,
        )


def _cross_validate(samples: _Labelled, fold_m: Tensor, strengths: Sequence[float]) -> tuple[Tensor, float]:
    """Return the held-out logits (m, c) of the strength that predicts them best, and that strength."""
    labels, x = samples.labels_m, samples.rotated.x[samples.certain].double()
    best = torch.full((len(labels), samples.evidence_nc.shape[1]), torch.nan, dtype=torch.float64)
    tests = [fold_m == number for number in range(FOLDS) if (fold_m == number).any()]
    if not tests:
        return best, DEFAULT_STRENGTH if DEFAULT_STRENGTH in strengths else strengths[-1]
    parts = [samples.without(test).halved() for test in tests]
    heads: list[Tensor | None] = [None] * len(parts)
    chosen, least, worse = strengths[0], math.inf, 0
    for strength in sorted(strengths, reverse=True):  # each fit starts from the one before
        held_out = torch.full_like(best, torch.nan)
        for number, (part, test) in enumerate(zip(parts, tests, strict=True)):
            head = heads[number] = part.solve(strength, heads[number], _VALIDATION_TOLERANCE)
            held_out[test] = x[test] @ head[:-1] + head[-1]
        loss, _ = _balanced_loss(held_out, labels)
        worse = 0 if loss < least else worse + 1
        if loss < least:
            chosen, least, best = strength, loss, held_out
        elif worse == _WORSE:
            break
    return best, chosen


def _balanced_loss(held_out_mc: Tensor, labels_m: Tensor) -> tuple[float, float]:
    """Cross-entropy of held-out samples, all classes counting the same, at its best temperature, and that."""
    tested = ~held_out_mc.isnan().any(dim=1)
    if not tested.any():
        return math.inf, 1.0
    logits, labels = held_out_mc[tested], labels_m[tested]
    weights = balanced(labels, logits.shape[1])
    temperature = best_temperature(logits, labels, lowest=LOWEST_TEMPERATURE, class_weights_c=weights)
    return float(F.cross_entropy(logits / temperature, labels, weights)), temperature


def _widen(values: Tensor, possible: Tensor, fill: float) -> Tensor:
    """Insert the classes that no label allows as rows of `fill`."""
    found = values.new_full((len(possible), *values.shape[1:]), fill)
    found[possible] = values
    return found
