"""One folder per version, with one per class in it."""

from pathlib import Path

import pytest
from tests.pictures import draw

from leco import LecoError
from leco.data.importers.folders import read_folders
from leco.data.importers.importer import Options, Sample, common_root


def test_classes_are_folders_and_versions_are_named_after_theirs(tmp_path):
    draw(tmp_path, "v1/dog/a.png", "v1/cat/b.JPG", "v2/husky/c.png", "v2/.hidden/d.png")
    found = read_folders([tmp_path / "v1", tmp_path / "v2"], Options(tmp_path))
    assert found.root == tmp_path
    assert found.versions == ("v1", "v2")
    assert found.samples == [
        Sample("v1/cat/b.JPG", "cat", "v1"),
        Sample("v1/dog/a.png", "dog", "v1"),
        Sample("v2/husky/c.png", "husky", "v2"),
    ]
    assert not len(found.left_out)


def test_splits_may_come_between_and_must_be_all_there_is(tmp_path):
    draw(tmp_path, "old/train/dog/a.png", "new/train/dog/b.png", "new/Validation/dog/c.png", "new/test/cat/d.png")
    draw(tmp_path, "odd/train/dog/e.png", "odd/dog/f.png")
    found = read_folders([tmp_path / "old", tmp_path / "new"], Options(tmp_path))
    assert [(s.label, s.split) for s in found.samples if s.version == "new"] == [
        ("dog", "val"),
        ("cat", "test"),
        ("dog", "train"),
    ]
    odd = read_folders([tmp_path / "old", tmp_path / "odd"], Options(tmp_path))
    assert [s.label for s in odd.samples if s.version == "odd"] == ["dog"]  # `train` is a class without images
    assert "a class without images" in odd.left_out.items


def test_folders_of_one_name_and_links_to_them_become_distinct_versions(tmp_path):
    draw(tmp_path, "a/data/dog/1.png", "b/data/dog/2.png")
    (tmp_path / "link").symlink_to(tmp_path / "b" / "data")
    found = read_folders([tmp_path / "a" / "data", tmp_path / "link"], Options(tmp_path))
    assert found.versions == ("data", "data-2")
    assert found.samples[1].path == "b/data/dog/2.png"


def test_what_does_not_fit_is_counted(tmp_path):
    draw(tmp_path, "v1/dog/a.png", "v1/stray.png", "v1/dog/deep/b.png", "v2/dog/c.png")
    (tmp_path / "v1" / "dog" / "notes.txt").write_text("x")
    (tmp_path / "v1" / "readme.txt").write_text("nobody's sample")
    (tmp_path / "v2" / "empty").mkdir()
    left_out = read_folders([tmp_path / "v1", tmp_path / "v2"], Options(tmp_path)).left_out
    assert left_out.items == {
        "an image outside the folders of classes": ["v1/stray.png"],
        "a folder inside a class": ["v1/dog/deep"],
        "not an image": ["v1/dog/notes.txt"],
        "a class without images": ["v2/empty"],
    }


def test_links_to_folders_are_not_followed(tmp_path):
    draw(tmp_path, "v1/dog/a.png", "v2/dog/b.png", "other/secret/c.png")
    (tmp_path / "v1" / "cat").symlink_to(tmp_path / "other" / "secret")
    (tmp_path / "v2" / "hound").symlink_to(tmp_path / "v2" / "dog")
    found = read_folders([tmp_path / "v1", tmp_path / "v2"], Options(tmp_path))
    assert [sample.label for sample in found.samples] == ["dog", "dog"]
    assert found.left_out.items == {"a link to a folder, which is not followed": ["v1/cat", "v2/hound"]}


def test_the_whole_machine_is_no_folder_of_images():
    assert common_root([Path("/data/v1"), Path("/data/v2")]) == Path("/data")
    for folders in (["/data/v1", "/home/v2"], ["/v1", "/v2"], ["/"]):
        with pytest.raises(LecoError, match="no folder but / holds all images"):
            common_root([Path(folder) for folder in folders])


def test_wrong_folders_are_refused(tmp_path):
    draw(tmp_path, "v1/dog/a.png", "v2/a.png", "file.png", "bad\nname/dog/b.png")
    one, two = tmp_path / "v1", tmp_path / "v2"
    for paths, message in (
        ([one, tmp_path / "v3"], "v3: there is no such file or folder"),
        ([one, tmp_path / "file.png"], "file.png: is not a folder"),
        ([one, two], "v2: there are no images"),
        ([one, one], "v1: is given twice"),
        ([one, tmp_path / "bad\nname"], "must not be empty, padded with blanks or hold control characters"),
    ):
        with pytest.raises(LecoError, match=message):
            read_folders(paths, Options(tmp_path))
