"""A small model of digits, trained over both versions, and some of its test images as files."""

from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from sklearn.datasets import load_digits

from leco.data.benchmarks import digits
from leco.deployment.bundle import Bundle, read_bundle
from leco.experiments.bundling import bundle_stage
from leco.experiments.config import experiment
from leco.experiments.material import Material, make_material
from leco.experiments.running import Machine, run_stage
from leco.experiments.stages import Plan, plan
from leco.experiments.store import Store

SETTINGS = {"training.steps": "60", "training.evaluate_every": "60"}
TESTED = range(1_200, 1_797)  # of scikit-learn's digits: the test set of digits-leco


class Trained:
    """What was trained, and a bundle of each period."""

    def __init__(self, folder: Path) -> None:
        wanted = experiment("digits-leco", {"method": "lpl", "size": 100}, SETTINGS)
        self.material: Material = make_material(wanted, folder)
        self.stages: Plan = plan(wanted, self.material)
        self.store = Store(folder / "runs")
        for stage in self.stages.stages:
            run_stage(stage, self.material, self.store, Machine("cpu"), lambda *_: None)
        self.folders = [folder / "v1", folder / "v2"]
        for (stage,), target in zip(self.stages.periods, self.folders, strict=True):
            bundle_stage(self.store, stage.fingerprint, target)

    def result(self, period: int) -> dict:
        return self.store.require(self.stages.periods[period][0].fingerprint)


@pytest.fixture(scope="session")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Trained:
    return Trained(tmp_path_factory.mktemp("trained"))


@pytest.fixture
def old(trained: Trained) -> Bundle:
    return read_bundle(trained.folders[0])


@pytest.fixture
def new(trained: Trained) -> Bundle:
    return read_bundle(trained.folders[1])


@pytest.fixture(scope="session")
def pictures(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The test set as PNG files in folders, and a manifest of them: every third is labelled by its stroke only."""
    folder = tmp_path_factory.mktemp("pictures")
    bunch, ontology = load_digits(), digits.ontology()
    rows = ["image,label,version,split"]
    for index in TESTED:
        path = Path("images", str(index % 7), f"{index}.png")
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray((bunch.images[index] * 15).astype(np.uint8)).save(folder / path)
        fine = str(bunch.target[index])
        if index % 3 == 0:
            rows.append(f"{path},{ontology.translate([fine], 'v2', 'v1')[0]},v1,test")
        else:
            rows.append(f"{path},{fine},v2,test")
    (folder / "labels.csv").write_text("\n".join(rows) + "\n")
    return folder
