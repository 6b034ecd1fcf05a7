"""camvid-leco: CamVid's published 11 groups, then its 31 classes; a stand-in for Mapillary that runs anywhere."""

import re
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from leco.data.benchmarks import mapillary
from leco.data.benchmarks.benchmark import Benchmark, Recipe, labelled, register, require
from leco.data.images import decode_image
from leco.data.manifest.table import read_cells
from leco.data.masks import MaskClasses
from leco.data.samples import InMemory, Samples
from leco.data.views.sets import segmentation_views
from leco.errors import LecoError
from leco.io import read_json
from leco.nested import merge
from leco.ontology.ontology import Ontology

_FOLDER = "camvid"
_VOID = "Void"


def ontology(classes_csv: Path) -> Ontology:
    """Read the groups in `classes.csv` (id, name, group); Void is no label in either version."""
    rows = [cells for _, cells in read_cells(classes_csv, "name", "group")]
    lineages = [(group, name) for name, group in rows if name != _VOID]
    return Ontology.from_taxonomy("camvid", ["groups", "classes"], lineages, ignored=[_VOID])


def build(recipe: Recipe, root: Path) -> Benchmark:
    """Read all frames and label maps into memory: they are small."""
    folder = root / _FOLDER
    for name in ("classes.csv", "split.json", "images", "labels"):
        require(recipe, folder / name, f"put images/, labels/, classes.csv and split.json into {folder}")
    history = ontology(folder / "classes.csv")
    values = MaskClasses.load(folder / "classes.csv", ignored=[_VOID])
    if values.classes != history.newest.classes:
        raise LecoError(f"{folder / 'classes.csv'}: the ids must be in the order of the classes")
    split = read_json(folder / "split.json", 1_000_000)
    parts = [split.get(part) or [] if isinstance(split, dict) else [] for part in ("train", "val")]
    for names in parts:
        if not isinstance(names, list) or not names or not all(re.fullmatch(r"\w+", str(name)) for name in names):
            raise LecoError(f"{folder / 'split.json'}: needs the lists of frames `train` and `val`")
    if len({name for names in parts for name in names}) < sum(len(names) for names in parts):
        raise LecoError(f"{folder / 'split.json'}: duplicate frame")
    pool, read_test = _read(folder, parts[0], values, history), partial(_read, folder, parts[1], values, history)
    sequences = sorted({name.split("_")[0] for name in split["train"]})
    strata = torch.tensor([sequences.index(name.split("_")[0]) for name in split["train"]])
    return Benchmark(recipe, history, pool, read_test, segmentation_views(), strata)


def _read(folder: Path, names: list[str], values: MaskClasses, history: Ontology) -> Samples:
    images: list[Tensor] = []
    masks: list[Tensor] = []
    for name in names:
        pixels = decode_image(folder / "images" / f"{name}.webp")
        mask = folder / "labels" / f"{name}.png"
        codes = values.read(mask)
        if pixels.shape[:2] != codes.shape or (images and images[0].shape[1:] != codes.shape):
            raise LecoError(
                f"{mask}: the size {codes.shape} differs from that of its image {pixels.shape[:2]} or the rest"
            )
        images.append(torch.from_numpy(np.ascontiguousarray(pixels.transpose(2, 0, 1))))
        masks.append(torch.from_numpy(codes.astype(np.int16)))
    return labelled(InMemory(torch.stack(images)), torch.stack(masks), history)


# Frames of 240 x 180 pixels, and a transition without contradictions.
_PAPER: dict[str, Any] = merge(
    mapillary.PAPER,
    {
        "batches": {"steps": 20_000, "evaluate_every": 1_000},
        "history": {"mask_contradictions": False},
        "segmentation": {"crop": 160, "base_size": 240, "scale": (0.75, 1.5), "window": 240},
    },
)
# For two CPU cores: a thin network from random weights on small images.
TINY: dict[str, Any] = merge(
    _PAPER,
    {
        "network": {"backbone": "tiny", "weights": "random"},
        "optimiser": {"learning_rate": (0.05,), "finetune_learning_rate": (0.02,)},
        "average": {"decay": 0.99, "warm_up": True},
        "batches": {"steps": 400, "evaluate_every": 100},
    },
)
register(Recipe("camvid-leco", "segmentation", (11, 31), 146, "CamVid", build, {"paper": _PAPER, "small": TINY}))
