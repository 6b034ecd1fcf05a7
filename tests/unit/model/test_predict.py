"""`leco predict`, in this process: images, vectors and masks."""

import csv
import io
import json
import os
import shutil
import tracemalloc
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
import torch
from PIL import Image
from PIL.PngImagePlugin import PngInfo
from pyarrow import parquet
from tests.commands import leco, leco_processes
from tests.trainings import model_of
from typer.testing import CliRunner, Result

from leco import LecoError
from leco.cli.main import app
from leco.data.images import middle_square
from leco.data.inputs import image_batches, image_paths, listed_files
from leco.data.masks import read_mask
from leco.data.views import centre_crop_resize
from leco.evaluation import predict_at
from leco.model.masks import encode, is_predicted, label_map
from leco.ontology.version import Version


def predict(*arguments: object) -> Result:
    return CliRunner().invoke(app, ["predict", *map(str, arguments)])


def rows(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text)))


@pytest.mark.parametrize("version", ["v1", "v2"])
def test_files_are_predicted_as_the_samples_they_are(trained, new, pictures, version):
    result = predict(new.folder, pictures / "images", "--version", version, "--top", 2)
    assert result.exit_code == 0, result.output
    found = {Path(row["input"]).stem: row for row in rows(result.stdout)}
    assert len(found) == 597
    probs = model_of(new).predictor.probs(trained.periods.test.inputs.read(torch.arange(597)))
    answers = predict_at(probs, new.ontology.transition("v2", version)).tolist()
    for index, answer in enumerate(answers):
        row = found[str(1_200 + index)]
        assert row["version"] == version
        assert row["label"] == new.ontology[version].handle(answer)
        assert float(row["probability"]) >= float(row["probability_2"])


def test_files_folders_patterns_and_manifests_name_the_same(new, pictures, tmp_path):
    one = pictures / "images" / "6" / "1203.png"
    by_file = rows(predict(new.folder, one).stdout)
    by_pattern = rows(predict(new.folder, pictures / "images" / "*" / "1203.png").stdout)
    below = rows(predict(new.folder, pictures / "images" / "**" / "1203.png").stdout)
    assert by_file == by_pattern == below
    assert by_file[0]["input"] == str(one)
    assert len(rows(predict(new.folder, pictures / "labels.csv").stdout)) == 597
    output = tmp_path / "answers.jsonl"
    assert predict(new.folder, pictures / "images", "-o", output).exit_code == 0
    lines = [json.loads(line) for line in output.read_text().splitlines()]
    assert lines[0].keys() == {"input", "version", "answers"}
    assert len(lines) == 597


def test_batches_do_not_change_what_is_answered(new, pictures):
    whole, single = (predict(new.folder, pictures / "images" / "0", "--batch-size", size) for size in (64, 1))
    assert [(row["input"], row["label"]) for row in rows(whole.stdout)] == [
        (row["input"], row["label"]) for row in rows(single.stdout)
    ]


def test_what_cannot_be_read_is_named_and_the_rest_goes_on(new, pictures, tmp_path):
    good = pictures / "images" / "6" / "1203.png"
    (tmp_path / "broken.png").write_bytes(good.read_bytes()[:50])
    (tmp_path / "text.png").write_text("no image")
    (tmp_path / "empty").mkdir()
    output = tmp_path / "answers.csv"
    result = predict(new.folder, tmp_path, good, tmp_path / "nowhere.png", tmp_path / "empty", "-o", output)
    assert isinstance(result.exception, LecoError)  # which the command turns into exit code 2
    assert str(result.exception) == "4 of 5 inputs could not be read and are left out; they are listed above"
    told = result.stderr.splitlines()
    assert [line.split(": ")[0] for line in told] == [
        str(tmp_path / name) for name in ("broken.png", "text.png", "nowhere.png", "empty")
    ]
    assert [row["input"] for row in rows(output.read_text())] == [str(good)]


def test_nothing_is_written_where_nothing_could_be_read(new, tmp_path):
    result = predict(new.folder, tmp_path / "nowhere.png", "-o", tmp_path / "answers.csv")
    assert "none of the inputs could be read" in str(result.exception)
    assert list(tmp_path.iterdir()) == []


