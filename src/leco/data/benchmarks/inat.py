"""inat-leco and inat-4tp-leco: Semi-iNat 2021, from orders to species (Table 1 and appendix B of the paper).

The pool is the labelled training images and the in-class unlabelled ones, whose labels were published later; the
official validation set is the test set.
"""

import re
import reprlib
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from leco.data.benchmarks.benchmark import Benchmark, Recipe, labelled, missing, register, require
from leco.data.images import middle_square
from leco.data.samples import Files, Samples
from leco.data.views.sets import view_set
from leco.errors import LecoError
from leco.io import read_json, read_text
from leco.ontology.ontology import Ontology

_FOLDERS = ("semi-inat-2021", "semi_inat")
_REMEDY = (
    "unpack l_train, u_train and val of Semi-iNat 2021 (github.com/cvl-umass/semi-inat-2021). Classes are the numbers "
    "of the images' folders, as in l_train/12/0.jpg, or stand in lists of `path label` lines (l_train.txt, val.txt, "
    "and u_train_in_oracle.txt or u_train_in.txt with the labels that were released after the challenge). Taxa are in "
    "annotation_v2.json, or in label2taxaid.json and all_taxa_info.json"
)
_LEVELS = {2: ["order", "species"], 4: ["order", "family", "genus", "species"]}
_SIDE = 256  # of the squares that views are cropped from
_LARGEST_LIST = 200_000_000
_BOTH = "l_train_and_u_train_in"  # one folder for the whole pool, as the released code has it
_UNKNOWN = -1  # label of an image in the list for the challenge
_SUFFIXES = {".jpg", ".jpeg", ".png"}


def ontology(recipe: Recipe, folder: Path) -> Ontology:
    """Build the tree of taxa; class k of `species` is label k of the lists."""
    levels = _LEVELS[len(recipe.classes)]
    names = ("all_taxa_info.json", "label2taxaid.json")
    annotation = folder / "annotation_v2.json"
    places = [annotation] if annotation.is_file() else [require(recipe, folder / name, _REMEDY) for name in names]
    place, contents = places[0], [read_json(path, _LARGEST_LIST) for path in places]
    try:
        if place == annotation:
            lineages = list(_annotated(contents[0], levels))
        else:
            taxa, labels = contents
            lineages = [
                [taxa[str(label)][level] for level in levels] for label in sorted(int(label) for label in labels)
            ]
    except (KeyError, TypeError, ValueError) as error:
        raise LecoError(f"{place}: does not give {', '.join(levels)} of every label: {error!r}") from None
    return Ontology.from_taxonomy("inat", levels, lineages)


def _annotated(content: Any, levels: list[str]) -> Iterator[list[str]]:
    """Yield the taxa of each class, in the order of class numbers; the list of classes has had two names."""
    classes = {entry["class_id"]: entry for entry in content.get("categories") or content["annotations"]}
    for number in range(len(classes)):
        yield [classes[number][level] for level in levels]


def build(recipe: Recipe, root: Path) -> Benchmark:
    """Read the lists; images are read on demand."""
    folder = next((root / name for name in _FOLDERS if (root / name).is_dir()), root / _FOLDERS[0])
    tree = ontology(recipe, folder)
    parts = [_BOTH] if (folder / _BOTH).is_dir() else ["l_train", "u_train_in"]
    paths, labels = zip(*(_read_part(recipe, folder, name) for name in parts), strict=True)
    pool_labels = torch.cat(labels)

    def read_test() -> Samples:
        paths, labels = _read_part(recipe, folder, "val")
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


def _read_part(recipe: Recipe, folder: Path, name: str) -> tuple[list[Path], Tensor]:
    """Paths and labels of a part, from its list (with labels that were released later, if any) or its folders."""
    for listed in (folder / f"{name}_oracle.txt", folder / f"{name}.txt"):
        if listed.is_file():
            return _read_list(recipe, folder, listed)
    if not (folder / name).is_dir():
        raise missing(recipe, folder / f"{name}.txt", _REMEDY)
    return _read_folders(recipe, folder / name)


def _read_folders(recipe: Recipe, folder: Path) -> tuple[list[Path], Tensor]:
    """Images in folders that are named after the numbers of their classes, in the order of the published lists."""
    found = [path for path in folder.glob("*/*") if path.suffix.lower() in _SUFFIXES]
    if not found:
        raise missing(recipe, folder / "0" / "*.jpg", _REMEDY)
    labels = {path: _class_of(path) for path in found}
    wrong = [path for path, label in labels.items() if not 0 <= label < recipe.classes[-1]]
    if wrong:
        raise LecoError(f"{min(wrong)}: is not in a folder from 0 to {recipe.classes[-1] - 1}, the number of its class")
    paths = sorted(found, key=lambda path: (labels[path], len(path.stem), path.name))
    return paths, torch.tensor([labels[path] for path in paths])


def _class_of(path: Path) -> int:
    """Return the number that is the name of an image's folder, if it is one."""
    return int(path.parent.name) if re.fullmatch("[0-9]{1,9}", path.parent.name) else _UNKNOWN


def _read_list(recipe: Recipe, folder: Path, path: Path) -> tuple[list[Path], Tensor]:
    """Paths and labels of a list; a label of -1 means that of the image's folder."""
    paths, labels = [], []
    for number, line in enumerate(read_text(path, _LARGEST_LIST).splitlines(), start=1):
        words = line.rsplit(maxsplit=1)
        if len(words) != 2 or not re.fullmatch("-1|[0-9]{1,9}", words[1]) or int(words[1]) >= recipe.classes[-1]:
            raise LecoError(
                f"{path}:{number}: {reprlib.repr(line)} is not a path and a label from 0 to {recipe.classes[-1] - 1}"
            )
        image = folder / words[0]
        if ".." in image.parts or Path(words[0]).is_absolute():
            raise LecoError(f"{path}:{number}: {words[0]!r} leaves the folder {folder}")
        label = int(words[1]) if words[1] != "-1" else _class_of(image)
        if not 0 <= label < recipe.classes[-1]:
            raise LecoError(
                f"{path}:{number}: {words[0]} has the label -1, as in the list for the challenge; put the labels that "
                f"were released later into {path.with_name(f'{path.stem}_oracle.txt')}"
            )
        paths.append(image)
        labels.append(label)
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
