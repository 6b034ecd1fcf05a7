"""Made-up data in the layouts of the official archives: names, palettes and keys as published, pixels and taxa not."""

import hashlib
import json
import pickle
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from leco.data.benchmarks import cifar

LEVELS = ("kingdom", "phylum", "class", "order", "family", "genus", "species")


def made_up_cifar(root: Path, samples: int = 1_000) -> Mapping[str, str]:
    """`cifar-100-python`, with random images; returns the sums that stand in for the official ones."""
    folder = root / "cifar-100-python"
    folder.mkdir(parents=True)
    generator = np.random.default_rng(0)
    fine = np.arange(samples) % 100
    names = [b"fine%d" % n for n in range(100)], [b"coarse%d" % n for n in range(20)]
    parts: dict[str, dict[bytes, Any]] = {"meta": {b"fine_label_names": names[0], b"coarse_label_names": names[1]}}
    for part in ("train", "test"):
        images = generator.integers(0, 256, (samples, 3_072)).astype(np.uint8)
        labels = {b"fine_labels": fine.tolist(), b"coarse_labels": (fine // 5).tolist()}
        parts[part] = {b"data": images, **labels}
    for name, content in parts.items():
        official = pickle.dumps(content, protocol=2).replace(b"numpy._core.", b"numpy.core.")  # an older numpy's
        (folder / name).write_bytes(official)
    return {name: hashlib.md5((folder / name).read_bytes()).hexdigest() for name in cifar._MD5}


def taxa(species: int = 810, orders: int = 123, families: int = 339, genera: int = 729) -> list[dict[str, Any]]:
    """One entry for each class, as in `annotation_v2.json`."""
    found = []
    for n in range(species):
        genus = min(n, genera - 1)
        family = min(genus, families - 1)
        order = min(family, orders - 1)
        upper = {"kingdom": "Animalia", "phylum": f"phylum{order % 8}", "class": f"class{order % 29}"}
        lower = {"order": f"order{order}", "family": f"family{family}", "genus": f"genus{genus}"}
        found.append({"class_id": n, **upper, **lower, "species": f"genus{genus} species{n}"})
    return found


def made_up_inat(folder: Path, parts: Mapping[str, int], classes: int = 810) -> None:
    """Archives of Semi-iNat 2021: `PART/CLASS/NUMBER.jpg`, so many images a class; all are links to one file."""
    folder.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", (40, 30), (9, 99, 9)).save(folder / "image.jpg")
    for part, images in parts.items():
        for label in range(classes):
            (folder / part / str(label)).mkdir(parents=True)
            for number in range(images):
                (folder / part / str(label) / f"{number}.jpg").hardlink_to(folder / "image.jpg")


def write_annotation(folder: Path, entries: list[dict[str, Any]], key: str = "categories") -> None:
    """`annotation_v2.json`."""
    info = {"year": 2021, "version": "v2", "description": "", "contributor": "", "url": "", "date_created": ""}
    unlabeled = [{"image_name": "u_train/0.jpg", "kingdom": "Animalia", "phylum": "phylum0"}]
    content = {"info": info, key: entries, "unlabeled_taxa": unlabeled}
    (folder / "annotation_v2.json").write_text(json.dumps(content))


def write_lists(folder: Path, entries: list[dict[str, Any]]) -> None:
    """`label2taxaid.json` and `all_taxa_info.json` of the published lists."""
    names = {level: sorted({entry[level] for entry in entries}) for level in LEVELS[:-1]}
    numbers = {
        str(e["class_id"]): {level: names[level].index(e[level]) for level in LEVELS[:-1]} | {"species": e["class_id"]}
        for e in entries
    }
    (folder / "label2taxaid.json").write_text(json.dumps(numbers))
    taxa_of = {str(entry["class_id"]): {level: entry[level] for level in LEVELS} for entry in entries}
    (folder / "all_taxa_info.json").write_text(json.dumps(taxa_of))


def made_up_vistas(folder: Path, images: int = 6, evaluated: int = 116, size: tuple[int, int] = (40, 30)) -> None:
    """The archive of Mapillary Vistas 2.0: paletted masks of 66 and 124 classes, the last one of each unlabelled."""
    generator = np.random.default_rng(0)
    width, height = size
    palettes = {version: generator.integers(0, 256, (256, 3)).astype(np.uint8) for version in ("v1.2", "v2.0")}
    for version, count in (("v1.2", 66), ("v2.0", 124)):
        labels = [
            {
                **{"color": palettes[version][n].tolist(), "instances": n % 2 == 0, "readable": f"Class {n}"},
                **{"name": f"object--class-{n}", "evaluate": n < (evaluated if count == 124 else 65)},
            }
            for n in range(count)
        ]
        structure = "{split}/{content:s}/{image_id:s}.{extension:s}"
        config = {"labels": labels, "version": version[1:], "mapping": "public", "folder_structure": structure}
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"config_{version}.json").write_text(json.dumps(config))
    (folder / "LICENSE").write_text("")
    (folder / "testing" / "images").mkdir(parents=True)
    for part, count in (("training", images), ("validation", 2)):
        for n in range(count):
            name = f"{part[:2]}-_{n:020}"
            # Every class occurs in each image, so that each has a parent.
            fine = (np.arange(width * height).reshape(height, width) + n) % 124
            for version, mask in (("v2.0", fine), ("v1.2", fine % 66)):
                for kind in ("labels", "instances", "panoptic"):
                    (folder / part / version / kind).mkdir(parents=True, exist_ok=True)
                image = Image.fromarray(mask.astype(np.uint8), "P")
                image.putpalette(palettes[version].tobytes())
                image.save(folder / part / version / "labels" / f"{name}.png")
            (folder / part / "images").mkdir(parents=True, exist_ok=True)
            picture = generator.integers(0, 256, (height, width, 3)).astype(np.uint8)
            Image.fromarray(picture).save(folder / part / "images" / f"{name}.jpg")
