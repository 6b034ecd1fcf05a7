import json
import os
import random
import warnings
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from PIL import Image

from leco import LecoError, Ontology
from leco.data.importers.folders import image_folder
from leco.data.manifest.manifest import Manifest, read_manifest
from leco.data.masks import decode_mask


def write_image(path: Path, seed: int = 0, size: tuple[int, int] = (6, 4)) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    pixels = np.random.default_rng(seed).integers(0, 255, (size[1], size[0], 3), dtype=np.uint8)
    Image.fromarray(pixels).save(path)
    return path


def write_mask(path: Path, values: object, dtype: type = np.uint8) -> Path:
    Image.fromarray(np.array(values, dtype=dtype)).save(path)
    return path


@pytest.fixture
def folder(tmp_path) -> Path:
    for number, name in enumerate("abcd"):
        write_image(tmp_path / f"{name}.png", number)
    return tmp_path


def csv(folder: Path, text: str) -> Path:
    path = folder / "labels.csv"
    path.write_text("\n".join(line.strip() for line in text.strip().splitlines()) + "\n", encoding="utf-8")
    return path


def complaint(path: Path, ontology: Ontology, **options: object) -> str:
    with pytest.raises(LecoError) as error:
        read_manifest(path, ontology, **options)
    return str(error.value)


# --- what is right


ROWS = [
    {"image": "a.png", "label": "road", "version": "v1", "split": "train", "period": 0},
    {"image": "./a.png", "label": "parking-aisle", "version": "v2", "split": "", "period": None},
    {"image": "b.png", "label": "void", "version": "v2", "split": "val", "period": 1},
    {"image": "c.png", "label": "", "version": "", "split": "", "period": None},
    {"image": "d.png", "label": "bus", "version": "v1", "split": "test", "period": None},
]


def write_rows(folder: Path, kind: str) -> Path:
    path = folder / f"labels.{kind}"
    if kind == "csv":
        pd.DataFrame(ROWS).astype({"period": "Int64"}).to_csv(path, index=False)
    elif kind == "jsonl":
        path.write_text("".join(json.dumps({k: v for k, v in row.items() if v != ""}) + "\n" for row in ROWS))
    else:
        frame = pd.DataFrame(ROWS).replace({"": None}).astype({"label": "category"})
        frame.iloc[::-1].iloc[::-1].to_parquet(path)
    return path


@pytest.mark.parametrize("kind", ["csv", "jsonl", "parquet"])
def test_the_three_formats_say_the_same(folder, street, kind):
    manifest, problems = read_manifest(write_rows(folder, kind), street)
    assert not len(problems)
    assert (manifest.root, manifest.kind, manifest.masks) == (folder, "image", {})
    assert manifest.inputs == ("a.png", "b.png", "c.png", "d.png")
    assert {version: labels.tolist() for version, labels in manifest.labels.items()} == {
        "v1": [street["v1"].index("road"), -1, -1, street["v1"].index("bus")],
        "v2": [street["v2"].index("parking-aisle"), -1, -1, -1],
    }
    assert manifest.split.tolist() == ["train", "val", "train", "test"]
    assert manifest.period.tolist() == [0, 1, -1, -1]


def test_a_class_may_have_a_name_that_looks_like_nothing(folder):
    versions = [{"name": "1", "classes": ["NA", "null", "7"]}, {"name": "2", "classes": ["NA", "null", "7"]}]
    ontology = Ontology.from_dict({"name": "odd", "versions": versions})
    path = csv(folder, "image,label,version\na.png,NA,1\nb.png,null,1\n\nc.png,7,2")
    manifest, _ = read_manifest(path, ontology)
    assert manifest.labels["1"].tolist() == [0, 1, -1]
    (folder / "m.jsonl").write_text('{"image": "a.png", "label": 7, "version": 2}')
    assert read_manifest(folder / "m.jsonl", ontology)[0].labels["2"].tolist() == [2]


def test_paths_are_relative_to_the_root_if_one_is_given(folder, street):
    (folder / "lists").mkdir()
    path = csv(folder / "lists", "image,label,version\na.png,road,v1")
    assert "there is no such file" in complaint(path, street)
    assert read_manifest(path, street, root=folder)[0].root == folder
    assert "there is no such folder" in complaint(path, street, root=folder / "nowhere")


