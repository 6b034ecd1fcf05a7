"""A linear head in closed form, from labels of any version: Gaussian classes with one covariance.

Shapes: n samples, d features, c newest classes. All is computed in float64, and (n, c) numbers are held at once.
"""

import math
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor

from leco.errors import LecoError
from leco.methods.refine import balancing_bias, condition

SHRINKAGE = 0.5  # of the covariance, towards a sphere
PRIOR_SAMPLES = 3.0  # that the mean of what a class's labels allow is worth, beside the samples of the class
LEAST_SPREAD = 0.05  # of a class, as a share of that of all samples
FOLDS = 5
_NOTHING = 1e-3  # samples that stand for none
_NEVER = 1e4  # taken off the logit of a class that no label allows
_WIDEST = 12.0  # log of the largest temperature


def gaussian_head(features_nd: Tensor, evidence_nc: Tensor) -> tuple[Tensor, Tensor]:
    """The weights (c, d) and bias (c,) of a head for features whose labels are known as evidence.

    Linear discriminant analysis, and one round of expectation maximisation: the samples whose class is certain make a
    first head, which guesses the class of the others given their labels (conditioning), every class as often as it
    should be; certain and guessed samples make the second. Few labels of a class leave its mean and the covariance
    uncertain, so both are shrunk: the mean towards that of all samples whose labels allow the class. Logits are divided
    by the temperature at which held-out samples are most likely, so that probabilities mean something. No class is
    preferred for being frequent: the mean over classes counts. Samples whose labels say nothing are left out.

    >>> features = torch.tensor([[0.0, 0.1], [0.2, 0.0], [3.0, 0.1], [3.1, 0.0], [2.9, 0.0]])
    >>> evidence = torch.tensor([[0.0, -torch.inf]] * 2 + [[-torch.inf, 0.0]] * 2 + [[0.0, -1.0]])
    >>> weight, bias = gaussian_head(features, evidence)
    >>> (features @ weight.T + bias).argmax(dim=1)
    tensor([0, 0, 1, 1, 1])
    """
    labelled = (evidence_nc != 0).any(dim=1) if evidence_nc.shape[1] > 1 else torch.ones_like(evidence_nc[:, 0]).bool()
    x, evidence = features_nd[labelled].double(), evidence_nc[labelled].double()
    if not x.isfinite().all():
        raise LecoError("features are no finite numbers: a Gaussian head cannot be fitted")
    allowed = condition(torch.zeros_like(evidence), evidence)
    certain = allowed.amax(dim=1) == 1
    if not certain.any():
        raise LecoError("no sample is certain to be of a newest class: a Gaussian head cannot be fitted")
    centre = x.mean(dim=0)
    x = x - centre  # else logits share a large part, in which float32 loses the rest
    towards = _means(x, allowed, x.mean(dim=0), _NOTHING)
    known, classes = x[certain], allowed[certain]
    temperature = _temperature(x, allowed, certain)
    weight, bias = _discriminants(known, classes, towards, temperature)
    if not certain.all():
        logits = x @ weight.T + bias
        logits = logits + balancing_bias(logits[~certain], evidence[~certain], classes.sum(dim=0))
        weight, bias = _discriminants(x, condition(logits, evidence), towards, temperature)
    bias = bias - weight @ centre - _NEVER * (allowed.sum(dim=0) == 0)
    return weight.to(features_nd), bias.to(features_nd)


def _means(x: Tensor, guesses_nc: Tensor, towards: Tensor, samples: float) -> Tensor:
    """The mean of each class (c, d), with `samples` more of it at `towards`."""
    return (guesses_nc.T @ x + samples * towards) / (guesses_nc.sum(dim=0) + samples).unsqueeze(1)


def _discriminants(x: Tensor, guesses_nc: Tensor, towards: Tensor, temperature: float) -> tuple[Tensor, Tensor]:
    """Log-densities of Gaussians with a common covariance, cooled, but for what all classes share."""
    means, count = _means(x, guesses_nc, towards, PRIOR_SAMPLES), guesses_nc.sum(dim=0)
    products = means.T @ (guesses_nc.T @ x)
    square = x.T @ (guesses_nc.sum(dim=1, keepdim=True) * x)
    covariance = (square - products - products.T + means.T @ (count.unsqueeze(1) * means)) / count.sum()
    # With a sample or two of each class, nothing is known of how they spread, but that they do.
    least = LEAST_SPREAD * square.diagonal().mean() / count.sum() + 1e-12
    spread = covariance.diagonal().mean().clamp(min=least)
    shrunk = torch.lerp(covariance, spread * torch.eye(len(covariance)).to(covariance), SHRINKAGE)
    weight = torch.linalg.solve(shrunk, means.T).T / temperature
    return weight, -(weight * means).sum(dim=1) / 2


def _temperature(x: Tensor, allowed_nc: Tensor, certain: Tensor) -> float:
    """What logits are divided by, at least 1, so that certain samples, a fifth held out each time, are likeliest."""
    from scipy.optimize import minimize_scalar  # runs that have no such head start sooner without

    labels = allowed_nc[certain].argmax(dim=1)
    if len(labels) < FOLDS:
        return 1.0
    fold = torch.full_like(certain, -1, dtype=torch.int64)
    order = certain.nonzero().squeeze(1)[labels.argsort(stable=True)]
    fold[order] = torch.arange(len(order), device=fold.device) % FOLDS  # every class in turn
    held_out = torch.zeros_like(allowed_nc)
    for number in range(FOLDS):
        rest, known = fold != number, certain & (fold != number)
        towards = _means(x[rest], allowed_nc[rest], x[rest].mean(dim=0), _NOTHING)
        weight, bias = _discriminants(x[known], allowed_nc[known], towards, 1.0)
        held_out[~rest] = x[~rest] @ weight.T + bias
    surprise = partial(_surprise, held_out[certain], labels)
    return math.exp(minimize_scalar(surprise, bounds=(0, _WIDEST), method="bounded").x)


def _surprise(logits: Tensor, labels: Tensor, log_temperature: float) -> float:
    """Cross-entropy; where temperatures make no difference, the lowest is best."""
    return float(F.cross_entropy(logits / math.exp(log_temperature), labels)) + 1e-6 * log_temperature
