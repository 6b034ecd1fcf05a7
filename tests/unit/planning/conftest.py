"""Own data as a user would have them: digits as feature vectors, old ones labelled by stroke, some not at all."""

import csv
import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from sklearn.datasets import load_digits

from leco import Ontology
from leco.data.benchmarks import digits
from leco.experiments.experiment import experiment
from leco.experiments.machine import Machine
from leco.experiments.train import periods_of
from leco.planning import known
from leco.planning.known import Known
from leco.planning.measure import LEVELS
from leco.planning.prepare import Prepared, load_context, prepare

NEWEST, HISTORY, UNLABELLED, TEST = 120, 120, 12, 60


@pytest.fixture
def own(tmp_path: Path) -> Path:
    return write_own(tmp_path)


@pytest.fixture(scope="session")
def planned(tmp_path_factory: pytest.TempPathFactory) -> Prepared:
    """Curves of the digits at all levels, for tests that only read them."""
    return prepared(write_own(tmp_path_factory.mktemp("planned")), levels=LEVELS)


def write_own(tmp_path: Path) -> Path:
    bunch = load_digits()
    ontology = digits.ontology()
    ontology.save(tmp_path / "ontology.yaml")
    np.save(tmp_path / "digits.npy", bunch.data[: NEWEST + HISTORY + UNLABELLED + TEST].astype(np.float32))
    rows = ["features,label,version,split"]
    for index in range(NEWEST + HISTORY + UNLABELLED + TEST):
        fine = str(bunch.target[index])
        coarse = ontology.translate([fine], "v2", "v1")[0]
        if index < NEWEST:
            rows.append(f"digits.npy#{index},{fine},v2,train")
        elif index < NEWEST + HISTORY:
            rows.append(f"digits.npy#{index},{coarse},v1,train")
        elif index < NEWEST + HISTORY + UNLABELLED:
            rows.append(f"digits.npy#{index},,,train")
        else:
            rows.append(f"digits.npy#{index},{fine},v2,test")
    (tmp_path / "labels.csv").write_text("\n".join(rows) + "\n")
    (tmp_path / "experiment.yaml").write_text(
        "data: {manifest: labels.csv, ontology: ontology.yaml}\nmethod: lpl\n"
        "training: {network: {backbone: linear}, batches: {steps: 30, evaluate_every: 10}}\n"
    )
    return tmp_path


def prepared(folder: Path, runs: Path | None = None, *, tested: bool = True, **options: Any) -> Prepared:
    """Measure the curves as `leco plan` does, at two levels instead of four."""
    wanted = experiment(str(folder / "experiment.yaml"), {}, {})
    context = load_context(wanted, periods_of(wanted, folder, tested=tested), runs or folder / "runs", Machine())
    return prepare(context, **{"draws": 5, "levels": 2} | options)


def made_up_known(samples_of_a_class: int = 40, history: int = 200) -> Known:
    """Digits with nothing but labels: what curves need."""
    evidence = digits.ontology().evidence()
    fine = torch.arange(10).repeat(samples_of_a_class)
    old = digits.ontology().translate(torch.arange(10).repeat(history // 10), "v2", "v1")
    labels = torch.cat([evidence.ids(fine, "v2"), evidence.ids(fine[:50], "v2"), evidence.ids(old, "v1")])
    parts = [(len(fine), known.NEWEST), (50, known.VALIDATION), (len(old), known.HISTORY)]
    part = torch.cat([torch.full((count,), kind) for count, kind in parts])
    return Known(evidence, torch.zeros(len(part), 1), torch.arange(len(part)), labels, part)


def draw(folder: Path, name: str, values: list[list[int]]) -> None:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(np.repeat(np.array(values, dtype=np.uint8), 5, axis=0)).save(path)


def rows_of(path: Path) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(path.read_text())))


@pytest.fixture
def masked(street: Ontology, tmp_path: Path) -> Path:
    """Four images with masks of v1, one with a mask of v2 besides, and one without any."""
    street.save(tmp_path / "ontology.yaml")
    v1 = {name: street["v1"].index(name) for name in ("sidewalk", "car", "child", "bus", "fax")}
    drawn = {
        "easy": [v1["sidewalk"], v1["car"], v1["child"], 255],
        "split": [v1["sidewalk"], v1["bus"], v1["bus"], v1["bus"]],
        "gone": [v1["fax"], v1["car"], v1["car"], v1["car"]],
        "both": [v1["car"]] * 4,
    }
    rows = ["image,mask,version"]
    for number, (name, values) in enumerate(drawn.items()):
        draw(tmp_path, f"{name}.png", [[number, 0, 0, 0]])
        draw(tmp_path, f"old/{name}.png", [values])
        rows.append(f"{name}.png,old/{name}.png,v1")
    draw(tmp_path, "new/both.png", [[street["v2"].index("automobile")] * 4])
    draw(tmp_path, "none.png", [[9, 0, 0, 0]])
    (tmp_path / "labels.csv").write_text("\n".join([*rows, "both.png,new/both.png,v2", "none.png,,"]) + "\n")
    return tmp_path
