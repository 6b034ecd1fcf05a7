"""A linear head in closed form, from labels of any version: Gaussian classes with a shared covariance.

Shapes: n samples, d features, c newest classes. Everything is computed in float64 and takes O(nc) memory.
"""

import torch
from torch import Tensor

from leco.errors import LecoError
from leco.methods.folds import FOLDS, NEVER, best_temperature, stratified_folds
from leco.methods.refine import balancing_bias, condition

SHRINKAGE = 0.5  # of the covariance, towards a sphere
PRIOR_SAMPLES = 3.0  # weight, in samples of the class, of the mean over all samples whose labels allow the class
LEAST_SPREAD = 0.05  # of a class, as a share of the variance of all samples
_NOTHING = 1e-3  # prior samples where none are meant; keeps the division defined
_NEVER = 1e4  # subtracted from the logit of a class that no label allows


def gaussian_head(
    features_nd: Tensor,
    evidence_nc: Tensor,
    *,
    prior_samples: float = PRIOR_SAMPLES,
    temperature: float | None = None,
) -> tuple[Tensor, Tensor]:
    """Fit the weights (c, d) and bias (c,) of a head to features and the evidence of their labels.

    Linear discriminant analysis with one round of expectation maximisation: the samples whose class is certain make a
    first head, which predicts the class of the others given their labels (conditioning), each class at its expected
    frequency; certain and predicted samples make the second. Few labels of a class leave its mean and the covariance
    uncertain, so both are shrunk: the mean towards that of all samples whose labels allow the class. Logits are divided
    by `temperature`, or by the one that maximises the likelihood of held-out samples, so that probabilities are
    calibrated. All classes have the same prior, since scores are means over classes. Samples whose labels rule nothing
    out are ignored.

    >>> features = torch.tensor([[0.0, 0.1], [0.2, 0.0], [3.0, 0.1], [3.1, 0.0], [2.9, 0.0]])
    >>> evidence = torch.tensor([[0.0, -torch.inf]] * 2 + [[-torch.inf, 0.0]] * 2 + [[0.0, -1.0]])
    >>> weight, bias = gaussian_head(features, evidence)
    >>> (features @ weight.T + bias).argmax(dim=1)
    tensor([0, 0, 1, 1, 1])
    """
    x, evidence, allowed, certain, centre = _prepared(features_nd, evidence_nc)
    towards = _means(x, allowed, x.mean(dim=0), _NOTHING)
    known, classes = x[certain], allowed[certain]
    if temperature is None:
        temperature = _temperature(x, allowed, certain, prior_samples)
    weight, bias = _discriminants(known, classes, towards, temperature, prior_samples)
    if not certain.all():
        logits = x @ weight.T + bias
        logits = logits + balancing_bias(logits[~certain], evidence[~certain], classes.sum(dim=0))
        weight, bias = _discriminants(x, condition(logits, evidence), towards, temperature, prior_samples)
    bias = bias - weight @ centre - _NEVER * (allowed.sum(dim=0) == 0)
    return weight.to(features_nd), bias.to(features_nd)


def gaussian_temperature(features_nd: Tensor, evidence_nc: Tensor, *, prior_samples: float = PRIOR_SAMPLES) -> float:
    """Return the temperature that `gaussian_head` chooses."""
    x, _, allowed, certain, _ = _prepared(features_nd, evidence_nc)
    return _temperature(x, allowed, certain, prior_samples)


def _prepared(features_nd: Tensor, evidence_nc: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Centred features, evidence, shares of allowed classes, and certainty of the labelled samples; and the centre."""
    labelled = (evidence_nc != 0).any(dim=1) if evidence_nc.shape[1] > 1 else torch.ones_like(evidence_nc[:, 0]).bool()
    x, evidence = features_nd[labelled].double(), evidence_nc[labelled].double()
    if not x.isfinite().all():
        raise LecoError("features hold NaN or infinity, so a Gaussian head cannot be fitted; clean them first")
    allowed = condition(torch.zeros_like(evidence), evidence)
    certain = allowed.amax(dim=1) == 1
    if not certain.any():
        raise LecoError(
            "no label determines a newest class, so a Gaussian head cannot be fitted; label some in the newest version"
        )
    centre = x.mean(dim=0)
    return x - centre, evidence, allowed, certain, centre  # a large offset common to all logits would cost precision


def _means(x: Tensor, guesses_nc: Tensor, towards: Tensor, samples: float) -> Tensor:
    """Mean of each class (c, d), as if `samples` more of it lay at `towards`."""
    return (guesses_nc.T @ x + samples * towards) / (guesses_nc.sum(dim=0) + samples).unsqueeze(1)


def _discriminants(
    x: Tensor, guesses_nc: Tensor, towards: Tensor, temperature: float, prior_samples: float
) -> tuple[Tensor, Tensor]:
    """Weights and bias of Gaussian log-densities with a shared covariance, up to a term common to all classes."""
    means, count = _means(x, guesses_nc, towards, prior_samples), guesses_nc.sum(dim=0)
    products = means.T @ (guesses_nc.T @ x)
    square = x.T @ (guesses_nc.sum(dim=1, keepdim=True) * x)
    covariance = (square - products - products.T + means.T @ (count.unsqueeze(1) * means)) / count.sum()
    # One or two samples per class say nothing about its variance, except that it is not zero.
    least = LEAST_SPREAD * square.diagonal().mean() / count.sum() + 1e-12
    spread = covariance.diagonal().mean().clamp(min=least)
    shrunk = torch.lerp(covariance, spread * torch.eye(len(covariance)).to(covariance), SHRINKAGE)
    weight = torch.linalg.solve(shrunk, means.T).T / temperature
    return weight, -(weight * means).sum(dim=1) / 2


def _temperature(x: Tensor, allowed_nc: Tensor, certain: Tensor, prior_samples: float) -> float:
    """Temperature, at least 1, that maximises the likelihood of the certain samples in five-fold cross-validation."""
    labels = allowed_nc[certain].argmax(dim=1)
    if len(labels) < FOLDS:
        return 1.0
    fold = torch.full_like(certain, NEVER, dtype=torch.int64)
    fold[certain] = stratified_folds(labels)
    held_out = torch.zeros_like(allowed_nc)
    for number in range(FOLDS):
        rest, known = fold != number, certain & (fold != number)
        towards = _means(x[rest], allowed_nc[rest], x[rest].mean(dim=0), _NOTHING)
        weight, bias = _discriminants(x[known], allowed_nc[known], towards, 1.0, prior_samples)
        held_out[~rest] = x[~rest] @ weight.T + bias
    return best_temperature(held_out[certain], labels)
