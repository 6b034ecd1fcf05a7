"""cub-leco: CUB-200-2011 as ready-made feature vectors; order, family, species. Trains in seconds."""

import csv
import io
from pathlib import Path

import numpy as np
import torch

from leco.data.benchmarks.benchmark import Benchmark, Recipe, labelled, there
from leco.data.samples import InMemory
from leco.errors import LecoError
from leco.ontology.files import read_text
from leco.ontology.ontology import Ontology

_FOLDER = "cub200-features"


def build(recipe: Recipe, root: Path) -> Benchmark:
    """Read `features.npz` (train_x, train_y, test_x, test_y) and `taxonomy.csv` (species, family, order)."""
    folder = root / _FOLDER
    for name in ("features.npz", "taxonomy.csv"):
        there(recipe, folder / name, "put features.npz and taxonomy.csv there")
    rows = list(csv.DictReader(io.StringIO(read_text(folder / "taxonomy.csv", 10_000_000))))
    levels = ["order", "species"] if len(recipe.classes) == 2 else ["order", "family", "species"]
    if not rows or not set(levels) <= set(rows[0]):
        raise LecoError(f"{folder / 'taxonomy.csv'}: needs the columns {', '.join(levels)}")
    ontology = Ontology.from_taxonomy("cub", levels, [[row[level] for level in levels] for row in rows])
    path = folder / "features.npz"
    try:
        with np.load(path, allow_pickle=False) as arrays:
            parts = {name: np.asarray(arrays[name]) for name in ("train_x", "train_y", "test_x", "test_y")}
    except Exception as error:  # numpy, zip and zlib have many
        raise LecoError(f"{path}: is not the archive of features that is expected: {error}") from None
    samples = {}
    for part in ("train", "test"):
        features, labels = parts[f"{part}_x"], parts[f"{part}_y"]
        if features.ndim != 2 or labels.shape != features.shape[:1] or labels.dtype.kind not in "iu" or not len(labels):
            raise LecoError(
                f"{path}: {part}_x {features.shape} and {part}_y {labels.shape} are not vectors and classes"
            )
        vectors = torch.from_numpy(features).float()
        if not vectors.isfinite().all() or features.shape[1] != parts["train_x"].shape[1]:
            raise LecoError(f"{path}: {part}_x holds values that are not finite, or vectors of another length")
        if labels.min() < 0 or labels.max() >= len(ontology.newest):
            raise LecoError(f"{path}: {part}_y must be 0 to {len(ontology.newest) - 1}, the species of taxonomy.csv")
        samples[part] = labelled(InMemory(vectors), torch.from_numpy(labels).long(), ontology)
    return Benchmark(recipe, ontology, samples["train"], samples["test"], torch.from_numpy(parts["train_y"]).long())