def test_files_are_read_a_batch_at_a_time(new, pictures):
    stream = image_batches([str(pictures / "images")] * 1_000, new.description.shape, 8, size=10)  # 597,000 images
    first, second = next(stream), next(stream)
    assert len(first.names) == len(second.names) == 10
    assert first.inputs.shape == (10, 1, 8, 8)
    stream.close()


def test_backing_off_answers_as_finely_as_is_sure(new, pictures):
    result = predict(new.folder, pictures / "images", "--back-off", 0.8)
    assert result.exit_code == 0, result.output
    found = rows(result.stdout)
    assert {row["version"] for row in found} == {"v1", "v2"}
    assert {row["reached"] for row in found} == {"yes", "no"}
    for row in found:
        assert (float(row["probability"]) >= 0.8) == (row["reached"] == "yes")
        assert row["reached"] == "yes" or row["version"] == "v1"  # nothing is brand-new, so the coarsest is surest
        if row["n"]:  # of at most 25 validation samples
            hits = float(row["accuracy"]) * int(row["n"])
            assert 0 < int(row["n"]) <= 25
            assert hits == pytest.approx(round(hits), abs=0.0025)
    assert any(row["accuracy"] for row in found)
    fine = {row["input"]: row for row in rows(predict(new.folder, pictures / "images").stdout)}
    assert all(row["label"] == fine[row["input"]]["label"] for row in found if row["version"] == "v2")


WRONG = {
    "another ending": (["-o", "answers.xlsx"], "answers.xlsx: its suffix is not one of csv, jsonl"),
    "another format": (["--format", "xlsx"], "--format: 'xlsx' is not one of csv, jsonl"),
    "another version": (["--version", "v3"], "'v3' is not a version of digits"),
    "no version": (["--version", ""], "'' is not a version of digits"),
    "a root that is not there": (["--root", "nowhere"], "nowhere: no such folder"),
    "two versions at once": (["--back-off", "0.9", "--version", "v1"], "--back-off chooses the version"),
}


@pytest.mark.parametrize("case", WRONG)
def test_a_wrong_call_is_refused(case, new, pictures):
    arguments, message = WRONG[case]
    assert message in str(predict(new.folder, pictures / "images", *arguments).exception)


def test_vectors_of_every_kind_of_file_are_predicted(vectors, tmp_path):
    bundle, _ = vectors
    assert (bundle.description.task, bundle.description.shape) == ("features", (64,))
    table = np.load(bundle.folder.parent / "digits.npy")
    np.savez(tmp_path / "some.npz", a=table[:600], b=table[0])
    np.savetxt(
        tmp_path / "some.csv", table[:3], delimiter=",", header=",".join(f"x{n}" for n in range(64)), comments=""
    )
    np.save(tmp_path / "one.npy", table[7])
    whole = rows(predict(bundle.folder, bundle.folder.parent / "digits.npy").stdout)
    probs = model_of(bundle).predictor.probs(torch.from_numpy(table))
    assert [row["label"] for row in whole] == [str(index) for index in probs.argmax(dim=1).tolist()]
    assert whole[299]["input"].endswith("digits.npy#299")
    found = rows(predict(bundle.folder, tmp_path / "some.npz", tmp_path / "some.csv", tmp_path / "one.npy").stdout)
    expected = [*whole, whole[0], *whole[:3], whole[7]]
    assert [row["label"] for row in found] == [row["label"] for row in expected]
    assert found[300]["input"].endswith("some.npz/b")
    listed = rows(predict(bundle.folder, bundle.folder.parent / "labels.csv").stdout)
    assert [row["label"] for row in listed] == [row["label"] for row in whole]
    assert listed[2]["input"] == "digits.npy#2"