def test_a_random_manifest_equals_reading_it_with_loops(tmp_path, street):
    generator = random.Random(0)
    lines, expected = [], {}
    for number in range(40):
        write_image(tmp_path / f"{number}.png", number)
        for version in generator.sample(["v1", "v2", "v3"], generator.randint(0, 3)):
            label = generator.choice([c for c in street[version].classes if c != "fax"])
            lines.append(f"{number}.png,{label},{version}")
            expected[f"{number}.png", version] = street[version].index(label)
    generator.shuffle(lines)
    manifest, _ = read_manifest(csv(tmp_path, "image,label,version\n" + "\n".join(lines)), street)
    for sample, name in enumerate(manifest.inputs):
        for version in ("v1", "v2", "v3"):
            assert manifest.labels[version][sample] == expected.get((name, version), -1)
    assert set(manifest.inputs) == {name for name, _ in expected}


# --- the table as a whole


@pytest.mark.parametrize(
    ("header", "message"),
    [
        ("image,lable,version", "unknown column 'lable'; did you mean 'label'?"),
        ("image,label", "there is no column 'version'"),
        ("label,version", "neither a column 'image' nor 'features'"),
        ("image,features,label,version", "both columns 'image' and 'features'"),
        ("image,label,mask,version", "both columns 'label' and 'mask'"),
        ("image,version", "neither a column 'label' nor 'mask'"),
        ("features,mask,version", "features have no pixels"),
        ("image,label,version", "there are no rows"),
        ("image,image,label,version", "the column 'image' stands there twice"),
    ],
)
def test_wrong_columns_are_named(tmp_path, street, header, message):
    assert message in complaint(csv(tmp_path, header), street, skip_bad=True)


def test_files_that_are_no_manifest_are_refused(tmp_path, street):
    assert "valid: .csv, .jsonl, .parquet" in complaint(tmp_path / "a.xlsx", street)
    assert "there is no such file" in complaint(tmp_path / "a.csv", street)
    (tmp_path / "a.csv").write_bytes(b"image,label,version\n\xff,a,b\n")
    assert "is not UTF-8" in complaint(tmp_path / "a.csv", street)
    (tmp_path / "a.csv").write_text('image,label,version\n"a.png,a,b\n')
    assert "is not CSV" in complaint(tmp_path / "a.csv", street)
    (tmp_path / "a.parquet").write_text("hello")
    assert "is not Parquet" in complaint(tmp_path / "a.parquet", street)
    pd.DataFrame({"image": [["a"]], "label": ["a"], "version": ["v1"]}).to_parquet(tmp_path / "b.parquet")
    assert "column 'image': ['a'] is neither text nor a whole number" in complaint(tmp_path / "b.parquet", street)
    (tmp_path / "a.csv").write_text("")
    assert "there are no rows" in complaint(tmp_path / "a.csv", street)


def test_rows_that_cannot_be_taken_apart_are_named_and_can_be_skipped(folder, street):
    path = csv(folder, "image,label,version\na.png,road,v1,what\nb.png,road\nc.png,road,v1")
    assert "row 2: has 4 cells, but the header names 3" in complaint(path, street)
    assert "row 3: has 2 cells" in complaint(path, street)
    manifest, problems = read_manifest(path, street, skip_bad=True)
    assert (manifest.inputs, problems.dropped, problems.rows) == (("c.png",), 2, 3)
    lines = ["{", "[1]", '{"image": 1, "image": 2}', '{"image": {}}', '{"image": true}', '{"image": Infinity}', "\n"]
    good = '{"image": "a.png", "label": "road", "version": "v1"}'
    (folder / "m.jsonl").write_text("\n".join([*lines, good]))
    manifest, problems = read_manifest(folder / "m.jsonl", street, skip_bad=True)
    assert [problem.row for problem in problems.found] == [1, 2, 3, 4, 5, 6]
    assert manifest.inputs == ("a.png",)


