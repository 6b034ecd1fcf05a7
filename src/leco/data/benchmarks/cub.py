"""cub-leco: CUB-200-2011 as precomputed feature vectors; order, family, species. Trains in seconds.

With four periods, there are kinds between families and species: the last word of the English name, within a family.
They stand for genera, which the taxonomy does not give; of warblers, 25 species are one kind.
"""

from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from leco.data.benchmarks.benchmark import Benchmark, Recipe, labelled, register, require
from leco.data.manifest.table import read_cells
from leco.data.samples import InMemory, Samples
from leco.data.views.sets import feature_views
from leco.errors import LecoError
from leco.ontology.ontology import Ontology

_FOLDER = "cub200-features"
_COLUMNS = ("order", "family", "species")
_LEVELS = {2: ["order", "species"], 3: ["order", "family", "species"], 4: ["order", "family", "kind", "species"]}


def build(recipe: Recipe, root: Path) -> Benchmark:
    """Read `features.npz` (train_x, train_y, test_x, test_y) and `taxonomy.csv` (species, family, order)."""
    folder = root / _FOLDER
    for name in ("features.npz", "taxonomy.csv"):
        require(recipe, folder / name, f"put features.npz and taxonomy.csv into {folder}")
    levels = _LEVELS[len(recipe.classes)]
    rows = [dict(zip(_COLUMNS, cells, strict=True)) for _, cells in read_cells(folder / "taxonomy.csv", *_COLUMNS)]
    lineages = [[kind_of(row["species"]) if level == "kind" else row[level] for level in levels] for row in rows]
    ontology = Ontology.from_taxonomy("cub", levels, lineages)
    path = folder / "features.npz"
    vectors, labels = _read(path, "train", len(ontology.newest))
    width = vectors.shape[1]

    def read_test() -> Samples:
        vectors, labels = _read(path, "test", len(ontology.newest))
        if vectors.shape[1] != width:
            raise LecoError(f"{path}: test_x holds vectors of {vectors.shape[1]} numbers, train_x of {width}")
        return labelled(InMemory(vectors), labels, ontology)

    views = feature_views(vectors.std(dim=0))
    return Benchmark(recipe, ontology, labelled(InMemory(vectors), labels, ontology), read_test, views, labels)


def kind_of(species: str) -> str:
    """Return the last word of an English name.

    >>> kind_of("003.Sooty_Albatross")
    'Albatross'
    """
    return species.rpartition("_")[2].rpartition(".")[2]


def _read(path: Path, part: str, num_classes: int) -> tuple[Tensor, Tensor]:
    """Vectors and classes of the part `train` or `test`."""
    try:
        with np.load(path, allow_pickle=False) as arrays:
            features, labels = (np.asarray(arrays[f"{part}_{kind}"]) for kind in "xy")
    except Exception as error:  # numpy, zip and zlib have many
        raise LecoError(f"{path}: is not the expected archive of features: {error}") from None
    if features.ndim != 2 or labels.shape != features.shape[:1] or labels.dtype.kind not in "iu" or not len(labels):
        raise LecoError(f"{path}: {part}_x {features.shape} and {part}_y {labels.shape} are not vectors and classes")
    vectors = torch.from_numpy(features).float()
    if not vectors.isfinite().all():
        raise LecoError(f"{path}: {part}_x holds NaN or infinity")
    if labels.min() < 0 or labels.max() >= num_classes:
        raise LecoError(f"{path}: {part}_y must be 0 to {num_classes - 1}, the species of taxonomy.csv")
    return vectors, torch.from_numpy(labels).long()


# Not from the paper, which has no features: a linear head needs few steps.
LINEAR = {
    "network": {"backbone": "linear"},
    "optimiser": {"learning_rate": (0.5,), "weight_decay": 1e-3},
    "batches": {"steps": 2_000, "evaluate_every": 50},
}
_SETTINGS = {"paper": LINEAR, "small": LINEAR | {"batches": {"steps": 250, "evaluate_every": 50}}}
for _name, _classes, _size in (
    ("cub-leco", (13, 37, 200), 1_598),
    ("cub-leco-2tp", (13, 200), 2_397),
    ("cub-4tp-leco", (13, 37, 73, 200), 1_198),
):
    register(Recipe(_name, "features", _classes, _size, "CUB-200 features", build, _SETTINGS))
