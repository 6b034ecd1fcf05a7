"""Nothing is done twice: a run reads its manifest, decodes its images and builds its networks once."""

import csv
import json
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from benchmarks.hops import hops
from PIL import Image
from tests.commands import leco
from tests.pictures import content

from leco.modalities import Images
from leco.ontology.ontology import Ontology

STEPS = ["training.batches.steps=2", "training.batches.size=4", "training.batches.evaluate_every=2"]
SETTINGS = ["training.network.backbone=wrn-10-1", "training.network.weights=random", *STEPS]


@pytest.fixture
def project(tmp_path) -> Path:
    """Drawn images, half of them labelled in v1, the others in v2."""
    classes = {"v1": ["cat", "dog"], "v2": ["cat", "husky", "poodle"]}
    rows = [("image", "label", "version", "split")]
    for number in range(24):
        version = "v2" if number % 2 else "v1"
        name = f"{number}.png"
        (tmp_path / name).write_bytes(content(number))
        label = classes[version][number // 2 % len(classes[version])]
        rows.append((name, label, version, "test" if number >= 18 else "train"))
    with (tmp_path / "labels.csv").open("w", newline="") as file:
        csv.writer(file).writerows(rows)
    newer = {"cat": None, "husky": {"from": "dog"}, "poodle": {"from": "dog"}}
    versions = [{"name": "v1", "classes": classes["v1"]}, {"name": "v2", "classes": newer}]
    (tmp_path / "ontology.json").write_text(json.dumps({"name": "pets", "versions": versions}))
    (tmp_path / "experiment.yaml").write_text(
        "data: {manifest: labels.csv, ontology: ontology.json, image_size: 16}\nmethod: lpl+st-hard/cond\n"
    )
    return tmp_path


@pytest.fixture
def calls(monkeypatch) -> Counter[str]:
    """How often some functions are called; of decoding, how often for each file."""
    counts: Counter[str] = Counter()

    def count(where: Any, function: str, name: Callable[..., str]) -> None:
        original = getattr(where, function)

        def counted(*arguments: Any, **named: Any) -> Any:
            counts[name(*arguments)] += 1
            return original(*arguments, **named)

        monkeypatch.setattr(where, function, counted)

    readers = [module for name, module in list(sys.modules.items()) if name.startswith("leco.")]
    for module in (module for module in readers if hasattr(module, "read_table")):
        count(module, "read_table", lambda path: f"table {Path(path).name}")
    count(Image, "open", lambda path, *_: f"image {Path(path).name}")
    count(Images, "network", lambda *_: "outline" if torch.empty(0).is_meta else "network")
    count(Ontology, "until", lambda *_: "until")
    return counts


def test_a_run_does_everything_once(project, calls):
    words = [word for setting in SETTINGS for word in ("--set", setting)]
    found = leco("run", "experiment.yaml", *words, cwd=project)
    assert found.returncode == 0, found.stderr
    assert "3 of 3 to train" in found.stdout
    assert {name: number for name, number in calls.items() if name.startswith("table")} == {"table labels.csv": 1}
    assert {name: number for name, number in calls.items() if name.startswith("image")} == {
        f"image {number}.png": 1 for number in range(24)
    }
    assert calls["network"] <= 3 + 1  # one for each stage, and one to try beforehand
    assert calls["outline"] <= 1  # without values, to estimate its memory
    assert calls["until"] <= 6


def test_the_loss_is_seven_calls_away():
    """One is for the gradients of a step alone, so that its tensors are freed if it runs out of memory."""
    chain = hops()
    assert chain[0] == "train"
    assert chain[-1] == "newest_labels"
    assert len(chain) - 1 <= 7, " -> ".join(chain)
