"""mapillary-leco: Mapillary Vistas 1.2, then 2.0, labelled on the same images (appendix C of the paper).

No published table relates the labels of the two versions: the transition is inferred once, from training masks
labelled in both, and stored next to the data, under a digest of these masks.
"""

import hashlib
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from leco.data.ahead import read_ahead
from leco.data.benchmarks.benchmark import Benchmark, Kind, Recipe, missing, register, require
from leco.data.images import inspect_image, letterbox, letterbox_mask, letterbox_size
from leco.data.masks import MaskClasses, count_masks
from leco.data.samples import Files, Samples
from leco.data.views.sets import segmentation_views
from leco.errors import LecoError
from leco.io import read_json, write_text
from leco.nested import merge
from leco.ontology.inference import infer
from leco.ontology.ontology import Ontology
from leco.progress import progress_bar

_FOLDER = "mapillary-vistas"
_VERSIONS = ("v1.2", "v2.0")
_REMEDY = (
    "download Mapillary Vistas 2.0 from mapillary.com/dataset/vistas and unpack it there; the folder, whatever its "
    "name, has config_v1.2.json, config_v2.0.json, training/ and validation/, with images/, v1.2/labels/, v2.0/labels/"
)


def build(recipe: Recipe, root: Path) -> Benchmark:
    """List the images; they and their masks are read on demand."""
    folder = _folder(root)
    values = {v: MaskClasses.load(require(recipe, folder / f"config_{v}.json", _REMEDY)) for v in _VERSIONS}
    training = _names(recipe, folder / "training")
    # The paper splits the first 5,000 or all 18,000 training images into two periods.
    training = training[: 2 * recipe.size]
    history = _ontology(folder, training, values, recipe.transition)
    content = read_json(folder / "config_v2.0.json", 10_000_000)
    labels = content["labels"] if isinstance(content, dict) else content
    evaluated = tuple(label["name"] for label in labels if label.get("evaluate", True))
    pool = _samples(folder / "training", training, values, recipe.image_size)
    strata = torch.zeros(len(training), dtype=torch.int64)

    def read_test() -> Samples:
        return _samples(folder / "validation", _names(recipe, folder / "validation"), values, recipe.image_size)

    return Benchmark(recipe, history, pool, read_test, segmentation_views(), strata, evaluated)


def _folder(root: Path) -> Path:
    """Return the folder of the archive: `mapillary-vistas`, or as it is called in the archive, which is a long code."""
    found = sorted(path.parent for path in (*root.glob("*/config_v2.0.json"), *root.glob("config_v2.0.json")))
    if root / _FOLDER in found or not found:
        return root / _FOLDER
    if len(found) > 1:
        several = ", ".join(str(path) for path in found)
        raise LecoError(f"{several}: each is a copy of Mapillary Vistas; rename one of them to {_FOLDER}")
    return found[0]


def _names(recipe: Recipe, part: Path) -> list[str]:
    require(recipe, part, _REMEDY)
    names = sorted(path.stem for path in (part / "images").glob("*.jpg"))
    if not names:
        raise missing(recipe, part / "images" / "*.jpg", _REMEDY)
    for version in _VERSIONS:
        have = {path.stem for path in (part / version / "labels").glob("*.png")}
        absent = [name for name in names if name not in have]
        if absent:
            raise missing(
                recipe, part / version / "labels" / f"{absent[0]}.png", f"{len(absent):,} masks are missing; {_REMEDY}"
            )
    return names


def _ontology(folder: Path, names: list[str], values: dict[str, MaskClasses], kind: Kind) -> Ontology:
    """Infer the transition from the masks of the pool, or read the one that was inferred from equal masks."""
    masks = [(_mask(folder, "v1.2", name), _mask(folder, "v2.0", name)) for name in names]
    kept = folder / f"leco-ontology-{_contents(folder, masks)}{'' if kind == 'tree' else '-soft'}.json"
    if kept.is_file():
        return Ontology.load(kept)
    with progress_bar("inferring the transition") as tick:
        counted = count_masks(masks, values["v1.2"], values["v2.0"], lambda done: tick(done, len(masks)))
    history = infer(counted, "mapillary", _VERSIONS, kind)
    with suppress(LecoError):  # a read-only folder: it is inferred again next time
        history.save(kept)
    return history