def test_vectors_that_do_not_fit_are_named(vectors, tmp_path):
    bundle, _ = vectors
    table = np.load(bundle.folder.parent / "digits.npy")[:3]
    table[1, 5] = np.nan
    np.save(tmp_path / "nan.npy", table)
    np.save(tmp_path / "narrow.npy", table[:, :5])
    np.save(tmp_path / "objects.npy", np.array([{"a": 1}], dtype=object), allow_pickle=True)
    (tmp_path / "text.csv").write_text("1,2,x\n")
    (tmp_path / "labels.csv").write_text("features\n../secret.npy\nnan.npy#9\nnan.npy#0\n")
    result = predict(bundle.folder, *(tmp_path / f"{name}.npy" for name in ("nan", "narrow", "objects")))
    assert [row["input"] for row in rows(result.stdout)] == [f"{tmp_path / 'nan.npy'}#{n}" for n in (0, 2)]
    told = result.stderr.splitlines()
    assert told[0].endswith("nan.npy#1: holds NaN or infinity")
    assert told[1].endswith("narrow.npy: vectors have 5 values, but the model takes 64")
    assert "contains Python objects" in told[2]
    assert "row 1 has 3 values, but the model takes 64" in predict(bundle.folder, tmp_path / "text.csv").stderr
    listed = predict(bundle.folder, tmp_path / "labels.csv")
    assert [row["input"] for row in rows(listed.stdout)] == ["nan.npy#0"]
    assert "../secret.npy: is outside the root folder" in listed.stderr
    assert "row 9 is out of range" in listed.stderr


def test_a_bad_row_does_not_take_the_others_with_it(vectors, tmp_path):
    bundle, _ = vectors
    table = np.load(bundle.folder.parent / "digits.npy")[:3]
    good = [",".join(map(str, row.tolist())) for row in table]
    unclosed = good[0].replace(",", ',"x"y,', 1)
    lines = ["1,2,3", good[0], unclosed, good[1] + ",7", good[1].replace(",", ",é", 1), good[2]]
    (tmp_path / "some.csv").write_bytes("\n".join(lines).encode("latin-1"))
    result = predict(bundle.folder, tmp_path / "some.csv")
    found = [row["input"] for row in rows(result.stdout)]
    assert found == [f"{tmp_path / 'some.csv'}#{number}" for number in (1, 5)]
    told = result.stderr.splitlines()
    assert "row 1 has 3 values, but the model takes 64" in told[0]
    assert ":3: not valid CSV" in told[1]
    assert "row 4 has 65 values" in told[2]
    assert "row 5 is not valid UTF-8" in told[3]
    assert "4 of 6 inputs" in str(result.exception)


def test_a_vector_or_array_of_another_length_does_not_take_the_others_with_it(vectors, tmp_path):
    bundle, _ = vectors
    table = np.load(bundle.folder.parent / "digits.npy")[:3]
    np.savez(tmp_path / "some.npz", a=table[:, :5], b=table)
    result = predict(bundle.folder, tmp_path / "some.npz")
    assert len(rows(result.stdout)) == 3
    assert "some.npz/a: vectors have 5 values" in result.stderr
    np.save(tmp_path / "good.npy", table)
    np.save(tmp_path / "narrow.npy", table[:, :5])
    (tmp_path / "labels.csv").write_text("features\nnarrow.npy#0\nnarrow.npy#1\ngood.npy#2\n")
    result = predict(bundle.folder, tmp_path / "labels.csv")
    assert [row["input"] for row in rows(result.stdout)] == ["good.npy#2"]
    assert "narrow.npy#1: has 5 values, but the model takes 64" in result.stderr


def test_paths_of_a_manifest_may_be_relative_to_another_folder(new, vectors, pictures, tmp_path):
    (tmp_path / "labels.csv").write_text("image\n6/1203.png\n")
    found = rows(predict(new.folder, tmp_path / "labels.csv", "--root", pictures / "images").stdout)
    assert found == rows(predict(new.folder, pictures / "images" / "6" / "1203.png").stdout)
    assert "6/1203.png: no such file" in predict(new.folder, tmp_path / "labels.csv").stderr
    bundle, _ = vectors
    (tmp_path / "vectors.csv").write_text("features\ndigits.npy#2\n")
    found = rows(predict(bundle.folder, tmp_path / "vectors.csv", "--root", bundle.folder.parent).stdout)
    assert [row["input"] for row in found] == ["digits.npy#2"]


@pytest.mark.slow
@pytest.mark.parametrize("number", [2, 4])
def test_processes_take_batches_in_turn_and_one_writes_what_one_alone_would(number, new, vectors, pictures, tmp_path):
    """Of 597 images and a broken file, in 12 batches, each of four processes reads three."""
    (tmp_path / "broken.png").write_text("no image")
    alone, shared = tmp_path / "alone.csv", tmp_path / "shared.csv"
    arguments = (new.folder, pictures / "images", tmp_path / "broken.png", "--batch-size", 50, "--top", 2, "-o")
    assert predict(*arguments, alone).exit_code == 1
    result = leco_processes(number, "predict", *arguments, shared)
    assert shared.read_bytes() == alone.read_bytes()
    assert result.stderr.count("broken.png: ") == 1
    assert "1 of 598 inputs could not be read" in result.stderr
    values = vectors[0].folder.parent / "digits.npy"
    result = leco_processes(number, "predict", vectors[0].folder, values)
    assert result.returncode == 0, result.stderr
    assert result.stdout == predict(vectors[0].folder, values).stdout