# --- cells


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ("a.png,road,v9,,", "row 2: a.png: 'v9' is not a version of street; valid: 'v1', 'v2', 'v3'"),
        ("a.png,raod,v1,,", "row 2: a.png: label 'raod' is not a class of v1; did you mean 'road'?"),
        ("a.png,zebra,v2,,", "row 2: a.png: label 'zebra' is not a class of v2; valid: 'void', 'road'"),
        ("a.png,road,,,", "row 2: a.png: label 'road' has no version; valid: 'v1', 'v2', 'v3'"),
        ("a.png,fax,v1,,", "row 2: a.png: label 'fax' of v1 is impossible: no class of v3 comes from it"),
        ("a.png,road,v1,tets,", "row 2: a.png: 'tets' is not a split; did you mean 'test'?"),
        ("a.png,road,v1,,-1", "row 2: a.png: period '-1' is not a whole number from 0 to 2"),
        ("a.png,road,v1,,1.5", "period '1.5'"),
        ("a.png,road,v1,,3", "period '3' is not a whole number from 0 to 2: there is one per version"),
        ("a.png,road,v1,,²", "period '²'"),
        (",road,v1,,", "row 2: image is empty"),
    ],
)
def test_a_wrong_cell_is_named_with_its_row_and_what_would_be_right(folder, street, row, message):
    path = csv(folder, f"image,label,version,split,period\n{row}\nb.png,road,v1,,")
    assert message in complaint(path, street)
    manifest, problems = read_manifest(path, street, skip_bad=True)
    assert (manifest.inputs, len(problems), problems.dropped) == (("b.png",), 1, 1)


def test_a_label_of_a_class_that_was_later_ignored_is_fine(folder, street):
    manifest, _ = read_manifest(csv(folder, "image,label,version\na.png,drone,v2"), street)
    assert manifest.labels["v2"].tolist() == [street["v2"].index("drone")]


def test_an_ambiguous_label_is_refused_and_its_id_is_not(folder):
    lineages = [("Lycaenidae", "Satyrium"), ("Orchidaceae", "Satyrium")]
    ontology = Ontology.from_taxonomy("genera", ["family", "genus"], lineages)
    path = csv(folder, "image,label,version\na.png,Satyrium,genus\nb.png,Orchidaceae/Satyrium,genus")
    assert "names several classes of genus; use an id: 'Lycaenidae/Satyrium' or" in complaint(path, ontology)
    manifest, problems = read_manifest(path, ontology, skip_bad=True)
    assert manifest.labels["genus"].tolist() == [1]
    assert problems.counts == {"ambiguous label": 1}


# --- paths


def test_missing_empty_and_odd_files_are_named(folder, street):
    (folder / "empty.png").touch()
    (folder / "sub").mkdir()
    (folder / "dangling.png").symlink_to(folder / "gone.png")
    rows = ["aa.png", "empty.png", "sub", "nowhere/a.png", "sub\\a.png", "a.png/b.png", "a\0.png", "dangling.png"]
    text = complaint(csv(folder, "image,label,version\n" + "\n".join(f"{r},road,v1" for r in rows)), street)
    assert "row 2: aa.png: there is no such file; did you mean 'a.png'?" in text
    assert "row 3: empty.png: is empty (0 bytes)" in text
    assert "row 4: sub: is a folder" in text
    assert "row 5: nowhere/a.png: there is no such file; there is no folder 'nowhere'" in text
    assert "row 6: sub\\a.png: there is no such file; write / between folders" in text
    assert "row 7: a.png/b.png: there is no such file" in text
    assert "row 8: a\\x00.png: there is no such file" in text
    assert "row 9: dangling.png: there is no such file; it is a link to nothing" in text
    assert text.startswith(f"{folder / 'labels.csv'}: 8 problems (6 missing file")


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no pipes here")
def test_a_pipe_is_not_waited_for(folder, street):
    os.mkfifo(folder / "pipe.png")
    assert "is not an ordinary file" in complaint(csv(folder, "image,label,version\npipe.png,road,v1"), street)


