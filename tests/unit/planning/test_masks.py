"""Masks that a newer version needs nobody for, and masks that annotators drew."""

import csv
import io
import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from tests.commands import assert_refused, leco

from leco import Ontology
from leco.data.manifest.manifest import read_manifest
from leco.data.masks import decode_mask


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


CALL = ["ontology", "migrate", "labels.csv", "--ontology", "ontology.yaml", "--to", "v2"]


def test_masks_are_counted_drawn_anew_and_the_rest_is_listed(street, masked):
    before = {path: path.read_bytes() for path in masked.rglob("*.png")}
    told = json.loads(leco(*CALL, "--json", "-o", "labels2.csv", cwd=masked).stdout)
    assert told["pixels"] == {
        **{"kept": 10, "renamed": 20, "merged": 5, "unlabelled": 5},
        **{"split": 15, "removed": 5},
    }
    assert told["kinds"] == {
        **{"kept": 2, "renamed": 2, "merged": 1, "split": 1, "removed": 1, "there already": 2, "unlabelled": 2},
    }
    assert told["questions"] == [
        {"version": "v1", "class": "bus", "images": 1, "choices": ["school-bus", "city-bus"]},
    ]
    assert {left["image"]: left["because"] for left in told["left"]} == {
        "split.png": "bus (split, 75% of the pixels)",
        "gone.png": "fax (removed, 25% of the pixels)",
    }
    assert {path: path.read_bytes() for path in before} == before
    added = rows_of(masked / "labels2.csv")[-1]
    assert added == {"image": "easy.png", "mask": "labels2-masks/old/easy.png", "version": "v2"}
    names = ["sidewalk", "automobile", "special-subject"]
    assert decode_mask(masked / added["mask"])[0].tolist() == [*(street["v2"].index(name) for name in names), -1]
    shown = leco(*CALL, cwd=masked).stdout
    assert "5 images to v2: 1 without an annotator, 2 with one" in shown
    assert "not carried over: split.png: bus (split, 75% of the pixels)" in shown


def test_masks_of_two_versions_that_disagree_are_not_carried_over(street, masked):
    draw(masked, "old/both.png", [[street["v1"].index("sidewalk")] * 4])
    draw(masked, "new/both.png", [[street["v2"].index("special-subject")] * 4])
    told = json.loads(leco(*CALL[:-1], "v3", "--json", cwd=masked).stdout)
    assert {left["image"] for left in told["left"]} >= {"both.png"}
    assert told["kinds"]["contradicting"] == 1


def test_wrong_masks_are_refused_all_at_once_and_files_that_are_read_are_kept(masked):
    draw(masked, "old/easy.png", [[77, 0, 0, 0]])
    (masked / "old" / "split.png").write_bytes(b"no image")
    result = leco(*CALL, "-o", "labels2.csv", cwd=masked)
    assert result.returncode == 2
    assert "2 problems" in result.stderr
    assert not (masked / "labels2.csv").exists()
    draw(masked, "old/easy.png", [[0, 0, 0, 255]])
    (masked / "labels.csv").write_text(
        "image,mask,version\neasy.png,old/easy.png,v1\nboth.png,x-masks/old/easy.png,v2\n"
    )
    draw(masked, "x-masks/old/easy.png", [[0, 0, 0, 0]])
    (masked / "old" / "easy.png").write_bytes((masked / "old" / "gone.png").read_bytes())
    draw(masked, "old/easy.png", [[255, 255, 255, 255]])
    nothing = json.loads(leco(*CALL, "--json", cwd=masked).stdout)
    assert nothing["left"] == [{"image": "easy.png", "because": "nothing in it is a class of any version"}]
    sidewalk = Ontology.load(masked / "ontology.yaml")["v1"].index("sidewalk")
    draw(masked, "old/easy.png", [[sidewalk] * 4])
    assert_refused([*CALL, "-o", "x.csv"], "is one of the files of labels.csv; name another output", masked)


