"""inat-leco and inat-4tp-leco: Semi-iNat 2021, from orders to species (Table 1 and appendix B of the paper).

The pool is the labelled training images and the in-class unlabelled ones, whose labels were published later; the
official validation set is the test set.
"""

import re
import reprlib
from functools import partial
from pathlib import Path

import torch
from torch import Tensor

from leco.data.benchmarks.benchmark import Benchmark, Recipe, labelled, missing, register, require
from leco.data.images import middle_square
from leco.data.samples import Files, Samples
from leco.data.views.sets import view_set
from leco.errors import LecoError
from leco.io import read_json, read_text
from leco.ontology.ontology import Ontology

_FOLDER = "semi-inat-2021"
_REMEDY = (
    "download the images and the label lists of Semi-iNat 2021 (github.com/cvl-umass/semi-inat-2021; the labels of "
    "u_train_in were released after the challenge): l_train, u_train_in and val, each with a list of `path label` "
    "lines, and label2taxaid.json, all_taxa_info.json"
)
_LEVELS = {2: ["order", "species"], 4: ["order", "family", "genus", "species"]}
_SIDE = 256  # of the squares that views are cropped from
_LARGEST_LIST = 200_000_000


def ontology(recipe: Recipe, folder: Path) -> Ontology:
    """Build the tree of taxa; class k of `species` is label k of the lists."""
    names = ("all_taxa_info.json", "label2taxaid.json")
    taxa, labels = (read_json(require(recipe, folder / name, _REMEDY), _LARGEST_LIST) for name in names)
    levels = _LEVELS[len(recipe.classes)]
    try:
        lineages = [[taxa[str(label)][level] for level in levels] for label in sorted(int(label) for label in labels)]
    except (KeyError, TypeError, ValueError) as error:
        raise LecoError(f"{folder / names[0]}: does not give {', '.join(levels)} of every label: {error!r}") from None
    return Ontology.from_taxonomy("inat", levels, lineages)


def build(recipe: Recipe, root: Path) -> Benchmark:
    """Read the lists; images are read on demand."""
    folder = root / _FOLDER
    tree = ontology(recipe, folder)
    paths, labels = zip(*(_read_list(recipe, folder, name) for name in ("l_train", "u_train_in")), strict=True)
    pool_labels = torch.cat(labels)

    def read_test() -> Samples:
        paths, labels = _read_list(recipe, folder, "val")
        return labelled(_images(paths), labels, tree)

    return Benchmark(
        recipe,
        tree,
        labelled(_images([path for part in paths for path in part]), pool_labels, tree),
        read_test,
        view_set("inat"),
        strata=pool_labels,
    )


def _images(paths: list[Path]) -> Files:
    return Files(paths, partial(middle_square, side=_SIDE))


def _read_list(recipe: Recipe, folder: Path, name: str) -> tuple[list[Path], Tensor]:
    path = require(recipe, folder / f"{name}.txt", _REMEDY)
    paths, labels = [], []
    for number, line in enumerate(read_text(path, _LARGEST_LIST).splitlines(), start=1):
        words = line.rsplit(maxsplit=1)
        if len(words) != 2 or not re.fullmatch("[0-9]{1,9}", words[1]) or int(words[1]) >= recipe.classes[-1]:
            raise LecoError(
                f"{path}:{number}: {reprlib.repr(line)} is not a path and a label from 0 to {recipe.classes[-1] - 1}"
            )
        image = folder / words[0]
        if ".." in image.parts or Path(words[0]).is_absolute():
            raise LecoError(f"{path}:{number}: {words[0]!r} leaves the folder {folder}")
        paths.append(image)
        labels.append(int(words[1]))
    if not paths:
        raise LecoError(f"{path}: is empty")
    if len(set(paths)) < len(paths):
        raise LecoError(f"{path}: duplicate image")
    absent = [path for path in paths if not path.is_file()]
    if absent:
        raise missing(recipe, absent[0], f"{len(absent):,} images of {path} are missing; {_REMEDY}")
    return paths, torch.tensor(labels)


_SETTINGS = {
    "paper": {
        "network": {"backbone": "resnet50", "norm_momentum": 0.1},  # timm's momentum
        "optimiser": {"learning_rate": (0.01, 0.001, 0.0001), "weight_decay": 1e-3},
        "batches": {"steps": 250_000, "size": 60, "evaluate_every": 1_000},
    },
    "small": {
        "network": {"backbone": "resnet18", "norm_momentum": 0.05},
        "optimiser": {"learning_rate": (0.01,), "weight_decay": 1e-3},
        "batches": {"steps": 500, "size": 60, "evaluate_every": 100},
    },
}
# The pool has only 101,000 images, so validation is a fifth of the period itself.
for _name, _classes, _size in (
    ("inat-leco", (123, 810), 50_000),
    ("inat-4tp-leco", (123, 339, 729, 810), 25_000),
):
    register(Recipe(_name, "classification", _classes, _size, "Semi-iNat 2021", build, _SETTINGS, "within"))
