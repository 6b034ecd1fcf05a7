"""`leco.Model`: predictions, scores, upgrades and exports, from Python."""

import csv
import json
import os
import re
import shutil
import sys
from pathlib import Path

import numpy as np
import onnxruntime
import pandas as pd
import pytest
import torch
from PIL import Image
from safetensors.torch import load_file, save_file
from tests.trainings import model_of
from typer.testing import CliRunner

import leco
from leco import Dataset, LecoError, Model, Ontology
from leco.cli.main import app
from leco.data.benchmarks import digits
from leco.data.masks import read_mask
from leco.model.bundle import read_bundle, write_bundle
from leco.model.description import Metrics

ONE = Path("images", "6", "1203.png")


@pytest.fixture
def model(new) -> Model:
    return model_of(new)


@pytest.fixture
def coloured(new, tmp_path) -> Model:
    """A model of colour images, cut out of 12 x 12 pixels."""
    changes = {"model": "linear", "shape": (3, 8, 8), "side": 12, "mean": (0.5,) * 3, "std": (0.5,) * 3}
    description = new.description.model_copy(update=changes)
    weights = description.build(new.ontology).state_dict()
    write_bundle(tmp_path / "coloured", description, new.ontology, weights, new.metrics)
    return model_of(read_bundle(tmp_path / "coloured"))


def images(folder: Path, count: int = 20) -> tuple[list[Path], np.ndarray]:
    """Some files, and their pixels (n, 8, 8, 1)."""
    paths = sorted((folder / "images").rglob("*.png"))[:count]
    return paths, np.stack([np.array(Image.open(path)) for path in paths])[..., None]


def found(*arguments: object) -> list[dict]:
    result = CliRunner().invoke(app, ["evaluate", *map(str, arguments), "--json"])
    assert result.exit_code == 0, result.exception
    return json.loads(result.stdout)


def as_records(evaluation: leco.Evaluation) -> list[dict]:
    """What `leco evaluate --json` prints of one model."""
    return [
        {
            "version": version,
            "n": int(part.scores.support.sum()),
            "macc": part.scores.macc,
            "miou": part.scores.miou,
            "classes": part.scores.table(),
        }
        for version, part in evaluation.versions.items()
    ]


def test_a_folder_paths_a_manifest_and_an_array_are_predicted_alike(model, pictures):
    whole = model.predict(pictures / "images")
    assert len(whole) == 597
    answers = dict(zip(whole.names, whole.answers, strict=True))
    paths, pixels = images(pictures)
    by_path, by_text = model.predict(paths), model.predict(list(map(str, paths)))
    assert by_path.names == by_text.names == list(map(str, paths))
    assert by_path.answers == by_text.answers
    assert [answer.classes[0][0] for answer in by_path.answers] == [answers[str(path)].classes[0][0] for path in paths]
    by_array, by_tensor = model.predict(pixels), model.predict(torch.from_numpy(pixels))
    assert by_array.names == [str(number) for number in range(20)]
    assert by_array.answers == by_path.answers == by_tensor.answers
    assert set(model.predict(pictures / "labels.csv").names) == set(whole.names)
    one = model.predict(str(pictures / ONE))
    assert one.names == [str(pictures / ONE)]
    assert one.answers[0].classes[0][0] == answers[str(pictures / ONE)].classes[0][0]


def test_paths_of_a_manifest_are_relative_to_a_root(model, pictures, tmp_path):
    (tmp_path / "labels.csv").write_text("image\n6/1203.png\n")
    by_root = model.predict(tmp_path / "labels.csv", root=pictures / "images")
    assert by_root.answers == model.predict(pictures / ONE).answers


def test_an_array_of_vectors_is_predicted_as_its_file(vectors):
    model = model_of(vectors[0])
    file = vectors[0].folder.parent / "digits.npy"
    table = np.load(file)
    by_file = model.predict(file)
    arrays = [table, table.astype(np.float64), table.astype(object), np.asfortranarray(table)]
    for array in (*arrays, table.tolist(), pd.DataFrame(table)):
        by_array = model.predict(array)
        assert by_array.answers == by_file.answers
    frozen = table.copy()
    frozen.flags.writeable = False
    assert model.predict(frozen[::-1]).answers == by_file.answers[::-1]
    assert model.predict(table, batch_size=7).to_dict()["label"] == by_file.to_dict()["label"]


