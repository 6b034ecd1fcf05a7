"""`check` finds all problems with an experiment before anything is trained."""

import json
import re
import shutil
from pathlib import Path

import numpy as np
import pytest
from tests.pictures import draw
from tests.trainings import train_file

from leco import Dataset
from leco.data.manifest import decode as contents
from leco.data.masks import read_mask
from leco.experiments.check import check, planned
from leco.experiments.init import example
from leco.experiments.timing import Pace, add_up, estimate


@pytest.fixture
def folder(tmp_path) -> Path:
    """The example of `leco init`."""
    example(tmp_path / "own")
    return tmp_path / "own"


def look(folder: Path, most: int | None = None, **settings: str):
    """`settings` are named as `batches__steps`."""
    dotted = {f"training.{key.replace('__', '.')}": value for key, value in settings.items()}
    return check(str(folder / "experiment.yaml"), dotted, most)


def change(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))


def messages(findings) -> str:
    return "\n".join(f"{finding.about}: {finding.message}" for finding in findings)


def test_the_example_has_no_problems_and_what_it_trains_is_known(folder):
    found = look(folder)
    assert (found.problems, found.warnings) == ([], [])
    assert "no label of v1 can mean 'star'" in messages(found.notes)
    assert [(row["stage"], row["version"], row["history"]) for row in planned(found)] == [
        ("TP0 ce, lr 0.06", "v1", 0),
        ("TP1 ce, lr 0.06", "v2", 0),
        ("TP1 lpl+st-hard/cond, lr 0.06", "v2", 96),
    ]
    assert [(row["new"], row["validation"], row["test"]) for row in planned(found)] == [
        (77, 19, 0),
        *[(40, 10, 40)] * 2,
    ]
    assert all(row["images"] == 200 * 32 for row in planned(found))


def test_guessed_origins_are_one_warning_until_the_marks_are_removed(folder):
    file = folder / "ontology.yaml"
    text = file.read_text()
    file.write_text(re.sub(r"\{((?:from|renamed): \w+)\}", r"{\1, guessed: true}", text))
    found = look(folder)
    (warning,) = found.warnings
    assert warning.about == "ontology"
    assert (
        "3 origins were guessed by leco init: circle from round, ring from round, square from box; " in warning.message
    )
    assert warning.message.endswith("; remove `guessed: true` once you have checked them")
    assert found.ok
    (same,) = Dataset.from_manifest(folder / "labels.csv", file).check().warnings
    assert same == warning
    guessed = found.plan.stages
    file.write_text(text)
    assert look(folder).warnings == []
    assert look(folder).plan.stages == guessed


def test_problems_of_all_three_files_are_found_at_once(folder):
    change(folder / "experiment.yaml", "seed: 0", "seed: minus\nmetod: ce")
    change(folder / "experiment.yaml", "steps: 200", "stesp: 200")
    change(folder / "ontology.yaml", "{from: round}    #", "{from: rond}    #")
    change(folder / "ontology.yaml", "{renamed: box}", "{renamed: bax}")
    change(folder / "labels.csv", "v1-train-square-00.png,box,v1,train", "v1-train-square-00.png,box,v1,trian")
    (folder / "images" / "v1-train-circle-03.png").write_bytes(b"no image")
    (folder / "images" / "v1-train-circle-04.png").unlink()
    text = messages(look(folder).problems)
    for part in (
        "experiment.yaml:7: seed: ",
        "metod: is not a setting; did you mean 'method'",
        "training.batches.stesp: is not a setting; did you mean 'steps'",
        "ontology.yaml:9: versions[1].classes.circle.from: 'rond' is not a class of v1; did you mean 'round'",
        "'bax' is not a class of v1; did you mean 'box'",
        "'trian' is not a split; did you mean 'train'",
        "v1-train-circle-03.png: is not an image",
        "v1-train-circle-04.png: no such file",
    ):
        assert part in text
    assert len(text.splitlines()) == 8  # and nothing is made up


def test_labels_are_not_blamed_for_an_ontology_that_cannot_be_read(folder):
    (folder / "ontology.yaml").write_text("a: b: c\n")
    change(folder / "labels.csv", "v1-train-square-00.png", "v1-train-square-99.png")
    (row,) = (finding for finding in look(folder).problems if finding.about == "manifest")
    assert "no such file" in row.message


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("experiment.yaml", "a: b: c\n", "experiment.yaml:1: not valid YAML"),
        ("experiment.yaml", "benchmark: cub-leco\n", "has no data of your own"),
        ("experiment.yaml", "data: {manifest: labels.csv}\n", "data.ontology: is missing"),
        ("experiment.yaml", "data: {manifest: 1, ontology: 2}\n", "2: unknown ontology format ''"),
        ("labels.csv", "image,label\n", "no column 'version'"),
        ("labels.csv", "", "neither column 'image' nor 'features'"),
        ("ontology.yaml", "versions: []\n", "`versions` must be a list of versions"),
    ],
)
def test_what_cannot_be_read_is_one_problem_among_others(name, content, message, folder):
    (folder / name).write_text(content)
    found = look(folder)
    assert message in messages(found.problems)
    assert all(finding.message.count("\n") == 0 for finding in found.problems)


