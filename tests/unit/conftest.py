"""A small model of digits, trained over both versions, and some of its test images as files."""

from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from sklearn.datasets import load_digits
from tests.trainings import Trained, train_digits, train_file

from leco.data.benchmarks import digits
from leco.model.bundle import Bundle, read_bundle

TESTED = range(1_200, 1_797)  # of scikit-learn's digits: the test set of digits-leco


@pytest.fixture(scope="session")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Trained:
    return train_digits(tmp_path_factory.mktemp("trained"))


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


@pytest.fixture(scope="session")
def vectors(tmp_path_factory: pytest.TempPathFactory) -> tuple[Bundle, dict]:
    """A model of feature vectors, in the folder of its manifest."""
    folder = tmp_path_factory.mktemp("vectors")
    bunch, ontology = load_digits(), digits.ontology()
    np.save(folder / "digits.npy", bunch.data[:300].astype(np.float32) + 1)
    ontology.save(folder / "ontology.yaml")
    rows = ["features,label,version,split"]
    for index, fine in enumerate(map(str, bunch.target[:300])):
        old = index % 3 == 0
        label = ontology.translate([fine], "v2", "v1")[0] if old else fine
        rows.append(f"digits.npy#{index},{label},{'v1' if old else 'v2'},{'test' if index % 5 == 4 else 'train'}")
    (folder / "labels.csv").write_text("\n".join(rows) + "\n")
    (folder / "experiment.yaml").write_text(
        "data: {manifest: labels.csv, ontology: ontology.yaml}\nmethod: lpl\n"
        "training:\n"
        "  {network: {backbone: linear}, batches: {steps: 60, evaluate_every: 60}, optimiser: {learning_rate: 0.5}}\n"
    )
    return train_file(folder / "experiment.yaml")


@pytest.fixture(scope="session")
def segmenter(tmp_path_factory: pytest.TempPathFactory) -> tuple[Bundle, dict]:
    """A model of pixels: bright and dark, then bright, grey and black ones; images of several sizes."""
    folder = tmp_path_factory.mktemp("segmenter")
    (folder / "ontology.yaml").write_text(
        "versions:\n  - {name: v1, classes: [bright, dark]}\n"
        "  - {name: v2, classes: {bright: , grey: {from: dark}, black: {from: dark}}}\n"
    )
    generator = np.random.default_rng(0)
    rows = ["image,mask,version,split"]
    for number in range(16):
        height, width = (24, 32) if number % 2 else (40, 20)
        fine = np.repeat(np.repeat(generator.integers(0, 3, (height // 4, width // 4)), 4, 0), 4, 1).astype(np.uint8)
        old, part = number % 4 == 0, "test" if number >= 10 else "train"
        pixels = np.array([230, 110, 10])[fine] + generator.integers(0, 20, fine.shape)
        Image.fromarray(np.stack([pixels] * 3, axis=-1).astype(np.uint8)).save(folder / f"{number}.png")
        Image.fromarray(np.minimum(fine, 1) if old else fine).save(folder / f"{number}-mask.png")
        rows.append(f"{number}.png,{number}-mask.png,{'v1' if old else 'v2'},{part}")
    (folder / "labels.csv").write_text("\n".join(rows) + "\n")
    (folder / "experiment.yaml").write_text(
        "data: {manifest: labels.csv, ontology: ontology.yaml, image_size: 32}\nmethod: ce\n"
        "training:\n  network: {backbone: tiny}\n  average: {decay: 0}\n"
        "  batches: {steps: 8, evaluate_every: 8, size: 8}\n"
    )
    return train_file(folder / "experiment.yaml")
