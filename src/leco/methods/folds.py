"""Cross-validation of heads on the samples whose newest class is certain: folds and temperature.

Shapes: m such samples, c newest classes.
"""

import math
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor

FOLDS = 5
NEVER = -1  # fold of a sample that is never held out
CHEAP, COSTLY = 2e8, 1.5e9  # n * d * c up to which all folds, or two of them, are held out; otherwise one
_WIDEST = 12.0  # log of the largest temperature


def stratified_folds(labels_m: Tensor) -> Tensor:
    """Assign samples to folds that hold about as many of each class; deterministic.

    >>> stratified_folds(torch.tensor([0, 1, 0, 0, 1, 0]))
    tensor([0, 4, 1, 2, 0, 3])
    """
    fold = torch.empty_like(labels_m)
    fold[labels_m.argsort(stable=True)] = torch.arange(len(labels_m), device=fold.device) % FOLDS
    return fold


def held_out_folds(labels_m: Tensor, work: float = 0) -> Tensor:
    """Return the fold in which each sample is held out, or `NEVER`; of the folds, fewer are used if `work` is large.

    `work` is the number of multiplications to predict all samples. The only sample of a class is never held out, since
    no head can learn a class from nothing; nor is any of fewer than five.

    >>> held_out_folds(torch.tensor([0, 0, 0, 0, 1, 0]))
    tensor([ 0,  1,  2,  3, -1,  4])
    """
    fold = stratified_folds(labels_m)
    if len(labels_m) < FOLDS:
        return torch.full_like(fold, NEVER)
    used = FOLDS if work <= CHEAP else 2 if work <= COSTLY else 1
    alone = torch.bincount(labels_m)[labels_m] == 1
    return fold.masked_fill(alone | (fold >= used), NEVER)


def balanced(labels_m: Tensor, classes: int) -> Tensor:
    """Return the weight of each class with which all classes that occur count the same: (c,)."""
    return 1 / torch.bincount(labels_m, minlength=classes).clamp(min=1).double()


def best_temperature(
    logits_mc: Tensor, labels_m: Tensor, *, lowest: float = 1.0, class_weights_c: Tensor | None = None
) -> float:
    """Temperature, at least `lowest`, by which logits are divided to maximise the likelihood of the labels.

    >>> round(best_temperature(torch.tensor([[4.0, 0.0]] * 4), torch.tensor([0, 0, 0, 1])), 2)  # 4 / log 3
    3.64
    """
    from scipy.optimize import minimize_scalar  # imported here, since only these heads need it

    loss = partial(_loss, logits_mc, labels_m, class_weights_c)
    return math.exp(minimize_scalar(loss, bounds=(math.log(lowest), _WIDEST), method="bounded").x)


def _loss(logits: Tensor, labels: Tensor, class_weights: Tensor | None, log_temperature: float) -> float:
    """Cross-entropy; ties go to the lowest temperature."""
    scaled = logits / math.exp(log_temperature)
    return float(F.cross_entropy(scaled, labels, class_weights)) + 1e-6 * log_temperature