def test_a_share_of_the_inputs_is_every_second_batch(new, pictures):
    whole, *shares = (
        list(model_of(new).answers(str(pictures / "images"), batch_size=100, share=share))
        for share in ((0, 1), (0, 2), (1, 2))
    )
    assert shares == [whole[0::2], whole[1::2]]


@pytest.mark.slow
def test_processes_take_images_in_turn_to_write_masks(segmenter, tmp_path):
    bundle, _ = segmenter
    source = tmp_path / "images"
    source.mkdir()
    for number in range(5):
        (source / f"{number}.png").write_bytes((bundle.folder.parent / "1.png").read_bytes())
    assert predict(bundle.folder, source, "-o", tmp_path / "alone").exit_code == 0
    result = leco_processes(2, "predict", bundle.folder, source, "-o", tmp_path / "shared")
    assert result.returncode == 0, result.stderr
    masks = {path.name: path.read_bytes() for path in (tmp_path / "alone").iterdir()}
    assert {path.name: path.read_bytes() for path in (tmp_path / "shared").iterdir()} == masks
    assert len(masks) == 5
    assert list(model_of(bundle).masks(str(source), tmp_path / "second", share=(1, 2))) == [None, None]
    assert sorted(path.name for path in (tmp_path / "second").iterdir()) == ["1.png", "3.png"]


def test_masks_have_the_sizes_and_names_of_their_images(segmenter, tmp_path):
    bundle, _ = segmenter
    source = tmp_path / "images"
    (source / "street").mkdir(parents=True)
    for name in ("street/1.png", "2.png"):
        (source / name).write_bytes((bundle.folder.parent / Path(name).name).read_bytes())
    for version, number in (("v2", 3), ("v1", 2)):
        folder = tmp_path / version
        result = predict(bundle.folder, source, "-o", folder, "--version", version)
        assert result.exit_code == 0, result.exception
        assert sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*.png")) == [
            "2.png",
            "street/1.png",
        ]
        mask = read_mask(folder / "street" / "1.png")
        assert mask.shape == (24, 32)
        assert set(np.unique(mask).tolist()) <= set(range(number))
        with Image.open(folder / "2.png") as image:
            assert image.mode == "P"
    probs = model_of(bundle).predictor.probs(torch.zeros(1, 3, 24, 32, dtype=torch.uint8))
    same = label_map(probs, bundle.ontology, "v1", 24, 32)
    assert torch.equal(same, predict_at(probs, bundle.ontology.transition("v2", "v1"))[0])


