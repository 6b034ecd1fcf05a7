"""Imports flow downwards only."""

import ast
from pathlib import Path

import pytest

import leco

# From the top down: a layer may import those after it, and itself.
LAYERS = ["cli", "reports", "planning", "experiments", "model", "training", "evaluation", "dataset"]
LAYERS += ["paper", "models", "data", "methods", "ontology"]
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


@pytest.mark.parametrize("layer", [layer for layer in LAYERS if (ROOT / layer).is_dir()])
def test_a_layer_imports_only_what_lies_below_it(layer):
    allowed = set(LAYERS[LAYERS.index(layer) :])
    for path in (ROOT / layer).rglob("*.py"):
        assert imported_layers(path) <= allowed, path


def test_every_folder_is_a_layer_and_the_rest_is_ground():
    folders = {path.parent.name for path in ROOT.glob("*/__init__.py")}
    assert folders <= set(LAYERS)
    assert imported_layers(ROOT / "errors.py") == set()


def test_files_are_small():
    for path in ROOT.rglob("*.py"):
        assert len(path.read_text().splitlines()) <= 400, path