def test_paths_that_leave_the_root_are_refused(tmp_path, street):
    outside = write_image(tmp_path / "outside" / "a.png")
    root = tmp_path / "root"
    write_image(root / "b.png", 1)
    (root / "file-link.png").symlink_to(outside)
    (root / "folder-link").symlink_to(outside.parent)
    (root / "inner-link.png").symlink_to(root / "b.png")
    bad = ["../outside/a.png", str(outside), "x/../../outside/a.png", "C:\\a.png", "file-link.png", "folder-link/a.png"]
    rows = "\n".join(f"{name},road,v1" for name in [*bad, "inner-link.png", "x/../b.png"])
    path = csv(root, f"image,label,version\n{rows}")
    manifest, problems = read_manifest(path, street, skip_bad=True)
    assert manifest.inputs == ("inner-link.png", "b.png")
    assert [problem.file for problem in problems.found] == bad
    assert problems.counts == {"leaves the root": 6}
    masks = csv(root, "image,mask,version\nb.png,../outside/a.png,v1")
    assert "../outside/a.png: leaves the root" in complaint(masks, street)


# --- samples on several rows


def test_a_repeated_sample_is_a_problem_and_the_first_one_stays(folder, street):
    path = csv(folder, "image,label,version\na.png,road,v1\nb.png,bus,v1\n./a.png,road,v1\nc.png,,\nc.png,,")
    text = complaint(path, street)
    assert "row 4: ./a.png: is the same sample as in row 2 under v1" in text
    assert "row 6: c.png: is the same sample as in row 5" in text
    manifest, problems = read_manifest(path, street, skip_bad=True)
    assert manifest.inputs == ("a.png", "b.png", "c.png")
    assert problems.dropped == 2


def test_of_two_labels_of_one_version_neither_is_believed(folder, street):
    path = csv(folder, "image,label,version\na.png,road,v1\nb.png,bus,v1\na.png,bus,v1\na.png,road,v2")
    text = complaint(path, street)
    assert "row 2: a.png: has the label 'road' under v1, but 'bus' in row 4" in text
    assert "row 4: a.png: has the label 'bus' under v1, but 'road' in row 2" in text
    manifest, _ = read_manifest(path, street, skip_bad=True)
    assert manifest.labels["v1"].tolist() == [street["v1"].index("bus"), -1]
    assert manifest.inputs == ("b.png", "a.png")


def test_a_sample_in_train_and_test_is_a_leak_and_the_test_set_keeps_it(folder, street):
    path = csv(folder, "image,label,version,split\na.png,road,v1,train\na.png,road,v2,test\nb.png,bus,v1,")
    assert "row 2: a.png: is in train here, but in test in row 3" in complaint(path, street)
    manifest, problems = read_manifest(path, street, skip_bad=True)
    assert dict(zip(manifest.inputs, manifest.split.tolist(), strict=True)) == {"a.png": "test", "b.png": "train"}
    assert problems.counts == {"leak": 1}


def test_an_empty_split_follows_the_other_rows_of_the_sample_even_if_they_are_bad(folder, street):
    path = csv(folder, "image,label,version,split\na.png,raod,v1,test\na.png,road,v2,\nb.png,road,v1,")
    manifest, _ = read_manifest(path, street, skip_bad=True)
    assert dict(zip(manifest.inputs, manifest.split.tolist(), strict=True)) == {"a.png": "test", "b.png": "train"}


def test_a_split_can_be_left_out_with_all_that_is_wrong_with_it(folder, street):
    text = "image,label,version,split\na.png,car,v1,train\ngone.png,no,v1,test\nb.png,car,v1,\nb.png,bus,v9,test\n"
    (folder / "m.csv").write_text(text)
    manifest, problems = read_manifest(folder / "m.csv", street, without="test")
    assert (manifest.inputs, manifest.split.tolist(), problems.rows) == (("a.png",), ["train"], 1)
    (folder / "m.csv").write_text(text.replace("a.png,car", "a.png,cat"))
    with pytest.raises(LecoError, match="row 2"):
        read_manifest(folder / "m.csv", street, without="test")
    (folder / "m.csv").write_text("image,label,version,split\na.png,car,v1,test\n")
    with pytest.raises(LecoError, match="all samples are in test"):
        read_manifest(folder / "m.csv", street, without="test")


def test_a_sample_belongs_to_one_period(folder, street):
    path = csv(folder, "image,label,version,period\na.png,road,v1,0\na.png,road,v2,1\nb.png,road,v1,002")
    assert "row 3: a.png: is in period 1 here, but in 0 in row 2" in complaint(path, street)
    assert read_manifest(path, street, skip_bad=True)[0].period.tolist() == [0, 2]