def test_masks_never_replace_images_or_each_other(segmenter, tmp_path):
    bundle, _ = segmenter
    image = (bundle.folder.parent / "1.png").read_bytes()
    for name in ("a/1.png", "b/1.png"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(image)
    assert "masks could replace them" in str(predict(bundle.folder, tmp_path / "a", "-o", tmp_path / "a").exception)
    assert (tmp_path / "a" / "1.png").read_bytes() == image
    before = {path: path.read_bytes() for path in tmp_path.rglob("*.png")}
    below = predict(bundle.folder, tmp_path, "-o", tmp_path / "a")  # the mask of x.png there could be a/x.png
    assert "masks could replace them" in str(below.exception)
    assert "masks could replace them" in str(predict(bundle.folder, tmp_path, "-o", tmp_path / "new").exception)
    named = predict(
        bundle.folder, tmp_path / "a" / "1.png", tmp_path / "b" / "*.png", "-o", tmp_path / "b" / ".." / "a"
    )
    assert "masks could replace them" in str(named.exception)
    (tmp_path / "c" / "a").mkdir(parents=True)
    (tmp_path / "c" / "a" / "1.png").write_bytes(image)
    other = predict(bundle.folder, tmp_path / "c", tmp_path / "a", "-o", tmp_path)  # of c/a/1.png: a/1.png
    assert "is one of the images" in str(other.exception)
    assert {path: path.read_bytes() for path in before} == before
    assert not (tmp_path / "1.png").exists()
    result = predict(bundle.folder, tmp_path / "a" / "1.png", tmp_path / "b" / "1.png", "-o", tmp_path / "masks")
    assert "its mask 1.png would replace that of" in result.stderr
    assert "1 of 2 inputs" in str(result.exception)
    assert "pass -o FOLDER" in str(predict(bundle.folder, tmp_path / "a").exception)


def test_masks_are_not_written_through_links(segmenter, tmp_path):
    bundle, _ = segmenter
    for name in ("images/1.png", "images/sub/2.png", "images/far/3.png", "precious.png"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes((bundle.folder.parent / "1.png").read_bytes())
    (tmp_path / "masks").mkdir()
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "masks" / "1.png").symlink_to(tmp_path / "precious.png")
    (tmp_path / "masks" / "sub").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "masks" / "far").symlink_to(tmp_path / "nowhere")
    before = (tmp_path / "precious.png").read_bytes()
    result = predict(bundle.folder, tmp_path / "images", "-o", tmp_path / "masks")
    assert result.stderr.count("is, or is below, a link, and links are not followed") == 3
    assert (tmp_path / "precious.png").read_bytes() == before
    assert list((tmp_path / "elsewhere").iterdir()) == []
    assert not (tmp_path / "nowhere").exists()
    (tmp_path / "alias").symlink_to(tmp_path / "elsewhere")  # a folder that was named is another matter
    assert predict(bundle.folder, tmp_path / "images" / "1.png", "-o", tmp_path / "alias").exit_code == 0
    assert predict(bundle.folder, tmp_path / "images" / "1.png", "-o", tmp_path / "alias").exit_code == 0  # anew


def test_annotated_masks_are_replaced_on_request_only_and_predicted_ones_until_they_are_changed(segmenter, tmp_path):
    bundle, _ = segmenter
    image, folder = bundle.folder.parent / "1.png", tmp_path / "masks"
    folder.mkdir()
    Image.new("L", (32, 24), 1).save(folder / "1.png")
    (folder / "notes.txt").write_text("mine")
    drawn = (folder / "1.png").read_bytes()
    refused = predict(bundle.folder, image, "-o", folder)
    assert "masks/1.png: was not written by leco, and a mask would replace it" in str(refused.exception)
    assert (folder / "1.png").read_bytes() == drawn
    assert predict(bundle.folder, image, "-o", folder, "--overwrite").exit_code == 0
    predicted = (folder / "1.png").read_bytes()
    assert predicted != drawn
    assert predict(bundle.folder, image, "-o", folder, "--version", "v1").exit_code == 0  # leco's own
    assert predict(bundle.folder, image, "-o", folder).exit_code == 0
    assert (folder / "1.png").read_bytes() == predicted
    with Image.open(folder / "1.png") as mask:
        notes = PngInfo()
        notes.add_text("leco mask", mask.info["leco mask"])
        mask.putpixel((0, 0), 1 - mask.getpixel((0, 0)))
        mask.save(folder / "1.png", pnginfo=notes)  # as an editor does that keeps what it does not know
    assert "was not written by leco" in str(predict(bundle.folder, image, "-o", folder).exception)
    assert (folder / "notes.txt").read_text() == "mine"


@pytest.mark.parametrize("classes", [3, 300])
def test_a_predicted_mask_is_recognised_with_a_palette_and_with_sixteen_bits(classes, tmp_path):
    version = Version("v", tuple(map(str, range(classes))))
    (tmp_path / "a.png").write_bytes(encode(np.full((4, 5), classes - 1), version))
    assert is_predicted(tmp_path / "a.png")
    (tmp_path / "a.png").write_bytes((tmp_path / "a.png").read_bytes()[:-30])
    assert not is_predicted(tmp_path / "a.png")


def test_a_mask_of_an_image_of_a_manifest_replaces_none_of_them(segmenter, tmp_path):
    bundle, _ = segmenter
    for name in ("a/1.png", "masks/a/1.png"):
        (tmp_path / name).parent.mkdir(parents=True)
        (tmp_path / name).write_bytes((bundle.folder.parent / "1.png").read_bytes())
    (tmp_path / "labels.csv").write_text("image\na/1.png\nmasks/a/1.png\n")
    result = predict(bundle.folder, tmp_path / "labels.csv", "-o", tmp_path / "masks")
    assert "masks/a/1.png: is one of the images, and a mask would replace it" in str(result.exception)