def test_equal_rows_are_one_finding_and_labels_without_a_future_are_named(folder):
    change(folder / "ontology.yaml", "      square: {renamed: box}   # the same class under another name\n", "")
    found = look(folder)
    (impossible,) = (f for f in found.problems if "impossible" in f.message)
    assert impossible.count == 24
    assert "no class of v2 comes from it" in impossible.message
    (unknown,) = (f for f in found.problems if "'square' is not a class of v2" in f.message)
    assert unknown.count == 18


def test_where_all_rows_have_the_same_problem_it_is_reported_once(folder):
    change(folder / "labels.csv", "images/", "nowhere/")
    (same, nothing) = look(folder).problems
    assert same.count == 186
    assert "(and 185 more such rows)" in same.message
    assert nothing.message.endswith("no rows are left")


def test_a_leak_is_a_problem_by_path_and_by_bytes(folder):
    images = folder / "images"
    (images / "v2-train-star-00.png").write_bytes((images / "v2-test-star-00.png").read_bytes())
    text = (folder / "labels.csv").read_text()
    (folder / "labels.csv").write_text(text + "images/v2-test-ring-00.png,round,v1,train\n")
    text = messages(look(folder).problems)
    assert "is byte-identical to images/v2-test-star-00.png, which is in test" in text
    assert "is in split train here, but in test in row" in text


def without(folder: Path, *parts: str) -> None:
    lines = (folder / "labels.csv").read_text().splitlines(keepends=True)
    (folder / "labels.csv").write_text("".join(line for line in lines if not any(part in line for part in parts)))


def test_classes_with_too_few_labels_or_none_are_warnings(folder):
    without(folder, *(f"v2-train-ring-0{n}" for n in range(7)))
    found = look(folder)
    assert found.problems == []
    assert "1 class of v2 with fewer than 5 training labels: 'ring' (3)" in messages(found.warnings)
    without(folder, "v2-train-ring", "v2-train-square")
    found = look(folder)
    assert found.problems == []
    assert "1 class of v2 without any training label: 'ring'" in messages(found.warnings)
    assert "1 class of v2 with older labels only: 'square' (24)" in messages(found.warnings)
    change(folder / "experiment.yaml", "method: auto ", "method: ce ")
    assert "2 classes of v2 without any training label" in messages(look(folder).warnings)


def test_a_model_that_cannot_be_tested_is_a_warning(folder):
    without(folder, "v2-test-star")
    assert "1 class of v2 without a test label" in messages(look(folder).warnings)
    without(folder, "test")
    found = look(folder)
    assert "no test sample is labelled in v2" in messages(found.warnings)
    assert found.problems == []


def test_an_unsuitable_backbone_is_found_with_and_without_data(folder):
    assert "training.network.backbone: 'resnet81' is not a backbone" in messages(
        look(folder, network__backbone="resnet81").problems
    )
    assert "training.network.backbone: vit_tiny_patch16_224 cannot take" in messages(
        look(folder, network__backbone="vit_tiny_patch16_224").problems
    )
    (folder / "ontology.yaml").unlink()
    text = messages(look(folder, network__backbone="resnet81").problems)
    assert "training.network.backbone: 'resnet81' is not a backbone" in text
    assert "ontology.yaml: no such file" in text


def test_of_many_images_some_are_decoded(folder):
    (folder / "images" / "v2-train-star-04.png").write_bytes(b"no image")
    assert "is not an image" in messages(look(folder, most=None).problems)
    found = look(folder, most=10)
    assert "10 of 186 images were decoded" in messages(found.notes)