def test_the_same_bytes_under_another_name_are_a_leak(folder, street):
    (folder / "copy.png").write_bytes((folder / "a.png").read_bytes())
    other = bytearray((folder / "b.png").read_bytes())
    (folder / "alike.png").write_bytes(bytes(other))  # equal bytes within a split are nobody's leak
    rows = "a.png,road,v1,train\ncopy.png,road,v1,test\nb.png,bus,v1,train\nalike.png,bus,v1,train"
    path = csv(folder, f"image,label,version,split\n{rows}")
    text = complaint(path, street)
    assert "1 problem (1 leak)" in text
    assert "row 2: a.png: is in train and has the very bytes of copy.png, which is in test" in text
    assert read_manifest(path, street, skip_bad=True)[0].inputs == ("b.png", "alike.png", "copy.png")
    assert len(read_manifest(path, street, decode=False)[0]) == 4  # reads no file


def test_files_that_differ_only_at_the_front_are_no_leak(tmp_path, street):
    for name, first in (("a.npy", 1.0), ("b.npy", 2.0)):
        np.save(tmp_path / name, np.array([first] + [0.0] * 5000))
    path = csv(tmp_path, "features,label,version,split\na.npy,road,v1,train\nb.npy,road,v1,test")
    assert len(read_manifest(path, street)[0]) == 2


# --- images and masks


def test_bad_images_are_named_by_row_and_skipped_on_request(folder, street):
    (folder / "cut.png").write_bytes((folder / "a.png").read_bytes()[:60])
    (folder / "text.png").write_text("hello")
    Image.new("CMYK", (4, 4)).save(folder / "print.jpg")
    Image.fromarray(np.full((4, 4), 999, dtype=np.uint16)).save(folder / "deep.png")
    frames = [Image.new("RGB", (4, 4), colour) for colour in ("red", "blue")]
    frames[0].save(folder / "moving.gif", save_all=True, append_images=frames[1:])
    names = ["a.png", "cut.png", "text.png", "print.jpg", "deep.png", "moving.gif", "cut.png"]
    rows = [f"{name},road,{'v1' if number < 6 else 'v2'}" for number, name in enumerate(names)]
    path = csv(folder, "image,label,version\n" + "\n".join(rows))
    before, calls = list(warnings.filters), []
    manifest, problems = read_manifest(path, street, skip_bad=True, tick=lambda *progress: calls.append(progress))
    assert list(warnings.filters) == before
    assert calls == [(n, 6) for n in range(1, 7)]
    assert manifest.inputs == ("a.png",)
    assert [(p.row, p.file) for p in problems.found] == [(n + 1, name) for n, name in enumerate(names, 1) if n > 1]
    assert problems.counts == {"bad image": 6}
    assert len(read_manifest(path, street, decode=False)[0]) == 6


def test_masks_are_kept_per_version(folder, street):
    write_mask(folder / "a1.png", np.full((4, 6), 2))
    write_mask(folder / "a2.png", np.full((4, 6), 65_535), np.uint16)
    write_mask(folder / "b1.png", np.full((4, 6), 255))
    path = csv(folder, "image,mask,version\na.png,a1.png,v1\na.png,./a2.png,v2\nb.png,b1.png,v1\nc.png,,")
    manifest, _ = read_manifest(path, street)
    assert manifest.labels == {}
    assert manifest.masks == {"v1": ("a1.png", "b1.png", ""), "v2": ("a2.png", "", "")}
    assert decode_mask(folder / "a1.png").max() == 2
    assert decode_mask(folder / "a2.png").max() == decode_mask(folder / "b1.png").max() == -1


def test_bad_masks_are_named_with_pixel_value_and_nearest(folder, street):
    values = np.zeros((4, 6))
    values[2, 5] = 77
    write_mask(folder / "odd.png", values)
    write_mask(folder / "deep.png", np.full((4, 6), 255), np.uint16)
    write_mask(folder / "small.png", np.zeros((3, 6)))
    write_mask(folder / "removed.png", np.full((4, 6), street["v1"].index("fax")))
    write_image(folder / "colour.png", 9)
    names = ["odd.png", "deep.png", "small.png", "removed.png", "colour.png", "none.png"]
    for number, _ in enumerate(names):
        write_image(folder / f"{number}.png", 20 + number)
    path = csv(folder, "image,mask,version\n" + "\n".join(f"{n}.png,{name},v1" for n, name in enumerate(names)))
    text = complaint(path, street)
    near = "which is no class of v1; the nearest is 7 ('fax'); 255 means no label"
    assert f"row 2: odd.png: pixel (row 2, column 5) has the value 77, {near}" in text
    assert "row 3: deep.png: pixel (row 0, column 0) has the value 255, which is no class of v1" in text
    assert "row 4: small.png: is 6x3, but 2.png is 6x4" in text
    assert "row 5: removed.png: pixel (row 0, column 0): label 'fax' of v1 is impossible" in text
    assert "row 6: colour.png: a label map has one channel of class ids; this is a RGB image" in text
    assert "row 7: none.png: there is no such file" in text


