"""Datasets as Hugging Face's `save_to_disk` leaves them, written here with pyarrow in the same layout."""

import json
from pathlib import Path

import pyarrow as pa
import pytest
from tests.own_data import save_dataset
from tests.pictures import content, draw

from leco import LecoError
from leco.data.importers.hugging_face import read_hugging_face
from leco.data.importers.importer import Options


def embedded(number: int) -> dict[str, object]:
    return {"bytes": content(number), "path": f"{number}.png"}


@pytest.mark.parametrize("file_format", [False, True])
def test_embedded_images_become_files_and_numbers_become_names(file_format, tmp_path):
    save_dataset(tmp_path / "v1", [(embedded(n), n % 2) for n in range(4)], ["dog", "cat"], file_format)
    rows = [(embedded(n), "husky") for n in (0, 8)] + [(embedded(9), None), ({"bytes": b"text", "path": None}, "x")]
    save_dataset(tmp_path / "v2", [*rows, (None, "x"), ({"bytes": None, "path": None}, "x")], None, file_format)
    project = tmp_path / "project"
    project.mkdir()
    found = read_hugging_face([tmp_path / "v1", tmp_path / "v2"], Options(project))
    assert found.root == project
    assert found.versions == ("v1", "v2")
    labels = {
        (project / s.path).read_bytes(): (s.label, s.version, s.split) for s in found.samples if s.version != "v2"
    }
    assert {labels[content(n)] for n in (0, 2)} == {("dog", "v1", "")}
    assert {labels[content(n)] for n in (1, 3)} == {("cat", "v1", "")}
    assert labels[content(9)] == ("", "", "")
    newer = {s.path for s in found.samples if s.version == "v2"}
    assert len(newer) == 2
    assert newer & {s.path for s in found.samples if s.version == "v1"}  # the same image is the same file
    assert {reason: len(items) for reason, items in found.left_out.items.items()} == {
        "an embedded image of an unknown format": 1,
        "a row without an image": 2,
    }


def test_splits_are_kept_and_unknown_ones_left_out(tmp_path):
    for split in ("train", "validation", "test", "extra"):
        save_dataset(tmp_path / "v1" / split, [(embedded(ord(split[2])), 0)], ["dog"])
    (tmp_path / "v1" / "dataset_dict.json").write_text('{"splits": ["train", "validation", "test", "extra"]}')
    save_dataset(tmp_path / "v2", [(embedded(5), 0)], ["dog"])
    project = tmp_path / "project"
    project.mkdir()
    found = read_hugging_face([tmp_path / "v1", tmp_path / "v2"], Options(project))
    assert [sample.split for sample in found.samples] == ["train", "val", "test", ""]
    assert found.left_out.items == {"a split other than train, validation and test": ["v1: 'extra'"]}


def test_images_that_are_not_embedded_are_looked_for(tmp_path):
    draw(tmp_path, "photos/a.png", "photos/b.png")
    rows = [({"bytes": None, "path": "/elsewhere/a.png"}, 0), ({"bytes": None, "path": "c.png"}, 0)]
    save_dataset(tmp_path / "v1", rows, ["dog"])
    save_dataset(tmp_path / "v2", [("b.png", 0)], ["dog"], kind=pa.string())
    options = Options(tmp_path / "project", images=tmp_path / "photos")
    found = read_hugging_face([tmp_path / "v1", tmp_path / "v2"], options)
    assert [(found.root / sample.path).name for sample in found.samples] == ["a.png", "b.png"]
    assert found.left_out.items == {"no such file": ["v1 row 1"]}


def test_labels_that_are_none_are_counted(tmp_path):
    save_dataset(tmp_path / "v1", [(embedded(n), label) for n, label in enumerate([0, 7, -1])], ["dog"])
    save_dataset(tmp_path / "v2", [(embedded(5), 0)], ["dog"])
    found = read_hugging_face([tmp_path / "v1", tmp_path / "v2"], Options(tmp_path / "p"))
    assert sorted(sample.label for sample in found.samples if sample.version != "v2") == ["", "dog"]
    assert len(found.left_out) == 1


def break_state(folder: Path, **changes: object) -> None:
    state = json.loads((folder / "state.json").read_text())
    (folder / "state.json").write_text(json.dumps(state | changes))


BAD = {
    "no dataset": (lambda f: (f / "dataset_info.json").unlink(), "was not written by `save_to_disk`"),
    "a list": (lambda f: (f / "dataset_info.json").write_text("[]"), "was not written by `save_to_disk`"),
    "no state": (lambda f: (f / "state.json").unlink(), "state.json: no such file"),
    "a path": (lambda f: break_state(f, _data_files=[{"filename": "../v1/data.arrow"}]), "is not a file in"),
    "no name": (lambda f: break_state(f, _data_files=[{"file": "x"}]), r"_data_files\[0\]: has no 'filename'"),
    "indices": (lambda f: break_state(f, _indices_data_files=[{"filename": "i"}]), "save it again after `flatten"),
    "no arrow": (lambda f: (f / "data-00000-of-00002.arrow").write_bytes(b"x" * 50), "not a valid Arrow file"),
    "cut off": (
        lambda f: (f / "data-00000-of-00002.arrow").write_bytes((f / "data-00000-of-00002.arrow").read_bytes()[:300]),
        "not a valid Arrow file",
    ),
    "empty": (lambda f: (f / "data-00000-of-00002.arrow").write_bytes(b""), "not a valid Arrow file"),
    "other columns": (
        lambda f: (f / "dataset_info.json").write_text(
            '{"features": {"image": {"_type": "Image"}, "kind": {"_type": "ClassLabel", "names": ["a"]}}}'
        ),
        "has no column 'kind'",
    ),
    "no label": (
        lambda f: (f / "dataset_info.json").write_text('{"features": {"image": {"_type": "Image"}, "n": {}}}'),
        "no column of type ClassLabel; choose one with --label-column",
    ),
    "names that are none": (
        lambda f: (f / "dataset_info.json").write_text(
            '{"features": {"image": {"_type": "Image"}, "label": {"_type": "ClassLabel", "names": [1]}}}'
        ),
        "the names of 'label' must be a list of strings",
    ),
    "wrong splits": (
        lambda f: (f / "dataset_dict.json").write_text('{"splits": "train"}'),
        "'splits' has the wrong type",
    ),
}


@pytest.mark.parametrize("case", BAD)
def test_what_is_not_a_dataset_is_refused(case, tmp_path):
    for version in ("v1", "v2"):
        save_dataset(tmp_path / version, [(embedded(n), 0) for n in range(2)], ["dog"])
    damage, message = BAD[case]
    damage(tmp_path / "v2")
    with pytest.raises(LecoError, match=message) as refused:
        read_hugging_face([tmp_path / "v1", tmp_path / "v2"], Options(tmp_path / "p"))
    assert "\n" not in str(refused.value)
