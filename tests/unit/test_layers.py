"""Imports flow downwards only."""

import ast
from pathlib import Path

import pytest

import leco

# From the top down: a layer may import those after it, and itself.
LAYERS = ["cli", "reports", "paper", "planning", "estimator", "experiments", "training", "model", "evaluation"]
LAYERS += ["dataset", "modalities", "models", "data", "methods", "ontology"]
GROUND = ["errors", "arguments", "io", "strict_yaml", "registry", "settings", "parts", "renamed", "nested"]
GROUND += ["records", "devices", "placement", "progress", "text"]
ROOT = Path(leco.__file__).parent


def imported_layers(path: Path) -> set[str]:
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        if isinstance(node, ast.ImportFrom) and node.module:
            assert node.level == 0, f"{path}: relative imports hide the layer"
            names = [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
        found |= {name.split(".")[1] for name in names if name.startswith("leco.")}
    return found & set(LAYERS)


def files(layer: str) -> list[Path]:
    """The files of a room, which may be one file."""
    return sorted((ROOT / layer).rglob("*.py")) or [ROOT / f"{layer}.py"]


@pytest.mark.parametrize("layer", LAYERS)
def test_a_layer_imports_only_what_lies_below_it(layer):
    allowed = set(LAYERS[LAYERS.index(layer) :])
    for path in files(layer):
        assert imported_layers(path) <= allowed, path


@pytest.mark.parametrize("ground", GROUND)
def test_the_ground_imports_no_layer(ground):
    (path,) = files(ground)
    allowed = {"methods"} if ground in ("settings", "parts") else set()  # a type, which is not imported
    assert imported_layers(path) <= allowed


def test_every_room_is_a_layer_or_ground():
    rooms = {path.parent.name for path in ROOT.glob("*/__init__.py")} | {path.stem for path in ROOT.glob("*.py")}
    assert rooms == {*LAYERS, *GROUND, "__init__", "__main__"}


def test_files_are_small():
    for path in ROOT.rglob("*.py"):
        assert len(path.read_text().splitlines()) <= 400, path