def test_features_and_masks_are_checked_too(tmp_path):
    np.save(tmp_path / "x.npy", np.random.default_rng(0).normal(size=(40, 6)))
    (tmp_path / "o.yaml").write_text(
        "versions:\n  - {name: v1, classes: [a]}\n  - {name: v2, classes: {b: {from: a}, c: {from: a}}}\n"
    )
    rows = [f"x.npy#{n},{'a,v1' if n < 20 else 'bc'[n % 2] + ',v2'},{'test' if n > 34 else 'train'}" for n in range(40)]
    (tmp_path / "features.csv").write_text("\n".join(["features,label,version,split", *rows]) + "\n")
    (tmp_path / "experiment.yaml").write_text("data: {manifest: features.csv, ontology: o.yaml}\n")
    found = look(tmp_path)
    assert (found.problems, found.warnings) == ([], [])
    assert found.experiment.training.network.backbone == "linear"
    draw(tmp_path, *(f"{n}.png" for n in range(8)))
    from PIL import Image

    rows = []
    for n in range(8):
        Image.fromarray(np.full((12, 12), n % 2 if n > 2 else 0, dtype=np.uint8)).save(tmp_path / f"m{n}.png")
        rows.append(f"{n}.png,m{n}.png,{'v1' if n < 3 else 'v2'}")
    (tmp_path / "masks.csv").write_text("\n".join(["image,mask,version", *rows]) + "\n")
    (tmp_path / "experiment.yaml").write_text("data: {manifest: masks.csv, ontology: o.yaml, image_size: 32}\n")
    found = look(tmp_path)
    assert found.problems == []
    assert (found.experiment.training.network.backbone, found.experiment.training.segmentation.crop) == ("tiny", 32)
    assert estimate(found.plan, found.periods, found.reading, "cpu").seconds > 0
    (tmp_path / "o.yaml").unlink()
    assert [finding.about for finding in look(tmp_path).problems] == ["ontology"]


def segmented(folder: Path, masks: dict[str, tuple[str, str, list[int]]]) -> None:
    """Images with masks of twelve pixels: version, split and classes of each."""
    from PIL import Image

    draw(folder, *(f"{name}.png" for name in masks))
    for name, (_, _, classes) in masks.items():
        pixels = np.resize(np.array(classes, dtype=np.uint8), (12, 12))
        Image.fromarray(pixels).save(folder / f"{name}-mask.png")
    rows = [f"{name}.png,{name}-mask.png,{version},{split}" for name, (version, split, _) in masks.items()]
    (folder / "labels.csv").write_text("\n".join(["image,mask,version,split", *rows]) + "\n")
    (folder / "o.yaml").write_text(
        "versions:\n  - {name: v1, classes: [a, z]}\n"
        "  - {name: v2, classes: {b: {from: a}, c: {from: a}, d: {from: a}, z: }}\n"
    )
    (folder / "experiment.yaml").write_text("data: {manifest: labels.csv, ontology: o.yaml, image_size: 32}\n")


def test_what_is_in_masks_is_counted_in_images_and_pixels(tmp_path, monkeypatch):
    masks = {f"old{n}": ("v1", "train", [0, 1]) for n in range(3)}
    masks |= {f"new{n}": ("v2", "train", [0, 0, 255, 1] if n < 4 else [0]) for n in range(10)}
    masks |= {"test": ("v2", "test", [0, 1, 2, 255])}
    segmented(tmp_path, masks)
    read: list[Path] = []
    monkeypatch.setattr(contents, "read_mask", lambda path: read.append(path) or read_mask(path))
    found = look(tmp_path)
    assert sorted(path.name for path in read) == sorted(f"{name}-mask.png" for name in masks)  # each of them once
    assert found.masks.images == {
        "v1": {"train": [3, 3], "val": [0, 0], "test": [0, 0]},
        "v2": {"train": [10, 4, 0, 0], "val": [0, 0, 0, 0], "test": [1, 1, 1, 0]},
    }
    assert found.masks.pixels["v2"] == {
        "train": [4 * 72 + 6 * 144, 4 * 36, 0, 0],
        "val": [0, 0, 0, 0],
        "test": [36, 36, 36, 0],
    }
    assert "1 class of v2 without any training image that shows it: 'd'; label some" in messages(found.warnings)
    text = messages(found.warnings)
    assert "1 class of v2 with fewer than 5 training images that show it: 'c' (4)" in text
    assert "1 class of v2 with older labels only: 'z' (3)" in text
    assert "1 class of v2 without a test image that shows it" in text


def test_if_only_some_masks_are_read_there_are_only_warnings(tmp_path):
    segmented(tmp_path, {f"{n:02}": ("v2", "train" if n < 8 else "test", [0, 1, 3] if n else [2]) for n in range(10)})
    found = look(tmp_path, most=5)
    assert (found.masks.read, found.masks.total) == (5, 10)
    assert found.problems == []
    assert "(in 5 of 10 masks; --every-file reads all)" in messages(found.warnings)


