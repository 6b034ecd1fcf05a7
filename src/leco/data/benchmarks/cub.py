"""cub-leco: CUB-200-2011 as ready-made feature vectors; order, family, species. Trains in seconds."""

import csv
import io
from pathlib import Path

import numpy as np
import torch

from leco.data.benchmarks.benchmark import Benchmark, Recipe, labelled, missing
from leco.data.samples import InMemory
from leco.errors import LecoError
from leco.ontology.files import read_text
from leco.ontology.ontology import Ontology

_FOLDER = "cub200-features"


def build(recipe: Recipe, root: Path) -> Benchmark:
    """Read `features.npz` (train_x, train_y, test_x, test_y) and `taxonomy.csv` (species, family, order)."""
    folder = root / _FOLDER
    for name in ("features.npz", "taxonomy.csv"):
        if not (folder / name).is_file():
            raise missing(recipe, folder / name, "put features.npz and taxonomy.csv there")
    rows = list(csv.DictReader(io.StringIO(read_text(folder / "taxonomy.csv", 10_000_000))))
    levels = ["order", "species"] if len(recipe.classes) == 2 else ["order", "family", "species"]
    ontology = Ontology.from_taxonomy("cub", levels, [[row[level] for level in levels] for row in rows])
    with np.load(folder / "features.npz", allow_pickle=False) as arrays:
        parts = {name: torch.from_numpy(arrays[name]) for name in ("train_x", "train_y", "test_x", "test_y")}
    for name in ("train_x", "test_x"):
        if not parts[name].isfinite().all():
            raise LecoError(f"{folder / 'features.npz'}: {name} holds values that are not finite")
    return Benchmark(
        recipe,
        ontology,
        labelled(InMemory(parts["train_x"].float()), parts["train_y"], ontology),
        labelled(InMemory(parts["test_x"].float()), parts["test_y"], ontology),
        strata=parts["train_y"].long(),
    )
