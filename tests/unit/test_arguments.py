"""Wrong arguments of public functions: one message that names the argument, what it must be, and what it is."""

import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import leco
from leco import Dataset, LecoError, Method, Model, Ontology, Settings

FEATURES, LABELS = np.eye(3), ["tabby", "lynx", "husky"]
MODEL = Model.__new__(Model)
VALID: dict[Callable[..., Any], dict[str, Any]] = {
    leco.train: {"data": Dataset.from_arrays(FEATURES, LABELS)},
    leco.load: {"folder": "model"},
    leco.benchmark: {"name": "digits-leco"},
    Dataset.from_manifest: {"path": "labels.csv", "ontology": "ontology.yaml"},
    Dataset.from_table: {"table": {"image": ["a.png"]}, "ontology": "ontology.yaml"},
    MODEL.predict: {"inputs": "a.png"},
    MODEL.predict_proba: {"inputs": "a.png"},
    MODEL.predict_masks: {"inputs": "a.png", "folder": "masks"},
    MODEL.evaluate: {"data": "labels.csv"},
    MODEL.upgrade: {"ontology": "ontology.yaml"},
    MODEL.export: {"path": "model.onnx"},
    MODEL.save: {"folder": "model"},
    Ontology.load: {"path": "ontology.yaml"},
    Method.parse: {"text": "lpl"},
}
TYPED = [
    pytest.param(function, name, id=f"{function.__qualname__}-{name}")
    for function in VALID
    for name, parameter in inspect.signature(function).parameters.items()
    if parameter.annotation is not Any
]


@pytest.mark.parametrize(("function", "name"), TYPED)
def test_an_argument_of_another_type_is_named(function, name):
    for wrong in (object(), b"bytes", {1, 2}):
        with pytest.raises(LecoError, match=rf"^{name}: must be [^\n]+, not (<object|b'bytes'|\{{1, 2)[^\n]*$"):
            function(**(VALID[function] | {name: wrong}))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: leco.benchmark("digits-leco", size=True), "size: must be a whole number or None, not True"),
        (lambda: leco.benchmark("digits-leco", size="40"), "size: must be a whole number or None, not '40'"),
        (lambda: leco.load("model", verify=0), "verify: must be True or False, not 0"),
        (lambda: leco.load(None), "folder: must be the path of a local file or folder, not None"),
        (lambda: MODEL.predict("a", back_off="high"), "back_off: must be a number or None, not 'high'"),
        (lambda: MODEL.predict("a", version=np.zeros((9, 9))), "version: must be a string or None, not array([[0., 0."),
        (lambda: leco.train([1]), "data: must be a leco.Dataset, not [1]"),
        (lambda: leco.train(VALID[leco.train]["data"], batches=Settings()), "must be a mapping or BatchSettings or No"),
        (lambda: Dataset.from_folders("v1", 2, ontology="o.yaml"), "folders: must be the path of a local file or fol"),
        (lambda: Dataset.from_arrays("x", LABELS), "features: must be an array of numbers (n, d), not 'x'"),
        (lambda: Dataset.from_arrays([[1], [1, 2]], LABELS), "features: must be an array of numbers (n, d), not [[1],"),
        (lambda: Dataset.from_arrays(FEATURES + 1j, LABELS), "features: must be an array of numbers (n, d), not array"),
        (
            lambda: Dataset.from_arrays(FEATURES.astype("M8[s]"), LABELS),
            "features: must be an array of numbers (n, d),",
        ),
        (lambda: Dataset.from_arrays(FEATURES[:, :0], LABELS), "features must have the shape (n, d), not (3, 0)"),
        (lambda: Dataset.from_arrays(FEATURES, LABELS, "v1"), "versions: need an ontology; pass one as `ontology`"),
        (lambda: Dataset.from_arrays(FEATURES, 3), "labels: must be a list of values, one for each sample, not 3"),
        (lambda: Dataset.from_arrays(FEATURES, LABELS[:2]), "labels: has 2 values, but there are 3 feature vectors"),
        (lambda: Dataset.from_arrays(FEATURES, LABELS, split=["test"]), "split: has 1 values, but there are 3"),
        (lambda: Dataset.from_arrays(FEATURES, LABELS, ontology=3), "ontology: must be a leco.Ontology, a path or a m"),
        (lambda: Ontology.from_taxonomy("pets", "v1", [("dog",)]), "versions: must be a list, not 'v1'"),
        (lambda: Ontology.from_taxonomy("pets", ["v1"], [1]), "lineage 0 of pets: (1,) must have one name for each"),
        (lambda: Dataset.from_table({"image": 1}, "o.yaml"), "the column 'image' must be a list of values, not 1"),
    ],
)
def test_what_is_wrong_with_an_argument_is_said(call, message):
    with pytest.raises(LecoError) as refused:
        call()
    assert message in str(refused.value)
    assert "\n" not in str(refused.value)


def test_numbers_and_paths_of_other_libraries_are_taken(tmp_path):
    data = leco.benchmark("digits-leco", size=np.int64(40))
    assert sum(data.counts()["v2"].values()) > 0
    with pytest.raises(LecoError, match="no such bundle"):
        leco.load(Path(tmp_path) / "model", verify=np.bool_(True))
    table = Dataset.from_table({"image": ["a.png"]}, "ontology.yaml", image_size=np.int64(8))
    assert type(table.image_size) is int
    assert leco.settings.OptimiserSettings(learning_rate=np.array([0.1, 0.2])).learning_rate == (0.1, 0.2)


REVERSED = FEATURES[::-1]


@pytest.mark.parametrize(
    "features",
    [
        REVERSED,
        REVERSED.astype(object),
        torch.tensor(REVERSED.copy()).bfloat16(),
        torch.tensor(REVERSED.copy()).requires_grad_(),
    ],
    ids=["reversed", "objects", "bfloat16", "with gradients"],
)
def test_features_of_any_layout_and_type_are_numbers(features):
    torch.testing.assert_close(Dataset.from_arrays(features, LABELS).features, torch.tensor(REVERSED.copy()).float())


def test_labels_may_be_tensors_and_columns_may_hold_arrays():
    pets = Ontology.from_taxonomy("pets", np.array(["v1"]), [("cat",), ("dog",)])
    data = Dataset.from_arrays(FEATURES, [torch.tensor(1), 0, torch.tensor(-1)], ontology=pets)
    assert data.labels.known["v1"].tolist() == [1, 0, -1]
    table = {"image": ["a.png"], "label": [np.zeros(2)], "version": [np.float32("nan")]}
    assert Dataset.from_table(table, pets).table["version"] == [""]


def test_unknown_arguments_are_python_s_own_error():
    with pytest.raises(TypeError, match="unexpected keyword argument 'folders'"):
        leco.load("model", folders="model")


def test_the_signature_stays():
    assert "back_off" in inspect.signature(MODEL.predict).parameters
    assert leco.train.__doc__.startswith("Train over all periods")
