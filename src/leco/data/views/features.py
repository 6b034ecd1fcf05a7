"""Views of feature vectors (n, d), so that methods that need a weak and a strong view run on them, too."""

from functools import lru_cache

import torch
import torch.nn.functional as F
from torch import Tensor

from leco.data.rng import Draws, normal_quantiles
from leco.data.views.images import check
from leco.placement import constant

WEAK_NOISE, STRONG_NOISE, STRONG_DROPOUT = 0.05, 0.25, 0.2
_LARGE = 1e9  # the sum of the squares of such values is finite in 32 bits


def weak(features: Tensor, draws: Draws, std: Tensor | float = 1.0) -> Tensor:
    """Add a little Gaussian noise, scaled by the standard deviation `std` of the features, shared or per dimension."""
    check(features, draws)
    return features + WEAK_NOISE * _on(std, features) * draws.normal("noise", features.shape[1]).to(features.dtype)


def strong(features: Tensor, draws: Draws, std: Tensor | float = 1.0) -> Tensor:
    """Add more noise than `weak`, independent of it, and apply dropout.

    One draw decides both: the lowest fifth of its levels drops a feature, the others are quantiles of its noise.
    """
    check(features, draws)
    levels = draws.branch("strong").levels("noise and dropout", features.shape[1])
    noise, kept = _noise_and_kept(features.device)
    flat = levels.view(-1)
    noises = noise.index_select(0, flat).view(levels.shape).to(features.dtype)
    noisy = features + STRONG_NOISE * _on(std, features) * noises
    return noisy.mul_(kept.index_select(0, flat).view(levels.shape).to(features.dtype))


def _on(std: Tensor | float, features: Tensor) -> Tensor | float:
    return constant(std, features.device) if isinstance(std, Tensor) else std


@lru_cache
def _noise_and_kept(device: torch.device) -> tuple[Tensor, Tensor]:
    """For each of 65,536 levels: the noise, and the dropout factor, which preserves the mean."""
    dropped = round(STRONG_DROPOUT * 65_536)
    noise, kept = torch.zeros(65_536), torch.zeros(65_536)
    noise[dropped:] = normal_quantiles(65_536 - dropped)
    kept[dropped:] = 65_536 / (65_536 - dropped)
    return noise.to(device), kept.to(device)


def unit_length(features: Tensor) -> Tensor:
    """Scale features to length ten: the counterpart of normalising pixels.

    Values whose squares are too large or too small for their type are scaled by the largest of them first.
    """
    largest = features.abs().amax(dim=1, keepdim=True)
    extreme = (largest > _LARGE) | (largest < 1 / _LARGE)
    factor = torch.where(extreme, 1 / largest.clamp(min=torch.finfo(features.dtype).tiny), 1.0)
    return 10 * F.normalize(features * factor, dim=1)
