"""Imports flow downwards only."""

import ast
from pathlib import Path

import pytest

import leco

# From the top down: a layer may import those after it, and itself.
LAYERS = ["cli", "reports", "paper", "planning", "estimator", "experiments", "training", "model", "evaluation"]
LAYERS += ["dataset", "modalities", "models", "data", "methods", "ontology"]
BASE = ["errors", "arguments", "io", "strict_yaml", "registry", "settings", "parts", "renamed", "nested"]
BASE += ["records", "devices", "placement", "progress", "text"]
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
    """The files of a package, which may be one file."""
    return sorted((ROOT / layer).rglob("*.py")) or [ROOT / f"{layer}.py"]


@pytest.mark.parametrize("layer", LAYERS)
def test_a_layer_imports_only_what_lies_below_it(layer):
    allowed = set(LAYERS[LAYERS.index(layer) :])
    for path in files(layer):
        assert imported_layers(path) <= allowed, path


@pytest.mark.parametrize("base", BASE)
def test_a_base_module_imports_no_layer(base):
    (path,) = files(base)
    allowed = {"methods"} if base in ("settings", "parts") else set()  # a type, which is not imported
    assert imported_layers(path) <= allowed


def test_every_package_is_a_layer_or_a_base_module():
    packages = {path.parent.name for path in ROOT.glob("*/__init__.py")} | {path.stem for path in ROOT.glob("*.py")}
    assert packages == {*LAYERS, *BASE, "__init__", "__main__"}


def test_files_are_small():
    for path in ROOT.rglob("*.py"):
        assert len(path.read_text().splitlines()) <= 400, path
