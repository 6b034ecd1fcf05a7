"""Real images: scikit-learn's photographs, and CIFAR-100 if it is available."""

import pickle
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from sklearn.datasets import load_sample_images
from torch import Tensor


@pytest.fixture(scope="session")
def cifar_images(cifar_root: Path) -> Tensor:
    """500 test images of CIFAR-100."""
    content = pickle.loads((cifar_root / "cifar-100-python" / "test").read_bytes(), encoding="bytes")
    return torch.from_numpy(content[b"data"][:500].reshape(-1, 3, 32, 32).copy())


@pytest.fixture(scope="session")
def photographs() -> Tensor:
    """Eighteen pieces of two photographs, 48x40 (not square, to tell rows from columns), and two that are hard.

    Those are one of a single colour, and one of two values, for which a histogram has nothing to stretch.
    """
    pieces = []
    for picture in load_sample_images().images:
        small = np.asarray(Image.fromarray(picture).resize((120, 144)))
        pieces += [small[48 * i : 48 * i + 48, 40 * j : 40 * j + 40] for i in range(3) for j in range(3)]
    plain = np.full((48, 40, 3), (10, 200, 255), dtype=np.uint8)
    two = plain.copy()
    two[:5, :5] = (90, 90, 0)
    return torch.from_numpy(np.stack([*pieces, plain, two])).permute(0, 3, 1, 2).contiguous()
