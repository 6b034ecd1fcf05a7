"""docs/tutorial/own-images.md, run literally: every command in its order, with smaller images, and fewer of them."""

import csv
import re
from pathlib import Path

import pytest
from tests.pages import ROOT, follow

from leco import Ontology
from leco.model.bundle import read_bundle

SETTINGS = {"network.backbone": "wrn-16-1", "batches.steps": 4, "batches.size": 16, "batches.evaluate_every": 2}
FEWER = {
    "--images 60": "--images 6",
    "image_size: 96": "image_size: 32",
    "leco run": " ".join(["leco run", *(f"--set training.{name}={value}" for name, value in SETTINGS.items())]),
}


def answered(file: Path) -> list[str]:
    with file.open(newline="") as lines:
        return [row["label"] for row in csv.DictReader(lines)]


@pytest.mark.slow
@pytest.mark.data
def test_the_tutorial_works_as_it_is_written(cifar_root, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "data").symlink_to(cifar_root)
    page = ROOT / "docs" / "tutorial" / "own-images.md"
    installs = ("pip ", "leco data fetch")
    said = follow(page, tmp_path, FEWER, lambda command: not command.startswith(installs))
    assert "1 open" in said["leco init second --from-images photos/v1 photos/v2"]
    changes = said["leco ontology diff second/ontology.yaml v1 v2"]
    assert "17 split, 1 merged, 1 renamed, 1 added" in changes
    for kind, old, new in (
        ("renamed", "tram", "streetcar"),
        ("merged", "bicycle, motorcycle", "two_wheeler"),
        ("added", "-", "rocket"),
    ):
        assert re.search(rf"{kind} +{old} +{new}", changes)
    history = Ontology.load(tmp_path / "second" / "ontology.yaml")
    assert [len(version) for version in history.versions] == [20, 99]
    assert {name: read_bundle(tmp_path / name).description.versions for name in ("deployed", "upgraded", "next")} == {
        "deployed": ("v1",),
        "upgraded": ("v1", "v2"),
        "next": ("v1", "v2"),
    }
    compared = said["leco evaluate next second/labels.csv --root photos --against upgraded"]
    assert re.findall(r"^(v\d): mean per-class accuracy", compared, re.MULTILINE) == ["v2", "v1"]
    assert compared.count("against upgraded with") == 2
    answers = {name: answered(tmp_path / f"{name}.csv") for name in ("before", "after", "answers", "old-answers")}
    assert answers["before"] == answers["after"]
    assert set(answers["answers"]) <= set(history["v2"].handles)
    assert set(answers["old-answers"]) <= {*history["v1"].handles, ""}  # rockets have no name there
    for name in ("sure.csv", "next.onnx", "next/README.md"):
        assert (tmp_path / name).stat().st_size > 0