def test_objects_that_stand_for_paths_are_paths(vectors):
    model = model_of(vectors[0])
    entries = {entry.name: entry for entry in os.scandir(vectors[0].folder.parent)}
    assert (
        model.predict(entries["digits.npy"]).answers == model.predict(vectors[0].folder.parent / "digits.npy").answers
    )
    with pytest.raises(LecoError, match="bundle"):
        model.evaluate("labels.csv", against=entries["digits.npy"])


def test_images_of_the_side_are_cut_and_grey_ones_are_coloured(coloured):
    generator = np.random.default_rng(0)
    large = generator.integers(0, 256, (5, 12, 12, 3)).astype(np.uint8)
    middle = large[:, 2:10, 2:10]
    expected = coloured.predictor.probs(torch.from_numpy(middle).permute(0, 3, 1, 2)).numpy()
    np.testing.assert_array_equal(coloured.predict_proba(middle), expected)
    np.testing.assert_array_equal(coloured.predict_proba(large), expected)
    grey = large[..., :1]
    np.testing.assert_array_equal(coloured.predict_proba(grey), coloured.predict_proba(np.repeat(grey, 3, axis=3)))


def test_convolutions_of_a_model_have_the_memory_layout_that_is_fastest_on_cpus(segmenter):
    network = model_of(segmenter[0]).predictor.network
    weights = [module.weight for module in network.modules() if isinstance(module, torch.nn.Conv2d)]
    assert weights
    assert all(weight.is_contiguous(memory_format=torch.channels_last) for weight in weights)


def test_the_likeliest_classes_of_any_version_are_those_of_the_probabilities(model, pictures):
    _, pixels = images(pictures)
    for version in ("v1", "v2", None):
        answers = model.predict(pixels, version=version, top=3)
        probs = model.predict_proba(pixels, version=version)
        handles = model.ontology[version or "v2"].handles
        for answer, row in zip(answers.answers, probs, strict=True):
            assert answer.version == (version or "v2")
            best = np.argsort(-row, kind="stable")[:3]
            assert [label for label, _ in answer.classes] == [handles[index] for index in best]
            assert [value for _, value in answer.classes] == pytest.approx(row[best].tolist())


def test_probabilities_of_an_older_version_are_sums_of_the_newest(model, pictures):
    _, pixels = images(pictures)
    fine, coarse = model.predict_proba(pixels), model.predict_proba(pixels, version="v1")
    expected = np.zeros((20, 3))
    for digit, stroke in enumerate(model.ontology.transition("v2", "v1").parents.tolist()):
        expected[:, stroke] += fine[:, digit]
    np.testing.assert_allclose(coarse, expected, rtol=1e-6)
    np.testing.assert_array_equal(fine, model.predict_proba(pixels, batch_size=20, version="v2"))
    np.testing.assert_allclose(fine, model.predict_proba(pixels, batch_size=3), rtol=1e-5)


def test_backing_off_gives_the_newest_version_that_reaches_the_threshold(model, pictures):
    answers = model.predict(pictures / "images", back_off=0.8)
    probs = {version: model.predict_proba(pictures / "images", version=version).max(axis=1) for version in ("v1", "v2")}
    assert {answer.version for answer in answers.answers} == {"v1", "v2"}
    for answer, coarse, fine in zip(answers.answers, probs["v1"], probs["v2"], strict=True):
        assert answer.version == ("v2" if fine >= 0.8 else "v1")
        assert answer.reached == (max(coarse, fine) >= 0.8)
    columns = answers.to_dict()
    assert list(columns) == ["input", "version", "label", "probability", "reached", "accuracy", "n"]
    assert {number for number in columns["n"] if number} <= set(range(1, 26))  # of 25 validation samples


