"""One folder per version, with one per class in it."""

import pytest
from tests.manifests import write_image
from tests.pictures import draw

from leco import LecoError
from leco.data.importers.folders import image_folder, read_folders
from leco.data.importers.importer import Options, Sample
from leco.data.manifest.manifest import Manifest, read_manifest


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
        "an image outside the class folders": ["v1/stray.png"],
        "in a folder inside a class folder": ["v1/dog/deep/b.png"],
        "not an image": ["v1/dog/notes.txt"],
        "a class without images": ["v2/empty"],
    }


def test_links_to_folders_are_not_followed(tmp_path):
    draw(tmp_path, "v1/dog/a.png", "v2/dog/b.png", "other/secret/c.png")
    (tmp_path / "v1" / "cat").symlink_to(tmp_path / "other" / "secret")
    (tmp_path / "v2" / "hound").symlink_to(tmp_path / "v2" / "dog")
    found = read_folders([tmp_path / "v1", tmp_path / "v2"], Options(tmp_path))
    assert [sample.label for sample in found.samples] == ["dog", "dog"]
    assert found.left_out.items == {"a symlink to a folder, which is not followed": ["v1/cat", "v2/hound"]}


def test_wrong_folders_are_refused(tmp_path):
    draw(tmp_path, "v1/dog/a.png", "v2/a.png", "file.png", "bad\nname/dog/b.png")
    one, two = tmp_path / "v1", tmp_path / "v2"
    for paths, message in (
        ([one, tmp_path / "v3"], "v3: no such file or folder"),
        ([one, tmp_path / "file.png"], "file.png: is not a folder"),
        ([one, two], "v2: no images"),
        ([one, one], "v1: is given twice"),
        ([one, tmp_path / "bad\nname"], "must not be empty, padded with blanks or contain control characters"),
    ):
        with pytest.raises(LecoError, match=message):
            read_folders(paths, Options(tmp_path))


def test_a_folder_per_version_and_class_is_a_manifest(tmp_path, street):
    names = ["v1/road/a.png", "v1/bus/b.JPG", "v2/city-bus/c.png", "test/v2/road/d.png"]
    for number, name in enumerate(names):
        write_image(tmp_path / name, number)
    (tmp_path / "ontology.yaml").touch()
    (tmp_path / "v1" / "road" / ".DS_Store").touch()
    manifest, problems = read_manifest(image_folder(tmp_path, street), street)
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
        read_manifest(image_folder(tmp_path, street), street)
    text = str(error.value)
    assert "v1/raod/b.png: label 'raod' is not a class of v1; did you mean 'road'?" in text
    assert "v5/road/c.png: in a folder that is not a version of street; valid: 'v1', 'v2', 'v3'" in text
    assert "v1/d.png: an image outside the class folders" in text
    assert "v1/road/notes.txt: not an image" in text
    assert "v1/road/more: in a folder inside a class folder" in text
    assert "v1/road/a.png: is in train, but is byte-identical to test/v1/road/copy.png" in text
    assert "row" not in text.replace("rows", "")
    manifest, problems = read_manifest(image_folder(tmp_path, street), street, skip_bad=True)
    assert sorted(manifest.inputs) == ["test/v1/road/copy.png", "test/v1/road/e.png"]
    assert len(problems) == problems.dropped == 6


def test_every_image_that_is_left_out_is_counted(tmp_path, street):
    write_image(tmp_path / "v1" / "road" / "a.png", 0)
    for number in range(5):
        write_image(tmp_path / "v9" / "road" / f"{number}.png", number + 1)
        write_image(tmp_path / "v1" / "road" / "more" / f"{number}.png", number + 10)
    (tmp_path / "v1" / "bus").symlink_to(tmp_path / "gone")
    manifest, problems = read_manifest(image_folder(tmp_path, street), street, skip_bad=True)
    assert manifest.inputs == ("v1/road/a.png",)
    assert problems.dropped == 11
    assert any("a broken symlink" in str(problem) for problem in problems.found)


def test_a_folder_without_images_is_refused(tmp_path, street):
    with pytest.raises(LecoError, match="the table has no rows"):
        read_manifest(image_folder(tmp_path, street), street)
    with pytest.raises(LecoError, match="no such folder"):
        image_folder(tmp_path / "nowhere", street)


def test_splits_of_a_manifest_may_come_before_or_after_the_version(tmp_path, street):
    names = ["v1/train/road/a.png", "v1/val/road/b.png", "v2/road/c.png", "test/v2/road/d.png"]
    for number, name in enumerate(names):
        write_image(tmp_path / name, number)
    manifest, _ = read_manifest(image_folder(tmp_path, street), street)
    splits = dict(zip(manifest.inputs, manifest.split.tolist(), strict=True))
    assert splits == dict(zip(names, ["train", "val", "train", "test"], strict=True))