def test_a_mask_must_fit_its_image_as_viewers_show_it(folder, street):
    exif = Image.Exif()
    exif[0x0112] = 6
    Image.new("RGB", (6, 4)).save(folder / "turned.jpg", exif=exif)
    write_mask(folder / "upright.png", np.zeros((6, 4)))
    write_mask(folder / "lying.png", np.zeros((4, 6)))
    path = csv(folder, "image,mask,version\nturned.jpg,upright.png,v1\nturned.jpg,lying.png,v2")
    text = complaint(path, street)
    assert "1 problem " in text
    assert "row 3: lying.png: is 6x4, but turned.jpg is 4x6" in text


def test_masks_are_looked_at_even_where_the_image_is_bad(folder, street):
    write_mask(folder / "odd.png", np.full((4, 6), 99))
    path = csv(folder, "image,mask,version\nmissing.png,odd.png,v1\na.png,,")
    assert read_manifest(path, street, skip_bad=True)[1].counts == {"missing file": 1, "unknown mask value": 1}
    assert "mask 'odd.png' has no version" in complaint(csv(folder, "image,mask,version\na.png,odd.png,"), street)


# --- features


def test_features_may_be_vectors_or_rows_of_a_table(tmp_path, street):
    from leco.data.vectors import load_features

    table = np.random.default_rng(0).normal(size=(5, 3))
    np.save(tmp_path / "table.npy", table)
    np.save(tmp_path / "one.npy", np.arange(3))
    path = csv(tmp_path, "features,label,version\ntable.npy#04,road,v1\none.npy,bus,v1\n./table.npy#0,,")
    manifest, _ = read_manifest(path, street)
    assert (manifest.kind, manifest.inputs) == ("features", ("table.npy#4", "one.npy", "table.npy#0"))
    expected = np.stack([table[4], np.arange(3), table[0]]).astype(np.float32)
    np.testing.assert_array_equal(load_features(manifest.root, manifest.inputs), expected)


def test_bad_features_are_named(tmp_path, street):
    table = np.ones((6, 4))
    table[1, 2], table[2, 0], table[3, 3] = np.nan, -np.inf, 1e300
    np.save(tmp_path / "t.npy", table)
    np.save(tmp_path / "short.npy", np.ones(3))
    np.save(tmp_path / "cube.npy", np.ones((2, 2, 2)))
    np.save(tmp_path / "text.npy", np.array(["a"]))
    np.save(tmp_path / "objects.npy", np.array([{}], dtype=object), allow_pickle=True)
    np.savez(tmp_path / "z.npz", a=np.ones(4))
    (tmp_path / "zip.npy").write_bytes((tmp_path / "z.npz").read_bytes())
    (tmp_path / "cut.npy").write_bytes((tmp_path / "t.npy").read_bytes()[:150])
    (tmp_path / "junk.npy").write_text("hello")
    expected = {
        "t.npy#0": "",
        "t.npy#5": "",
        "t.npy#1": "number 2 is nan",
        "t.npy#2": "number 0 is -inf",
        "t.npy#3": "number 3 is 1e+300, too large for 32 bits",
        "t.npy#6": "row 6 is not there; the nearest is 5, the last",
        "t.npy": "holds 6 vectors; say which one: `#0` to `#5`",
        "short.npy": "has 3 numbers, but most samples have 4",
        "short.npy#0": "holds one vector; leave out `#0`",
        "cube.npy": "has the shape (2, 2, 2)",
        "text.npy": "holds <U1, not numbers",
        "objects.npy": "holds Python objects",
        "zip.npy": "is an archive of arrays (.npz)",
        "cut.npy#0": "is not a .npy array",
        "junk.npy": "holds Python objects",
        "t.txt": "is not `file.npy`, or `file.npy#ROW`",
        "t.npy#-1": "is not `file.npy`",
        "gone.npy#3": "there is no such file",
    }
    path = csv(tmp_path, "features,label,version\n" + "\n".join(f"{name},road,v1" for name in expected))
    manifest, problems = read_manifest(path, street, skip_bad=True)
    found = {problem.file: str(problem) for problem in problems.found}
    for row, (name, message) in enumerate(expected.items(), start=2):
        assert (name in found) == bool(message), name
        assert not message or f"row {row}: {name}: {message}" in found[name], name
    assert manifest.inputs == ("t.npy#0", "t.npy#5")