@pytest.fixture(scope="module")
def vectors(tmp_path_factory) -> Path:
    """Feature vectors with labels of two versions, and the models of both."""
    folder = tmp_path_factory.mktemp("vectors")
    np.save(folder / "x.npy", np.random.default_rng(0).normal(size=(40, 6)))
    (folder / "o.yaml").write_text(
        "versions:\n  - {name: v1, classes: [a]}\n  - {name: v2, classes: {b: {from: a}, c: {from: a}}}\n"
    )
    rows = [f"x.npy#{n},{'a,v1' if n < 20 else 'bc'[n % 2] + ',v2'},{'test' if n > 30 else 'train'}" for n in range(40)]
    (folder / "features.csv").write_text("\n".join(["features,label,version,split", *rows]) + "\n")
    (folder / "experiment.yaml").write_text(
        "data: {manifest: features.csv, ontology: o.yaml}\nmethod: lpl\n"
        "training: {batches: {steps: 2, evaluate_every: 2}}\n"
    )
    train_file(folder / "experiment.yaml")
    return folder


def starting(folder: Path, start: Path | None = None, **settings: str):
    changed = {f"training.{key.replace('__', '.')}": value for key, value in settings.items()}
    return check(str(folder / "experiment.yaml"), changed, start=start)


def test_a_start_that_fits_leaves_later_periods_to_train(vectors):
    found = starting(vectors, vectors / "bundle-v1")
    assert found.problems == []
    assert {row["version"] for row in planned(found)} == {"v2"}
    assert "is already a model of v2" in messages(starting(vectors, vectors / "bundle-v2").problems)


def test_all_problems_with_a_start_are_reported_with_the_rest(vectors, tmp_path):
    folder = Path(shutil.copytree(vectors, tmp_path / "own"))
    (folder / "experiment.yaml").write_text((folder / "experiment.yaml").read_text() + "start: nowhere\n")
    change(folder / "features.csv", "x.npy#3,a,v1", "x.npy#3,a,v9")
    text = messages(starting(folder).problems)
    assert "start: " in text
    assert "nowhere: no such bundle" in text
    assert "'v9' is not a version" in text
    change(folder / "experiment.yaml", "nowhere", "bundle-v1")
    assert "nowhere" not in messages(starting(folder).problems)
    change(folder / "o.yaml", "[a]", "[a, z]")
    text = messages(starting(folder, network__backbone="mlp").problems)
    assert "the backbone of this model is linear, but that of the experiment is mlp" in text
    assert "match the ontology of" in text
    assert "'v9' is not a version" in text
    np.save(folder / "x.npy", np.random.default_rng(0).normal(size=(40, 7)))
    assert "the input shape of this model is (6,), but that of the experiment is (7,)" in messages(
        starting(folder).problems
    )
    (folder / "bundle-v1" / "model.safetensors").write_bytes(b"x" * 100)
    assert "model.safetensors: changed since the bundle was written" in messages(starting(folder).problems)
    (folder / "o.yaml").unlink()
    assert "model.safetensors: changed since the bundle was written" in messages(starting(folder).problems)


def test_a_start_of_another_kind_is_named(vectors, folder):
    text = messages(check(str(folder / "experiment.yaml"), {}, start=vectors / "bundle-v1").problems)
    assert "the task of this model is features, but that of the experiment is classification" in text


def test_every_stage_gets_its_time(folder):
    found = look(folder, network__backbone="mlp", batches__evaluate_every="50")
    paces = {"ce": Pace(1.0, 0.1), "lpl+st-hard/cond": Pace(2.0, 0.2)}
    made = add_up(found.plan, found.periods, found.reading, paces)
    first, teacher, student = made.stages.values()
    assert first == pytest.approx(200 * 1.0 + 0.1 * 19 * (1 + 4))  # nothing of v1 is tested
    assert teacher == pytest.approx(200 * 1.0 + 0.1 * (10 * (1 + 4) + 40))
    assert student == pytest.approx(200 * 2.0 + 0.2 * (10 * (1 + 4) + 40))
    assert made.seconds == pytest.approx(first + teacher + student + 2 * found.reading.all)


def test_steps_are_measured_without_changing_anything(folder):
    before = {path: path.stat().st_mtime_ns for path in folder.rglob("*")}
    found = look(folder, network__backbone="mlp")
    made = estimate(found.plan, found.periods, found.reading, "cpu")
    assert all(seconds > 0 for seconds in made.stages.values())
    assert {path: path.stat().st_mtime_ns for path in folder.rglob("*")} == before
    assert json.dumps(planned(found))