def test_many_classes_need_masks_of_sixteen_bits():
    from leco.model.masks import encode
    from leco.ontology.version import Version

    version = Version("v1", tuple(f"c{n}" for n in range(300)))
    labels = np.array([[0, 299], [-1, 256]])
    with Image.open(io.BytesIO(encode(labels, version))) as image:
        assert np.asarray(image).tolist() == [[0, 299], [65_535, 256]]


def test_where_nothing_has_a_name_a_mask_says_so():
    probs = torch.tensor([0.2, 0.2, 0.6]).view(1, 3, 1, 1).expand(1, 3, 2, 2)
    from leco import Ontology

    versions = [{"name": "v1", "classes": ["a", "b"]}, {"name": "v2", "classes": ["a", "b", "new"]}]
    ontology = Ontology.from_dict({"versions": versions})
    assert label_map(probs, ontology, "v1", 3, 3).tolist() == [[-1] * 3] * 3
    assert label_map(probs, ontology, "v2", 3, 3).tolist() == [[2] * 3] * 3


def test_the_middle_is_cut_out_as_the_view_of_evaluation_does(tmp_path):
    pixels = np.random.default_rng(0).integers(0, 256, (40, 50, 3)).astype(np.uint8)
    Image.fromarray(pixels).save(tmp_path / "a.png")
    (batch,) = image_batches([str(tmp_path / "a.png")], (3, 28, 28), 32, size=1)
    expected = centre_crop_resize(middle_square(tmp_path / "a.png", 32)[None], resize=32, size=28)
    assert torch.equal(batch.inputs, expected)


def test_what_is_read_is_never_written_over(new, pictures, tmp_path):
    image = tmp_path / "digit.png"
    image.write_bytes(next((pictures / "images").rglob("*.png")).read_bytes())
    weights = new.folder / "model.safetensors"
    for output, message in ((image, "is one of the inputs"), (weights, "is inside the bundle")):
        before = output.read_bytes()
        result = leco("predict", new.folder, image, "-o", output)
        assert result.returncode == 2
        assert message in result.stderr
        assert output.read_bytes() == before


@pytest.mark.parametrize("kind", ["csv", "jsonl"])
def test_predictions_replace_predictions_but_nothing_else_unless_asked_to(kind, new, pictures, tmp_path):
    output, image = tmp_path / f"out.{kind}", next((pictures / "images").rglob("*.png"))
    output.write_text("my own notes\n")
    command = ["predict", new.folder, image, "-o", output]
    refused = leco(*command)
    assert refused.returncode == 2
    assert f"out.{kind}: was not written by leco; choose another file, or replace it with --overwrite" in refused.stderr
    assert output.read_text() == "my own notes\n"
    assert leco(*command, "--overwrite").returncode == 0
    for options in ([], ["--top", "3"], ["--back-off", "0.5"], []):
        assert leco(*command, *options).returncode == 0
    output.write_text("")  # as `mktemp` makes it
    assert leco(*command).returncode == 0
    output.write_text(output.read_text().replace("probability", "checked by me", 1))
    assert (leco(*command).returncode == 2) == (kind == "csv")


def test_an_answer_replaces_no_vector_and_nothing_that_could_be_an_image(new, vectors, pictures, tmp_path):
    bundle, _ = vectors
    np.savetxt(tmp_path / "some.csv", np.load(bundle.folder.parent / "digits.npy")[:3], delimiter=",")
    (tmp_path / "other.png").write_bytes(b"of somebody")
    for model, given, output in (
        (bundle.folder, tmp_path, tmp_path / "some.csv"),
        (bundle.folder, tmp_path / "*.csv", tmp_path / "some.csv"),
        (new.folder, pictures / "labels.csv", tmp_path / "other.png"),
    ):
        result = leco("predict", model, given, "-o", output)
        assert "is one of the inputs, or could be" in result.stderr
    assert (tmp_path / "other.png").read_bytes() == b"of somebody"
    (tmp_path / "loop.csv").symlink_to("loop.csv")
    assert "Symlink loop" in leco("predict", new.folder, pictures / "labels.csv", "-o", tmp_path / "loop.csv").stderr


