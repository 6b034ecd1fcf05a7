"""Small manifests, and what is said of those that are wrong."""

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from leco import LecoError, Ontology
from leco.data.manifest.manifest import read_manifest


def write_image(path: Path, seed: int = 0, size: tuple[int, int] = (6, 4)) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    pixels = np.random.default_rng(seed).integers(0, 255, (size[1], size[0], 3), dtype=np.uint8)
    Image.fromarray(pixels).save(path)
    return path


def write_mask(path: Path, values: object, dtype: type = np.uint8) -> Path:
    Image.fromarray(np.array(values, dtype=dtype)).save(path)
    return path


def csv(folder: Path, text: str) -> Path:
    path = folder / "labels.csv"
    path.write_text("\n".join(line.strip() for line in text.strip().splitlines()) + "\n", encoding="utf-8")
    return path


def complaint(path: Path, ontology: Ontology, **options: object) -> str:
    with pytest.raises(LecoError) as error:
        read_manifest(path, ontology, **options)
    return str(error.value)