def test_masks_that_annotators_drew_are_looked_at(street, masked):
    # The newest version is v3: bus is one class again.
    v3 = {name: street["v3"].index(name) for name in ("bus", "sidewalk")}
    draw(masked, "drawn/split.png", [[v3["sidewalk"], v3["bus"], v3["bus"], 255]])
    draw(masked, "drawn/easy.png", [[v3["bus"]] * 4])  # it was sidewalk, car and child
    draw(masked, "drawn/gone.png", [[200, 0, 0, 0]])
    draw(masked, "drawn/small.png", [[v3["bus"]] * 2])
    answers = ["split.png,drawn/split.png", "easy.png,drawn/easy.png", "gone.png,drawn/gone.png"]
    answers += ["both.png,drawn/small.png", "none.png,drawn/missing.png", "nowhere.png,drawn/split.png"]
    (masked / "answers.csv").write_text("\n".join(["image,mask", *answers]) + "\n")
    (masked / "labels.csv").write_text(
        (masked / "labels.csv").read_text().replace("gone.png,old/gone.png,v1", "gone.png,,")
    )
    call = ["batch", "import", "answers.csv", "--manifest", "labels.csv", "--ontology", "ontology.yaml"]
    result = leco(*call, "--conflicts", "conflicts.csv", "-o", "labels2.csv", cwd=masked)
    assert result.returncode == 0, result.stderr
    assert "1 answers taken, 5 contradict" in result.stdout
    kinds = {row["sample"]: (row["kind"], row["problem"]) for row in rows_of(masked / "conflicts.csv")}
    assert kinds["easy.png"][0] == "outside the old class"
    assert "100% of its pixels" in kinds["easy.png"][1]
    assert "has the value 200" in kinds["gone.png"][1]
    assert "is 2x5, but both.png is 4x5" in kinds["both.png"][1]
    assert "there is no such file" in kinds["none.png"][1]
    assert kinds["nowhere.png"][0] == "no such sample"
    manifest, _ = read_manifest(masked / "labels2.csv", street)
    assert manifest.masks["v3"][manifest.inputs.index("split.png")] == "drawn/split.png"
    draw(masked, "drawn/again.png", [[v3["bus"]] * 4])
    (masked / "answers.csv").write_text("image,mask\nsplit.png,drawn/again.png\nsplit.png,drawn/split.png\n")
    again = leco(*call[:4], "labels2.csv", *call[5:], cwd=masked)
    assert "0 answers taken, 1 contradict, 1 say what is known" in " ".join(again.stdout.split())
    assert "drawn/again.png, but the manifest has drawn/split.png (v3)" in again.stderr


def test_images_without_a_mask_can_be_picked_and_every_class_of_an_old_mask_is_offered(tmp_path):
    history = {"v1": ["dog", "cat"], "v2": {"poodle": {"from": "dog"}, "husky": {"from": "dog"}, "cat": None}}
    ontology = Ontology.from_dict({"versions": [{"name": name, "classes": c} for name, c in history.items()]})
    ontology.save(tmp_path / "ontology.yaml")
    rows = ["image,mask,version"]
    for number in range(20):
        draw(tmp_path, f"{number}.png", [[number * 12] * 8 + [0] * 12] * 4)
        version = "v2" if number < 14 else "v1"
        # Of the old masks, one pixel in hundreds is a cat.
        values = (
            [[number % 3] * 10 + [2] * 10] * 4 if version == "v2" else [[0] * 19 + [int(row == 0)] for row in range(4)]
        )
        draw(tmp_path, f"masks/{number}.png", values)
        rows.append(f"{number}.png,masks/{number}.png,{version}" if number < 18 else f"{number}.png,,")
    (tmp_path / "labels.csv").write_text("\n".join(rows) + "\n")
    (tmp_path / "experiment.yaml").write_text(
        "data: {manifest: labels.csv, ontology: ontology.yaml, image_size: 32}\nmethod: lpl\n"
    )
    call = ["batch", "export", "experiment.yaml", "--relabel", 4, "--new", 9, "--backbone", "pixels", "-o", "batch"]
    result = leco(*call, cwd=tmp_path)
    assert result.returncode == 0, result.stderr
    assert "4 to relabel, 2 to label" in result.stdout
    assert "7 more new samples are to be collected" in result.stdout
    batch = rows_of(tmp_path / "batch" / "batch.csv")
    assert {row["image"] for row in batch if row["kind"] == "new"} == {"18.png", "19.png"}
    assert all(json.loads(row["choices"]) == ["poodle", "husky", "cat"] for row in batch)