def test_nothing_is_printed_before_the_model_was_found_whole(new, pictures, tmp_path):
    folder = Path(shutil.copytree(new.folder, tmp_path / "bundle"))
    (folder / "model.safetensors").write_bytes(b"x" * 100)
    image = next((pictures / "images").rglob("*.png"))
    for model, given in ((folder, image), (new.folder, tmp_path / "nowhere.png")):
        result = leco("predict", model, given, "--format", "csv")
        assert (result.returncode, result.stdout) == (2, "")


def many_rows(path: Path, count: int) -> None:
    """A manifest that names six images again and again."""
    names = [f"images/{index % 7}/{index}.png" for index in range(1_200, 1_206)]
    cells = [names[row % 6] for row in range(count)]
    if path.suffix == ".csv":
        path.write_text("image,label\n" + "".join(f"{cell},zero\n" for cell in cells))
    elif path.suffix == ".jsonl":
        path.write_text("".join(f'{{"image": "{cell}", "label": "zero"}}\n' for cell in cells))
    else:
        parquet.write_table(pa.table({"image": cells, "label": ["zero"] * count}), path, row_group_size=500)


@pytest.mark.parametrize("ending", ["csv", "jsonl", "parquet"])
def test_a_manifest_takes_the_same_memory_however_long_it_is(ending, pictures, tmp_path):
    path = tmp_path / f"labels.{ending}"
    peaks = []
    for count in (100, 5_000, 50_000):  # the first imports what is needed
        many_rows(path, count)
        tracemalloc.start()
        found = list(image_paths([str(path)], pictures))
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
        assert len({given.path for given in found}) == len(found) == 6
    assert peaks[2] < peaks[1] + 200_000  # bytes


@pytest.mark.parametrize("text", ["image\n", "image,label\n"])
def test_a_manifest_without_rows_and_an_input_without_a_name_are_said_to_be_so(text, new, tmp_path):
    (tmp_path / "labels.csv").write_text(text)
    result = leco("predict", new.folder, tmp_path / "labels.csv", "")
    assert result.stderr.splitlines() == [
        f"{tmp_path / 'labels.csv'}: there are no rows",
        "an input is empty; is a shell variable unset?",
        "error: none of the inputs could be read; the 2 problems are listed above",
    ]


def test_names_are_remembered_for_a_while(tmp_path):
    cells = ["a.png", "b.png", "a.png", "c.png", "a.png", "d.png", "e.png", "a.png", ""]
    (tmp_path / "labels.csv").write_text("".join(f"{cell},\n" for cell in ["image", *cells]))
    found = [
        str(problem).split(": ")[1] for problem in listed_files(tmp_path / "labels.csv", "image", None, remembered=2)
    ]
    assert found == ["a.png", "b.png", "c.png", "d.png", "e.png", "a.png", "row 10"]


def test_pipes_are_no_images_and_more_classes_than_there_are_cannot_be_asked_for(new, pictures, tmp_path):
    os.mkfifo(tmp_path / "pipe.png")
    result = leco("predict", new.folder, tmp_path / "pipe.png")
    assert result.returncode == 2
    assert "not a regular file" in result.stderr
    image = next((pictures / "images").rglob("*.png"))
    header = leco("predict", new.folder, image, "--top", 10**8).stdout.splitlines()[0]
    assert header.count("label") == len(new.ontology.newest)


def test_a_file_that_one_of_several_processes_cannot_read_ends_all_with_a_message(new, pictures, tmp_path):
    good = pictures / "images" / "6" / "1203.png"
    for name in ("a.png", "b.png", "c.png"):
        shutil.copy(good, tmp_path / name)
    (tmp_path / "d.png").write_bytes(b"no image")  # in the share of the second process
    rows = "".join(f"{name}.png,6,v2,test\n" for name in "abcd")
    (tmp_path / "labels.csv").write_text(f"image,label,version,split\n{rows}")
    result = leco_processes(2, "evaluate", new.folder, tmp_path / "labels.csv")
    assert result.returncode != 0
    assert "d.png: is not an image" in result.stderr
    assert "[rank" not in result.stderr  # torch's mark of a traceback
