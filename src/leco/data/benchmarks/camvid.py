"""camvid-leco: CamVid's published 11 groups, then its 31 classes; a stand-in for Mapillary that runs anywhere."""

import csv
import io
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from leco.data.benchmarks.benchmark import Benchmark, Recipe, missing
from leco.data.image_files import decode_image
from leco.data.samples import InMemory, Samples
from leco.errors import LecoError
from leco.ontology.files import from_json, read_text
from leco.ontology.masks import MaskClasses, read_mask
from leco.ontology.ontology import Ontology

_FOLDER = "camvid"
_VOID = "Void"


def ontology(classes_csv: Path) -> Ontology:
    """Read the grouping of `classes.csv` (id, name, group); Void says nothing in either version."""
    rows = list(csv.DictReader(io.StringIO(read_text(classes_csv, 1_000_000))))
    lineages = [(row["group"], row["name"]) for row in rows if row["name"] != _VOID]
    return Ontology.from_taxonomy("camvid", ["groups", "classes"], lineages, ignored=[_VOID])


def build(recipe: Recipe, root: Path) -> Benchmark:
    """Read all frames and label maps into memory: they are small."""
    folder = root / _FOLDER
    for name in ("classes.csv", "split.json", "images", "labels"):
        if not (folder / name).exists():
            raise missing(recipe, folder / name, "put images/, labels/, classes.csv and split.json there")
    history = ontology(folder / "classes.csv")
    values = MaskClasses.load(folder / "classes.csv", ignored=[_VOID])
    if values.classes != history.newest.classes:
        raise LecoError(f"{folder / 'classes.csv'}: the ids must be in the order of the classes")
    split = from_json(read_text(folder / "split.json", 1_000_000))
    pool, test = (_read(folder, split[part], values, history) for part in ("train", "val"))
    sequences = sorted({name.split("_")[0] for name in split["train"]})
    strata = torch.tensor([sequences.index(name.split("_")[0]) for name in split["train"]])
    return Benchmark(recipe, history, pool, test, strata)


def _read(folder: Path, names: list[str], values: MaskClasses, history: Ontology) -> Samples:
    images: list[Tensor] = []
    masks: list[Tensor] = []
    for name in names:
        pixels = decode_image(folder / "images" / f"{name}.webp")
        codes = values.codes[read_mask(folder / "labels" / f"{name}.png")]
        if pixels.shape[:2] != codes.shape or (codes < -1).any():
            raise LecoError(f"{folder / 'labels' / f'{name}.png'}: does not fit its image or `classes.csv`")
        images.append(torch.from_numpy(np.ascontiguousarray(pixels.transpose(2, 0, 1))))
        masks.append(torch.from_numpy(codes.astype(np.int16)))
    newest = torch.stack(masks)
    labels = {
        version.name: InMemory(history.translate(newest, history.newest.name, version.name).short())
        for version in history.versions
    }
    return Samples(InMemory(torch.stack(images)), dict(labels))
