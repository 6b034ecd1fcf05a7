"""inat-leco and inat-4tp-leco: Semi-iNat 2021, from orders to species (Table 1 and appendix B of the paper).

The pool is the labelled training images and the in-class unlabelled ones, whose labels were published later; the
official validation set is the test set.
"""

from functools import partial
from pathlib import Path

import torch
from torch import Tensor

from leco.data.benchmarks.benchmark import Benchmark, Recipe, missing
from leco.data.samples import Files, InMemory, Samples
from leco.data.squares import middle_square
from leco.errors import LecoError
from leco.ontology.files import from_json, read_text
from leco.ontology.ontology import Ontology

_FOLDER = "semi-inat-2021"
_REMEDY = (
    "get images and lists from github.com/cvl-umass/semi-inat-2021 (l_train, u_train_in and val, each with its list of "
    "`path label` lines, label2taxaid.json and all_taxa_info.json)"
)
_LEVELS = {2: ["order", "species"], 4: ["order", "family", "genus", "species"]}
_SIDE = 256  # of the squares that views are cropped from
_LARGEST_LIST = 200_000_000


def ontology(recipe: Recipe, folder: Path) -> Ontology:
    """Build the tree of taxa; class k of `species` is label k of the lists."""
    taxa, labels = (
        from_json(read_text(_there(recipe, folder / name), _LARGEST_LIST))
        for name in ("all_taxa_info.json", "label2taxaid.json")
    )
    levels = _LEVELS[len(recipe.classes)]
    lineages = [[taxa[str(label)][level] for level in levels] for label in sorted(int(label) for label in labels)]
    return Ontology.from_taxonomy("inat", levels, lineages)


def build(recipe: Recipe, root: Path) -> Benchmark:
    """Read the lists; the images are read when they are needed."""
    folder = root / _FOLDER
    tree = ontology(recipe, folder)
    paths, labels = zip(*(_read_list(recipe, folder, name) for name in ("l_train", "u_train_in")), strict=True)
    pool_labels = torch.cat(labels)
    test_paths, test_labels = _read_list(recipe, folder, "val")
    return Benchmark(
        recipe,
        tree,
        _samples([path for part in paths for path in part], pool_labels, tree),
        _samples(test_paths, test_labels, tree),
        strata=pool_labels,
    )


def _samples(paths: list[Path], labels: Tensor, tree: Ontology) -> Samples:
    translated = {
        version.name: InMemory(tree.translate(labels, tree.newest.name, version.name)) for version in tree.versions
    }
    return Samples(Files(paths, partial(middle_square, side=_SIDE)), dict(translated))


def _read_list(recipe: Recipe, folder: Path, name: str) -> tuple[list[Path], Tensor]:
    path = _there(recipe, folder / f"{name}.txt")
    paths, labels = [], []
    for number, line in enumerate(read_text(path, _LARGEST_LIST).splitlines(), start=1):
        words = line.rsplit(maxsplit=1)
        if len(words) != 2 or not words[1].isdecimal() or int(words[1]) >= recipe.classes[-1]:
            raise LecoError(f"{path}:{number}: {line!r} is not a path and a label from 0 to {recipe.classes[-1] - 1}")
        image = folder / words[0]
        if ".." in image.parts or Path(words[0]).is_absolute():
            raise LecoError(f"{path}:{number}: {words[0]!r} leaves the folder {folder}")
        paths.append(image)
        labels.append(int(words[1]))
    if not paths:
        raise LecoError(f"{path}: is empty")
    _there(recipe, paths[0])
    return paths, torch.tensor(labels)


def _there(recipe: Recipe, path: Path) -> Path:
    if not path.is_file():
        raise missing(recipe, path, _REMEDY)
    return path