def _mask(folder: Path, version: str, name: str) -> Path:
    return folder / "training" / version / "labels" / f"{name}.png"


def _contents(folder: Path, masks: list[tuple[Path, Path]]) -> str:
    """Digest of the masks and of the lists of classes; it is kept, so that files that do not change are read once."""
    files = [*(folder / f"config_{version}.json" for version in _VERSIONS), *(path for pair in masks for path in pair)]
    states = [(path.relative_to(folder).as_posix(), path.stat()) for path in files]
    seen = _digest("".join(f"{name} {state.st_size} {state.st_mtime_ns}\n" for name, state in states).encode())
    kept = folder / f"leco-masks-{seen}.txt"
    if kept.is_file():
        return kept.read_text()
    digests = read_ahead(lambda path: _digest(path.read_bytes()), files)
    found = _digest("".join(f"{name} {digest}\n" for (name, _), digest in zip(states, digests, strict=True)).encode())
    with suppress(LecoError):
        write_text(kept, found)
    return found


def _digest(content: bytes) -> str:
    return hashlib.blake2b(content, digest_size=8).hexdigest()


def _samples(part: Path, names: list[str], values: dict[str, MaskClasses], side: int) -> Samples:
    images = Files([part / "images" / f"{name}.jpg" for name in names], partial(letterbox, side=side))
    labels = {
        version: Files(
            [part / version / "labels" / f"{name}.png" for name in names],
            partial(_read_mask, side=side, classes=values[version]),
        )
        for version in _VERSIONS
    }
    sizes = Files(images.paths, partial(letterbox_size, side=side))
    return Samples(images, dict(labels), sizes)


def _read_mask(path: Path, side: int, classes: MaskClasses) -> Tensor:
    codes = classes.read(path)
    size = inspect_image(path.parents[2] / "images" / f"{path.stem}.jpg")
    if codes.shape != size:
        raise LecoError(f"{path}: the size {codes.shape} differs from that of its image, {size}")
    return letterbox_mask(codes, side)


# Appendix C: 1,600 epochs of one period's images, or 800 of two periods', at 16 per step.
PAPER: dict[str, Any] = {
    "network": {"backbone": "hrnet_w48", "weights": "download", "norm_momentum": 0.1},
    "optimiser": {
        **{"learning_rate": (0.03,), "finetune_learning_rate": (0.003,), "weight_decay": 5e-4, "schedule": "poly"},
    },
    "average": {"decay": 0.0, "warm_up": False},
    "batches": {"steps": 250_000, "size": 16, "evaluate_every": 10_000},
    "history": {"coarse_on_new": False, "mask_contradictions": True},
    "segmentation": {"crop": 720, "base_size": 2_200, "scale": (0.5, 2.1), "window": 720},
}
_SMALL = merge(
    PAPER,
    {
        "network": {"backbone": "resnet18", "weights": "random"},
        "batches": {"steps": 500, "size": 8},
        "segmentation": {"crop": 256, "window": 512, "base_size": 1_024},
    },
)
# The paper tunes nothing on Mapillary, and keeps no validation set.
for _name, _size, _steps in (("mapillary-leco-2.5k", 2_500, 250_000), ("mapillary-leco-9k", 9_000, 900_000)):
    register(
        Recipe(
            _name,
            "segmentation",
            (66, 124),
            _size,
            "Mapillary Vistas 2.0",
            build,
            {"paper": merge(PAPER, {"batches": {"steps": _steps}}), "small": _SMALL},
            "none",
            inferred=True,
            image_size=2_200,  # appendix C: the longer edge, which scales refer to
            evaluated=116,
        )
    )