# --- all problems at once


def test_the_first_twenty_problems_and_their_number_are_told_in_the_order_of_rows(folder, street):
    rows = "\n".join(f"{number}.png,raod,v1" for number in range(30))
    text = complaint(csv(folder, f"image,label,version\n{rows}"), street)
    headline, *lines = text.splitlines()
    assert headline.endswith("labels.csv: 60 problems (30 unknown label, 30 missing file)")
    assert len(lines) == 21
    assert [line.split(":")[0].strip() for line in lines[:20]] == [f"row {n // 2 + 2}" for n in range(20)]
    assert lines[20].strip() == "… and 40 more"


def test_nothing_left_is_an_error_even_when_skipping(folder, street):
    path = csv(folder, "image,label,version\nnone.png,road,v1")
    assert complaint(path, street, skip_bad=True).endswith("no row is left")


# --- folders of images


def test_a_folder_per_version_and_class_is_a_manifest(tmp_path, street):
    names = ["v1/road/a.png", "v1/bus/b.JPG", "v2/city-bus/c.png", "test/v2/road/d.png"]
    for number, name in enumerate(names):
        write_image(tmp_path / name, number)
    (tmp_path / "ontology.yaml").touch()
    (tmp_path / "v1" / "road" / ".DS_Store").touch()
    manifest, problems = image_folder(tmp_path, street)
    assert not len(problems)
    assert isinstance(manifest, Manifest)
    assert sorted(manifest.inputs) == sorted(names)
    for sample, name in enumerate(manifest.inputs):
        version, label = name.removeprefix("test/").split("/")[:2]
        for other, labels in manifest.labels.items():
            assert labels[sample] == (street[version].index(label) if other == version else -1)
        assert manifest.split[sample] == ("test" if name.startswith("test/") else "train")


def test_what_does_not_fit_the_folders_is_named(tmp_path, street):
    for number, name in enumerate(
        ["v1/road/a.png", "v1/raod/b.png", "v5/road/c.png", "v1/d.png", "test/v1/road/e.png"]
    ):
        write_image(tmp_path / name, number)
    write_image(tmp_path / "test" / "v1" / "road" / "copy.png", 0)
    (tmp_path / "v1" / "road" / "notes.txt").touch()
    (tmp_path / "v1" / "road" / "more").mkdir()
    with pytest.raises(LecoError) as error:
        image_folder(tmp_path, street)
    text = str(error.value)
    assert "v1/raod/b.png: label 'raod' is not a class of v1; did you mean 'road'?" in text
    assert "v5/road/c.png: lies in a folder not named after a version of street; valid: 'v1', 'v2', 'v3'" in text
    assert "v1/d.png: lies outside the folders" in text
    assert "v1/road/notes.txt: is not one of .png" in text
    assert "v1/road/more: lies in a folder inside a class" in text
    assert "v1/road/a.png: is in train and has the very bytes of test/v1/road/copy.png" in text
    assert "row" not in text.replace("rows", "")
    manifest, problems = image_folder(tmp_path, street, skip_bad=True)
    assert sorted(manifest.inputs) == ["test/v1/road/copy.png", "test/v1/road/e.png"]
    assert len(problems) == problems.dropped == 6


