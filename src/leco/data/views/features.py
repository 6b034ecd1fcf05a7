"""Views of feature vectors (n, d), so that every method that needs a weak and a strong view runs on them too."""

import torch.nn.functional as F
from torch import Tensor

from leco.data.draws import Draws
from leco.data.views.images import check

WEAK_NOISE, STRONG_NOISE, STRONG_DROPOUT = 0.05, 0.25, 0.2


def noise(features: Tensor, draws: Draws, std: Tensor | float = 1.0, amount: float = WEAK_NOISE) -> Tensor:
    """Add Gaussian noise of `amount` standard deviations; `std` is that of the features, one or one per dimension."""
    check(features, draws)
    return features + amount * std * draws.normal("noise", features.shape[1]).to(features.dtype)


def dropout(features: Tensor, draws: Draws, rate: float = STRONG_DROPOUT) -> Tensor:
    """Set a share of the features to zero and scale up the rest, so that the mean stays."""
    check(features, draws)
    kept = draws.levels("dropout", features.shape[1]) >= rate * 65_536
    return features * kept.to(features.dtype).div_(1 - rate)


def weak(features: Tensor, draws: Draws, std: Tensor | float = 1.0) -> Tensor:
    """A little noise."""
    return noise(features, draws, std, WEAK_NOISE)


def strong(features: Tensor, draws: Draws, std: Tensor | float = 1.0) -> Tensor:
    """More noise than in `weak`, and independent of it, and dropout."""
    own = draws.branch("strong")
    return dropout(noise(features, own, std, STRONG_NOISE), own)


def unit_length(features: Tensor) -> Tensor:
    """Features scaled to length ten: what a model takes in place of normalised pixels."""
    return 10 * F.normalize(features, dim=1)
