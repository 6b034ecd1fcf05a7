"""cifar-leco: CIFAR-100, 20 superclasses, then 100 classes (Table 1 of the paper)."""

import hashlib
import io
import lzma
import pickle
import tarfile
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch

from leco.data.benchmarks.benchmark import Benchmark, Recipe, labelled, register, require
from leco.data.samples import InMemory, Samples
from leco.data.views.sets import view_set
from leco.errors import LecoError
from leco.nested import merge
from leco.ontology.ontology import Ontology

_FOLDER = "cifar-100-python"
_MD5 = {
    "train": "16019d7e3df5f24257cddd939b257f8d",
    "test": "f0ef6b0ae62326f3e7ffdfab6717acfc",
    "meta": "7973b15100ade9c7d40fb424638fde48",
}
# The official files are pickles: these are the only globals they may use.
_ALLOWED = {
    ("numpy.core.multiarray", "_reconstruct"),
    ("numpy", "ndarray"),
    ("numpy", "dtype"),
    ("_codecs", "encode"),
}


class _DataOnly(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in _ALLOWED:
            raise pickle.UnpicklingError(f"{module}.{name} is not data")
        return super().find_class(module.replace("numpy.core", "numpy._core"), name)


def build(recipe: Recipe, root: Path) -> Benchmark:
    """Read the official python version of CIFAR-100, with its superclasses and classes."""
    return build_levels(recipe, root, ["superclasses", "classes"], lambda superclass: (superclass,))


def build_levels(
    recipe: Recipe, root: Path, levels: Sequence[str], above: Callable[[str], tuple[str, ...]]
) -> Benchmark:
    """Read the official python version; `above` returns the names of a superclass at all levels but the last."""
    remedy = f"unpack cifar-100-python.tar.gz into {root}, or run `leco data fetch {recipe.name} --data {root}`"
    for name in ("train", "meta"):
        require(recipe, root / _FOLDER / name, remedy)
    meta, train = _read(root, "meta"), _read(root, "train")
    fine = [name.decode() for name in meta[b"fine_label_names"]]
    coarse = [name.decode() for name in meta[b"coarse_label_names"]]
    parent = dict(zip(train[b"fine_labels"], train[b"coarse_labels"], strict=True))
    lineages = [(*above(coarse[parent[index]]), name) for index, name in enumerate(fine)]
    ontology = Ontology.from_taxonomy("cifar100", levels, lineages)

    def read_test() -> Samples:
        require(recipe, root / _FOLDER / "test", remedy)
        return _samples(_read(root, "test"), ontology)

    strata = torch.tensor(train[b"fine_labels"])
    return Benchmark(recipe, ontology, _samples(train, ontology), read_test, view_set("cifar"), strata)


def _samples(content: dict[bytes, Any], ontology: Ontology) -> Samples:
    images = torch.from_numpy(content[b"data"].reshape(-1, 3, 32, 32))
    return labelled(InMemory(images), torch.tensor(content[b"fine_labels"]), ontology)


def _read(root: Path, name: str) -> dict[bytes, Any]:
    path = root / _FOLDER / name
    raw = path.read_bytes()
    if hashlib.md5(raw, usedforsecurity=False).hexdigest() != _MD5[name]:
        raise LecoError(f"{path}: is not the official file (its MD5 sum differs); fetch it again")
    try:
        content: dict[bytes, Any] = _DataOnly(io.BytesIO(raw), encoding="bytes").load()
    except pickle.UnpicklingError as error:
        raise LecoError(f"{path}: refused: {error}") from None
    return content


def fetch(root: Path) -> Path:
    """Download the official archive, check it, and unpack it; only on request."""
    from torchvision.datasets import CIFAR100
    from torchvision.datasets.utils import download_url

    new = not root.exists()
    root.mkdir(parents=True, exist_ok=True)
    try:
        download_url(CIFAR100.url, str(root), CIFAR100.filename, CIFAR100.tgz_md5)
    except (OSError, RuntimeError) as error:
        if new:
            root.rmdir()
        raise LecoError(f"CIFAR-100 could not be fetched from {CIFAR100.url}: {error}") from None
    unpack(root / CIFAR100.filename, root)
    for name in _MD5:
        _read(root, name)
    return root / _FOLDER


def unpack(archive: Path, folder: Path) -> None:
    """Unpack a tar archive completely or not at all; refuse links, devices and paths that leave the folder."""
    try:
        with TemporaryDirectory(dir=folder, prefix=".unpacking-") as temporary, tarfile.open(archive) as content:
            for member in content:
                if not (member.isfile() or member.isdir()):
                    raise tarfile.SpecialFileError(member)
                if member.name.startswith("/"):  # tarfile would silently write it below the folder
                    raise tarfile.AbsolutePathError(member)
                content.extract(member, temporary, filter="data")
            for unpacked in Path(temporary).iterdir():
                target = folder / unpacked.name
                if target.exists():
                    raise LecoError(f"{archive}: {target} already exists; move it away first")
                unpacked.rename(target)
    except tarfile.FilterError as error:
        raise LecoError(f"{archive}: refused: {error}") from None
    except (tarfile.TarError, EOFError, OSError, KeyError, lzma.LZMAError, zlib.error) as error:
        raise LecoError(f"{archive}: cannot be unpacked: {error}") from None


SETTINGS: dict[str, dict[str, Any]] = {
    # Appendix E of the paper; everything else is a default of `leco.settings`.
    "paper": {
        "network": {"backbone": "wrn-28-2"},
        "optimiser": {"learning_rate": (0.6, 0.06, 0.006, 0.0006)},
        "batches": {"steps": 160_000, "size": 128, "evaluate_every": 1_000},
    },
    # Chosen on training images that are in no period (docs/lab-book/log.md): many steps with few images, and the model
    # of the last step, since a choice by 250 validation images is mostly noise.
    "small": {
        "network": {"backbone": "wrn-10-1", "norm_momentum": 0.05},
        "optimiser": {"learning_rate": (0.06,)},
        "average": {"norm": True},
        "batches": {"steps": 3_200, "size": 32, "evaluate_every": 3_200},
    },
    # Not from the paper: a hidden layer and heads on the features of a backbone that was pretrained on ImageNet. Chosen
    # on validation of seeds that no table contains (docs/lab-book/log.md).
    "features": {
        "network": {"backbone": "tf_efficientnet_lite0+mlp", "weights": "pretrained", "embed": True},
        "optimiser": {"learning_rate": (0.1,), "weight_decay": 1e-3},
        "average": {"decay": 0.99},
        "batches": {"steps": 300, "size": 128, "evaluate_every": 50},
        "views": {"resize": 128},
    },
}
# With 10,000 labels, 300 steps are too few for methods half of whose batch is history (docs/lab-book/log.md).
_LONGER = merge(SETTINGS, {"features": {"batches": {"steps": 1_000}}})
for _name, _size, _settings in (
    ("cifar-leco-1k", 1_000, SETTINGS),
    ("cifar-leco-2k", 2_000, SETTINGS),
    ("cifar-leco-10k", 10_000, _LONGER),
):
    register(Recipe(_name, "classification", (20, 100), _size, "CIFAR-100", build, _settings, fetch=fetch))