def test_every_image_that_is_left_out_is_counted(tmp_path, street):
    write_image(tmp_path / "v1" / "road" / "a.png", 0)
    for number in range(5):
        write_image(tmp_path / "v9" / "road" / f"{number}.png", number + 1)
        write_image(tmp_path / "v1" / "road" / "more" / f"{number}.png", number + 10)
    (tmp_path / "v1" / "bus").symlink_to(tmp_path / "gone")
    manifest, problems = image_folder(tmp_path, street, skip_bad=True)
    assert manifest.inputs == ("v1/road/a.png",)
    assert problems.dropped == 11
    assert any("is a link that leads nowhere" in str(problem) for problem in problems.found)


def test_a_class_called_by_name_and_by_id_is_the_same(folder, tmp_path):
    versions = [{"name": "v1", "classes": ["car"]}, {"name": "v2", "classes": {"automobile": {"renamed": "car"}}}]
    ontology = Ontology.from_dict({"versions": versions})
    path = csv(folder, "image,label,version\na.png,automobile,v2\na.png,car,v2")
    assert "is the same sample as in row 2 under v2" in complaint(path, ontology)


def test_a_folder_without_images_is_refused(tmp_path, street):
    with pytest.raises(LecoError, match="there are no rows"):
        image_folder(tmp_path, street)
    with pytest.raises(LecoError, match="there is no such folder"):
        image_folder(tmp_path / "nowhere", street)


# --- the command


def test_the_command_says_what_is_there_and_what_is_not(folder, street, capsys):
    from leco.cli.data import check_manifest

    ontology = folder / "street.yaml"
    street.save(ontology)
    path = csv(
        folder, "image,label,version,split,period\na.png,road,v1,,0\nb.png,bus,v1,test,\nc.png,,,,\nd.png,buss,v1,,"
    )
    with pytest.raises(LecoError) as error:
        check_manifest(path, ontology, skip_bad=False, decode=True)
    assert "\n" not in str(error.value)
    assert "row 5: d.png: label 'buss' is not a class of v1; did you mean 'bus'?" in capsys.readouterr().err
    check_manifest(path, ontology, skip_bad=True, decode=False)
    output = capsys.readouterr().out
    assert "left out 1 of 4 rows" in output
    assert "3 samples (images): 2 train, 1 test" in output
    assert "1 without a label; periods: 2 none, 1 TP0" in output
    assert "1 of 8" in output


def test_the_command_takes_masks_and_folders_too(folder, street, capsys):
    from leco.cli.data import check_manifest

    ontology = folder / "street.yaml"
    street.save(ontology)
    write_mask(folder / "m.png", np.zeros((4, 6)))
    check_manifest(csv(folder, "image,mask,version\na.png,m.png,v1\nb.png,,"), ontology, skip_bad=False, decode=True)
    assert "1 masks" in capsys.readouterr().out
    write_image(folder / "tree" / "v2" / "road" / "a.png")
    check_manifest(folder / "tree", ontology, skip_bad=False, decode=True)
    assert "1 samples (images)" in capsys.readouterr().out


# --- size


@pytest.mark.slow
def test_a_hundred_thousand_rows_are_read_right(tmp_path, street):
    number = 100_000
    classes = [name for name in street["v1"].classes if name != "fax"]
    for start in range(0, number, 1000):
        (tmp_path / f"d{start}").mkdir()
        for index in range(start, start + 1000):
            (tmp_path / f"d{start}" / f"{index}.png").write_bytes(b"x")
    lines = [
        f"d{i - i % 1000}/{i}.png,{classes[i % 7]},v1,{('train', 'val', 'test')[i % 3]},{i % 3}" for i in range(number)
    ]
    lines[77_777] = "d0/0.pgn,road,v1,train,0"
    path = csv(tmp_path, "image,label,version,split,period\n" + "\n".join(lines))
    assert "row 77779: d0/0.pgn: there is no such file; did you mean '0.png'?" in complaint(path, street, decode=False)
    manifest, problems = read_manifest(path, street, decode=False, skip_bad=True)
    kept = np.delete(np.arange(number), 77_777)
    kept = kept[np.argsort(kept % 3 == 2, stable=True)]  # test samples are last
    assert len(manifest) == number - problems.dropped == number - 1
    np.testing.assert_array_equal(manifest.labels["v1"], kept % 7)
    np.testing.assert_array_equal(manifest.period, kept % 3)
    np.testing.assert_array_equal(manifest.split, np.array(["train", "val", "test"])[kept % 3])