def test_predictions_become_tables(model, pictures, tmp_path):
    paths, _ = images(pictures)
    answers = model.predict(paths, top=2)
    columns = answers.to_dict()
    assert list(columns) == ["input", "version", "label", "probability", "label_2", "probability_2"]
    assert columns["input"] == list(map(str, paths))
    assert columns["label_2"] == [answer.classes[1][0] for answer in answers.answers]
    frame = answers.to_pandas()
    assert frame.to_dict("list") == columns
    assert frame["probability"].dtype == np.float64
    answers.to_csv(tmp_path / "answers.csv")
    with (tmp_path / "answers.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["label"] for row in rows] == columns["label"]
    assert [float(row["probability_2"]) for row in rows] == pytest.approx(columns["probability_2"], abs=1e-6)
    result = CliRunner().invoke(app, ["predict", model.place, *map(str, paths), "--top", "2"])
    assert (tmp_path / "answers.csv").read_text() == result.stdout
    assert repr(answers) == "Predictions(20 inputs)"


def test_predictions_become_a_polars_frame(model, pictures):
    pytest.importorskip("polars")
    answers = model.predict(images(pictures)[0], top=2)
    assert answers.to_polars().to_dict(as_series=False) == answers.to_dict()


def test_without_polars_the_message_says_how_to_install_it(model, pictures, monkeypatch):
    monkeypatch.setitem(sys.modules, "polars", None)
    with pytest.raises(LecoError, match="to_polars needs polars; install it with: pip install polars"):
        model.predict(pictures / ONE).to_polars()


def test_more_classes_than_there_are_give_all(model, pictures):
    answers = model.predict(pictures / ONE, version="v1", top=100)
    assert answers.top == 3
    assert sorted(label for label, _ in answers.answers[0].classes)[-3:] == sorted(model.ontology["v1"].handles)
    assert list(answers.to_dict())[-1] == "probability_3"


def test_what_cannot_be_read_is_listed_and_the_rest_is_predicted(model, pictures, tmp_path):
    (tmp_path / "broken.png").write_bytes(b"no image")
    answers = model.predict([tmp_path / "broken.png", pictures / ONE, tmp_path / "nowhere.png"])
    assert answers.names == [str(pictures / ONE)]
    assert [problem.split(": ")[0] for problem in answers.problems] == [
        str(tmp_path / "broken.png"),
        str(tmp_path / "nowhere.png"),
    ]
    assert repr(answers) == "Predictions(1 inputs, 2 problems)"
    with pytest.raises(LecoError, match=r"broken\.png: is not an image"):
        model.predict_proba([pictures / ONE, tmp_path / "broken.png"])
    with pytest.raises(
        LecoError, match=r"none of the inputs could be read; the first problem: .*nowhere\.png: no such file"
    ):
        model.predict(tmp_path / "nowhere.png")


WRONG = {
    "an unknown version": ({"version": "v3"}, "'v3' is not a version of digits"),
    "an empty version": ({"version": ""}, "'' is not a version of digits"),
    "no class": ({"top": 0}, "top: must be at least 1, not 0"),
    "an empty batch": ({"batch_size": 0}, "batch_size: must be at least 1, not 0"),
    "a threshold that is no probability": ({"back_off": 1.5}, "back_off: must be a probability from 0 to 1, not 1.5"),
    "a threshold and a version": ({"back_off": 0.5, "version": "v1"}, "back_off chooses the version"),
    "a threshold and several classes": ({"back_off": 0.5, "top": 2}, "leave out version and top"),
    "images of another size": (
        {"inputs": np.zeros((2, 9, 9, 1), dtype=np.uint8)},
        "inputs: must be paths, or uint8 images (n, 8, 8, 1), not uint8 of shape (2, 9, 9, 1)",
    ),
    "images of floats": ({"inputs": np.zeros((2, 8, 8, 1))}, "not float64 of shape (2, 8, 8, 1)"),
    "images with channels first": (
        {"inputs": np.zeros((2, 1, 8, 8), dtype=np.uint8)},
        "not uint8 of shape (2, 1, 8, 8)",
    ),
    "images with opacity": ({"inputs": np.zeros((2, 8, 8, 4), dtype=np.uint8)}, "not uint8 of shape (2, 8, 8, 4)"),
    "one image": ({"inputs": np.zeros((8, 8), dtype=np.uint8)}, "not uint8 of shape (8, 8)"),
    "nothing": ({"inputs": None}, "inputs: must be paths, or uint8 images (n, 8, 8, 1), not NoneType"),
    "a mapping": ({"inputs": {"a": 1}}, "not dict"),
    "paths among numbers": ({"inputs": ["a.png", 3]}, "(n, 8, 8, 1), not list"),
    "rows of different lengths": ({"inputs": [[1.0], [1.0, 2.0]]}, "(n, 8, 8, 1), but the rows differ in length"),
}


@pytest.mark.parametrize("case", WRONG)
def test_wrong_inputs_are_refused_in_one_message(case, model):
    changes, message = WRONG[case]
    arguments = {"inputs": np.zeros((2, 8, 8, 1), dtype=np.uint8)} | changes
    with pytest.raises(LecoError, match=re.escape(message)) as refused:
        model.predict(arguments.pop("inputs"), **arguments)
    assert "\n" not in str(refused.value)


def test_wrong_vectors_are_refused_in_one_message(vectors):
    model = model_of(vectors[0])
    table = np.ones((4, 64))
    for row, value in ((2, np.nan), (3, np.inf), (1, 1e300)):
        wrong = table.copy()
        wrong[row, 5] = value
        with pytest.raises(LecoError, match=f"inputs: row {row} holds NaN or infinity"):
            model.predict(wrong)
    for wrong in (table[:, :5], table[0], table[None]):
        with pytest.raises(LecoError, match=re.escape(f"feature vectors (n, 64), not of shape {wrong.shape}")):
            model.predict_proba(wrong)
    with pytest.raises(LecoError, match="inputs: is empty"):
        model.predict_proba(table[:0])
    assert len(model.predict(table[:0])) == 0


def test_broken_weights_are_refused_before_inputs_are_read(new, pictures, tmp_path):
    folder = Path(shutil.copytree(new.folder, tmp_path / "bundle"))
    weights = load_file(folder / "model.safetensors")
    weights["heads.0.bias"][0] = torch.nan
    save_file(weights, folder / "model.safetensors")
    with pytest.raises(LecoError, match=r"heads\.0\.bias holds NaN or infinity"):
        leco.load(folder, device="cpu", verify=False).predict(tmp_path / "nowhere.png")
    weights["heads.0.bias"][0] = 3e38
    weights["heads.0.weight"][0] = 3e38
    save_file(weights, folder / "model.safetensors")
    with pytest.raises(LecoError, match="bundle: predictions at v2 are NaN or infinite: its weights, or its"):
        leco.load(folder, device="cpu", verify=False).predict(pictures / "images")


def test_an_evaluation_is_what_the_command_prints(model, new, vectors, segmenter, pictures):
    data = Dataset.from_manifest(pictures / "labels.csv", model.ontology)
    mine = model.evaluate(data)
    assert as_records(mine) == found(new.folder, pictures / "labels.csv")
    assert as_records(model.evaluate(pictures / "labels.csv")) == as_records(mine)
    assert as_records(model.evaluate(data, split="all")) == as_records(mine)
    assert list(mine.versions) == ["v2", "v1"]
    assert mine["v1"].macc == mine.versions["v1"].scores.macc
    assert repr(mine) == f"Evaluation(macc; v2: {mine['v2'].macc:.3f}, v1: {mine['v1'].macc:.3f})"
    for bundle, result in (vectors, segmenter):
        labels = bundle.folder.parent / "labels.csv"
        other = model_of(bundle).evaluate(labels)
        assert as_records(other) == found(bundle.folder, labels)
        assert other["v2"].miou == pytest.approx(result["test"]["v2"]["miou"], abs=1e-12)


def test_scores_are_those_of_naive_counting(model, pictures):
    rows = list(csv.DictReader((pictures / "labels.csv").read_text().splitlines()))
    fine = [row for row in rows if row["version"] == "v2"]
    labels = model.predict([pictures / row["image"] for row in fine]).to_dict()["label"]
    right = {digit: [] for digit in map(str, range(10))}
    for row, label in zip(fine, labels, strict=True):
        right[row["label"]].append(label == row["label"])
    expected = np.mean([np.mean(hits) for hits in right.values()])
    assert model.evaluate(pictures / "labels.csv")["v2"].macc == pytest.approx(expected)


def test_two_models_are_compared_on_the_same_samples(model, old, new, pictures):
    data = Dataset.from_manifest(pictures / "labels.csv", model.ontology)
    compared = model.evaluate(data, against=model_of(old))
    (expected,) = (
        part for part in found(new.folder, pictures / "labels.csv", "--against", old.folder) if "against" in part
    )
    part = compared.versions["v1"]
    assert part.difference.gain == expected["against"]["gain"]
    assert part.other.macc == pytest.approx(part.scores.macc - part.difference.gain)
    assert [difference.name for difference in part.classes] == [row["name"] for row in expected["differences"]]
    assert compared.versions["v2"].difference is None
    assert model_of(old).evaluate(data, against=model).versions.keys() == {"v1"}


def test_labels_of_newer_versions_than_the_model_need_their_ontology(old, pictures):
    with pytest.raises(LecoError, match="'v2' is not a version of digits"):
        model_of(old).evaluate(pictures / "labels.csv")
    mine = model_of(old).evaluate(pictures / "labels.csv", ontology=digits.ontology())
    assert {version: int(part.scores.support.sum()) for version, part in mine.versions.items()} == {"v1": 597}


def test_what_cannot_be_evaluated_is_refused(model, vectors, segmenter, pictures, tmp_path):
    labels = pictures / "labels.csv"
    data = Dataset.from_manifest(labels, model.ontology)
    street = Ontology.load(segmenter[0].folder.parent / "ontology.yaml")
    benchmark = leco.benchmark("digits-leco", size=100)
    for arguments, message in (
        ({"data": labels, "split": "tset"}, "split: 'tset' is not one of train, val, test, all; did you mean 'test'?"),
        (
            {"data": labels, "split": "val"},
            "labels.csv: no sample of the split val has a label; choose from: test, all",
        ),
        ({"data": labels, "ontology": street}, "v1: 'loop' was renamed to 'bright'"),
        ({"data": data, "ontology": model.ontology}, "ontology and root are for the path of a manifest"),
        ({"data": data, "root": tmp_path}, "ontology and root are for the path of a manifest"),
        ({"data": data, "against": model_of(vectors[0])}, "a model for classification and one for features cannot be"),
        ({"data": vectors[0].folder.parent / "labels.csv"}, "is for features, but"),
        ({"data": benchmark, "split": "val"}, "models are evaluated on the test split of a benchmark, not on val"),
    ):
        with pytest.raises(LecoError, match=re.escape(message)) as refused:
            model.evaluate(**arguments)
        assert "\n" not in str(refused.value)


def test_masks_that_do_not_fit_are_named(segmenter, tmp_path):
    bundle, _ = segmenter
    model = model_of(bundle)
    folder = Path(shutil.copytree(bundle.folder.parent, tmp_path / "data", ignore=shutil.ignore_patterns("runs", "b*")))
    mask = np.array(Image.open(folder / "11-mask.png"))
    mask[3, 5] = 7
    Image.fromarray(mask).save(folder / "11-mask.png")
    message = r"11-mask\.png: pixel \(row 3, column 5\) has the value 7, which is not a class of v2"
    with pytest.raises(LecoError, match=message):
        model.evaluate(folder / "labels.csv")
    Image.fromarray(mask[:8, :8]).save(folder / "11-mask.png")
    with pytest.raises(LecoError, match=r"11-mask\.png: is 8x8, but 11\.png is 32x24"):
        model.evaluate(folder / "labels.csv")
    assert model.evaluate(folder / "labels.csv", split="train")["v2"].support.sum() > 0  # which it is not part of


def test_an_upgraded_model_is_saved_and_loaded(old, pictures, tmp_path):
    model = model_of(old)
    digits.ontology().save(tmp_path / "ontology.yaml")
    upgraded = model.upgrade(tmp_path / "ontology.yaml")
    _, pixels = images(pictures)
    assert upgraded.versions == ("v1", "v2")
    expected = model.predict_proba(pixels)
    np.testing.assert_allclose(upgraded.predict_proba(pixels, version="v1"), expected, rtol=1e-5)
    assert upgraded.save(tmp_path / "model") == tmp_path / "model"
    loaded = leco.load(tmp_path / "model", device="cpu")
    np.testing.assert_array_equal(loaded.predict_proba(pixels), upgraded.predict_proba(pixels))
    assert loaded.description == upgraded.description
    assert loaded.scores == upgraded.scores == model.scores
    assert loaded.card == upgraded.card == (tmp_path / "model" / "README.md").read_text()
    assert (loaded.place, upgraded.place) == (str(tmp_path / "model"), "the model of digits-leco")
    with pytest.raises(LecoError, match="the model of digits-leco: is already a model of v2"):
        upgraded.upgrade(digits.ontology())
    loaded.save(tmp_path / "model")  # over itself
    np.testing.assert_array_equal(leco.load(tmp_path / "model").predict_proba(pixels), loaded.predict_proba(pixels))


def test_an_exported_model_answers_alike(model, pictures, tmp_path):
    _, pixels = images(pictures)
    assert model.export(tmp_path / "model.onnx") < 1e-5
    session = onnxruntime.InferenceSession(str(tmp_path / "model.onnx"), providers=["CPUExecutionProvider"])
    (fine,) = session.run(["probabilities_v2"], {"input": pixels.transpose(0, 3, 1, 2).astype(np.float32) / 255})
    np.testing.assert_allclose(fine, model.predict_proba(pixels), atol=1e-5)


def test_a_model_shows_its_scores_and_names_as_they_are(new, tmp_path):
    model = model_of(new)
    macc = 100 * new.metrics.test["v2"].macc
    validation = 100 * new.metrics.validation["v2"].macc
    assert repr(model) == (
        f"Model('digits-leco', classification, v1 -> v2; macc at v2: validation {validation:.1f} %, test {macc:.1f} %)"
    )
    assert f"<td>test</td><td>v2</td><td>{macc:.1f}</td>" in model._repr_html_()
    assert "<td>597</td>" in model._repr_html_()
    description = new.description.model_copy(update={"name": "<script>alert(1)</script>"})
    metrics = Metrics(test={"<b>v2": new.metrics.test["v2"]})
    odd = Model(description, new.ontology, metrics, bundle=new)._repr_html_()
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in odd
    assert "<td>&lt;b&gt;v2</td>" in odd
    assert "<script>" not in odd
    assert repr(Model(new.description, new.ontology, Metrics(), bundle=new)).endswith("classification, v1 -> v2)")


def test_a_segmenter_writes_masks_and_nothing_else(segmenter, tmp_path):
    bundle, _ = segmenter
    model = model_of(bundle)
    source = bundle.folder.parent
    for predict in (model.predict, model.predict_proba, lambda inputs: next(model.answers(inputs))):
        for inputs in (source / "1.png", np.zeros((1, 32, 32, 3), dtype=np.uint8)):
            with pytest.raises(LecoError, match="a model for segmentation predicts masks: use predict_masks"):
                predict(inputs)
    (tmp_path / "broken.png").write_bytes(b"no image")
    problems = model.predict_masks([source / "1.png", tmp_path / "broken.png"], tmp_path / "masks", version="v1")
    assert [problem.split(": ")[0] for problem in problems] == [str(tmp_path / "broken.png")]
    assert [path.name for path in (tmp_path / "masks").iterdir()] == ["1.png"]
    mask = read_mask(tmp_path / "masks" / "1.png")
    assert mask.shape == (24, 32)
    fine = tmp_path / "fine"
    assert model.predict_masks(source / "1.png", fine) == []
    pixels = torch.from_numpy(np.array(Image.open(source / "1.png"))).permute(2, 0, 1)[None]
    probs = model.predictor.probs(pixels)[0]  # the longer edge has 32 pixels, as the model takes it
    assert read_mask(fine / "1.png").tolist() == probs.argmax(dim=0).tolist()
    assert mask.tolist() == torch.stack([probs[0], probs[1] + probs[2]]).argmax(dim=0).tolist()


def test_wrong_calls_for_masks_are_refused(model, segmenter, pictures, tmp_path):
    with pytest.raises(LecoError, match="a model for classification predicts classes, not masks: use predict"):
        model.predict_masks(pictures / "images", tmp_path / "masks")
    segments = model_of(segmenter[0])
    with pytest.raises(LecoError, match="'v9' is not a version of"):
        segments.predict_masks(segmenter[0].folder.parent / "1.png", tmp_path / "masks", version="v9")
    with pytest.raises(LecoError, match="inputs: must be a list or the path of a local file or folder, not array"):
        segments.predict_masks(np.zeros((1, 32, 32, 3), dtype=np.uint8), tmp_path / "masks")
    assert list(tmp_path.iterdir()) == []


def test_benchmarks_and_arrays_are_evaluated_as_training_did(new):
    data = leco.benchmark("digits-leco", size=100)
    found = model_of(new).evaluate(data)
    for version in ("v1", "v2"):
        assert found[version].macc == pytest.approx(new.metrics.test[version].macc)


def test_arrays_are_evaluated_by_split(tmp_path):
    chance = np.random.default_rng(0)
    kinds = chance.integers(0, 3, 90)
    features = chance.normal(size=(90, 4)) + 4 * np.eye(4)[kinds]
    labels = np.array(["poodle", "husky", "cat"])[kinds]
    split = np.where(np.arange(90) % 3 == 0, "test", "train")
    data = leco.Dataset.from_arrays(features, labels, split=split)
    model = leco.train(data, method="ce", batches={"steps": 60}, store=tmp_path, progress=False)
    found = model.evaluate(data)
    assert found["v1"].support.sum() == 30
    assert found["v1"].macc == pytest.approx(model.scores["test"]["v1"].macc)
    assert found["v1"].macc > 0.8
    with pytest.raises(LecoError, match="vectors of 3 numbers, but the model takes 4"):
        model.evaluate(leco.Dataset.from_arrays(features[:, :3], labels, split=split))
