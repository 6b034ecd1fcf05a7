"""Datasets, wherever they come from, and the periods they are dealt to."""

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import torch
from PIL import Image

import leco
from leco import LecoError
from leco.dataset import Dataset
from leco.dataset.benchmark import BenchmarkDataset

ONTOLOGY = {
    "name": "pets",
    "versions": [
        {"name": "v1", "classes": ["dog", "cat"]},
        {"name": "v2", "classes": {"poodle": {"from": "dog"}, "husky": {"from": "dog"}, "cat": None}},
    ],
}
HISTORY = leco.Ontology.from_dict(ONTOLOGY)


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folders of two versions, ten images a class, and the same as a manifest."""
    folder = tmp_path_factory.mktemp("photos")
    rows = ["image,label,version,split"]
    for version, classes in (("v1", ["dog", "cat"]), ("v2", ["poodle", "husky", "cat"])):
        for number, name in enumerate(classes):
            (folder / version / name).mkdir(parents=True)
            for place in range(10):
                pixels = np.random.default_rng([number, place, int(version[1])]).integers(0, 256, (12, 10, 3))
                file = f"{version}/{name}/{place}.png"
                Image.fromarray(pixels.astype(np.uint8)).save(folder / file)
                split = "test" if version == "v2" and place < 2 else "train"
                rows.append(f"{file},{name},{version},{split}")
    (folder / "labels.csv").write_text("\n".join(rows) + "\n")
    (folder / "ontology.json").write_text(json.dumps(ONTOLOGY))
    return folder


def same(one: leco.Dataset, other: leco.Dataset) -> bool:
    first, second = one.periods(), other.periods()
    return first.data == second.data and first.fingerprint == second.fingerprint


def test_a_manifest_a_table_and_data_frames_are_the_same_dataset(photos):
    data = Dataset.from_manifest(photos / "labels.csv", photos / "ontology.json", image_size=8)
    frame = pd.read_csv(photos / "labels.csv", dtype=str)
    for table in (frame, pa.Table.from_pandas(frame), frame.to_dict("list")):
        assert same(data, Dataset.from_table(table, HISTORY, root=photos, image_size=8))


def test_polars_frames_are_tables_too(photos):
    polars = pytest.importorskip("polars", reason="polars is not installed")
    frame = polars.read_csv(photos / "labels.csv")
    data = Dataset.from_manifest(photos / "labels.csv", HISTORY, image_size=8)
    assert same(data, Dataset.from_table(frame, HISTORY, root=photos, image_size=8))


def test_folders_are_read_with_a_test_split_of_the_newest_version(photos):
    data = Dataset.from_folders(photos / "v1", photos / "v2", ontology=HISTORY, image_size=8)
    counts = data.counts()
    assert counts["v1"] == {"train": 20, "val": 0, "test": 0}
    assert counts["v2"]["test"] > 0
    assert counts["v2"]["train"] + counts["v2"]["test"] == 30
    assert data.modality.name == "classification"
    assert len(data.periods().tested(1)) == counts["v2"]["test"]


def test_a_dataset_shows_its_counts(photos):
    data = Dataset.from_manifest(photos / "labels.csv", HISTORY)
    assert repr(data) == "Dataset('pets', classification; v1: 20 train, v2: 24 train + 6 test)"
    assert "<th>v2</th><td>24</td><td>0</td><td>6</td>" in data._repr_html_()


def test_names_are_escaped_in_notebooks():
    evil = {"name": "<script>", "versions": [{"name": "<b>", "classes": ["a"]}]}
    data = Dataset.from_arrays([[1.0], [2.0]], ["a", "a"], "<b>", ontology=evil)
    assert "<script>" not in data._repr_html_()
    assert "<b>" not in data._repr_html_()


def test_arrays_are_split_and_versions_without_labels_make_no_period():
    chance = np.random.default_rng(0)
    features, labels = chance.normal(size=(40, 3)), ["poodle", "husky", "cat", "cat"] * 10
    split = ["test" if number % 4 == 3 else "train" for number in range(40)]
    data = Dataset.from_arrays(features, labels, "v2", ontology=ONTOLOGY, split=split)
    periods = data.periods(seed=3)
    assert periods.versions == ("v2",)
    assert periods.tested(0).tolist() == list(range(3, 40, 4))
    annotated = periods.annotated(0, "label-new")
    assert len(annotated.newest.indices) + len(annotated.validation.indices) == 30
    assert len(annotated.validation.indices) == 6
    assert torch.equal(periods.pool.inputs.read(torch.tensor([5]))[0], torch.tensor(features[5]).float())


def test_a_check_finds_all_problems_at_once(photos, tmp_path):
    rows = (photos / "labels.csv").read_text().replace("v2/husky/9.png,husky", "v2/husky/9.png,huskie")
    rows = rows.replace("v1/dog/0.png", "v1/dog/nowhere.png")
    (tmp_path / "labels.csv").write_text(rows)
    checked = Dataset.from_manifest(tmp_path / "labels.csv", HISTORY, root=photos).check()
    assert not checked.ok
    text = repr(checked)
    assert "'huskie' is not a class of v2; did you mean 'husky'" in text
    assert "v1/dog/nowhere.png: no such file" in text
    whole = Dataset.from_manifest(photos / "labels.csv", HISTORY).check()
    assert whole.ok
    assert any("no val split" in finding.message for finding in whole.notes)


def test_a_check_of_a_benchmark_reads_its_data(tmp_path):
    assert BenchmarkDataset("digits-leco", tmp_path).check().ok
    missing = BenchmarkDataset("cub-leco", tmp_path).check()
    assert not missing.ok
    assert str(tmp_path) in repr(missing)


BAD = {
    "no such manifest": (lambda p: Dataset.from_manifest(p / "nowhere.csv", HISTORY).periods(), "nowhere.csv"),
    "no folders": (lambda _: Dataset.from_folders(ontology=HISTORY), "pass one folder per version"),
    "a file": (lambda p: Dataset.from_folders(p / "labels.csv", ontology=HISTORY), "is not a folder"),
    "no table": (lambda _: Dataset.from_table([1, 2], HISTORY), "a data frame or a mapping of columns, not list"),
    "ragged": (lambda _: Dataset.from_table({"image": ["a"], "label": []}, HISTORY), "columns differ in length"),
    "unknown modality": (
        lambda p: Dataset.from_manifest(p / "labels.csv", HISTORY, modality="smell").modality,
        "'smell' is not a registered modality",
    ),
    "flat features": (
        lambda _: Dataset.from_arrays([1.0], ["cat"], ontology=ONTOLOGY),
        r"must have the shape \(n, d\)",
    ),
    "NaN": (lambda _: Dataset.from_arrays([[np.nan]], ["cat"], ontology=ONTOLOGY), "NaN or infinity, first in row 0"),
    "too few labels": (
        lambda _: Dataset.from_arrays([[1.0], [2.0]], ["cat"], ontology=ONTOLOGY),
        "labels: has 1 values, but there are 2 feature vectors",
    ),
    "unknown split": (
        lambda _: Dataset.from_arrays([[1.0]], ["cat"], ontology=ONTOLOGY, split=["tset"]),
        "'tset' is not one of train, val, test; did you mean 'test'",
    ),
    "unknown benchmark": (lambda _: leco.benchmark("digit-leco"), "did you mean 'digits-leco'"),
}


@pytest.mark.parametrize("case", BAD)
def test_wrong_data_are_refused_in_one_message(case, photos):
    make, message = BAD[case]
    with pytest.raises(LecoError, match=message) as refused:
        make(photos)
    assert "\n" not in str(refused.value)
