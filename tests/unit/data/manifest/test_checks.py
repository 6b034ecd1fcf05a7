"""Cells, paths, samples on several rows, and leaks."""

import os

import numpy as np
import pytest
from tests.manifests import complaint, csv, write_image

from leco import Ontology
from leco.data.manifest.manifest import read_manifest


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ("a.png,road,v9,,", "row 2: a.png: 'v9' is not a version of street; valid: 'v1', 'v2', 'v3'"),
        ("a.png,raod,v1,,", "row 2: a.png: label 'raod' is not a class of v1; did you mean 'road'?"),
        ("a.png,zebra,v2,,", "row 2: a.png: label 'zebra' is not a class of v2; valid: 'void', 'road'"),
        ("a.png,road,,,", "row 2: a.png: label 'road' has no version; valid: 'v1', 'v2', 'v3'"),
        ("a.png,fax,v1,,", "row 2: a.png: label 'fax' of v1 is impossible: no class of v3 comes from it"),
        ("a.png,road,v1,tets,", "row 2: a.png: 'tets' is not a split; did you mean 'test'?"),
        ("a.png,road,v1,,-1", "row 2: a.png: period '-1' is not an integer from 0 to 2"),
        ("a.png,road,v1,,1.5", "period '1.5'"),
        ("a.png,road,v1,,3", "period '3' is not an integer from 0 to 2; each version has one"),
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
    assert "is the name of several classes of genus; use an id: 'Lycaenidae/Satyrium' or" in complaint(path, ontology)
    manifest, problems = read_manifest(path, ontology, skip_bad=True)
    assert manifest.labels["genus"].tolist() == [1]
    assert problems.counts == {"ambiguous label": 1}


def test_missing_empty_and_odd_files_are_named(folder, street):
    (folder / "empty.png").touch()
    (folder / "sub").mkdir()
    (folder / "dangling.png").symlink_to(folder / "gone.png")
    rows = ["aa.png", "empty.png", "sub", "nowhere/a.png", "sub\\a.png", "a.png/b.png", "a\0.png", "dangling.png"]
    text = complaint(csv(folder, "image,label,version\n" + "\n".join(f"{r},road,v1" for r in rows)), street)
    assert "row 2: aa.png: no such file; did you mean 'a.png'?" in text
    assert "row 3: empty.png: is empty (0 bytes)" in text
    assert "row 4: sub: is a folder" in text
    assert "row 5: nowhere/a.png: no such file; the folder 'nowhere' does not exist" in text
    assert "row 6: sub\\a.png: no such file; separate folders by /" in text
    assert "row 7: a.png/b.png: no such file" in text
    assert "row 8: a\\x00.png: no such file" in text
    assert "row 9: dangling.png: no such file; it is a broken symlink" in text
    assert text.startswith(f"{folder / 'labels.csv'}: 8 problems (6 missing file")


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no pipes here")
def test_a_pipe_is_not_waited_for(folder, street):
    os.mkfifo(folder / "pipe.png")
    assert "is not a regular file" in complaint(csv(folder, "image,label,version\npipe.png,road,v1"), street)


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
    assert problems.counts == {"outside the root": 6}
    masks = csv(root, "image,mask,version\nb.png,../outside/a.png,v1")
    assert "../outside/a.png: is outside the root" in complaint(masks, street)


def test_a_repeated_sample_is_a_problem_and_the_first_one_stays(folder, street):
    path = csv(folder, "image,label,version\na.png,road,v1\nb.png,bus,v1\n./a.png,road,v1\nc.png,,\nc.png,,")
    text = complaint(path, street)
    assert "row 4: ./a.png: repeats the sample of row 2 under v1" in text
    assert "row 6: c.png: repeats the sample of row 5" in text
    manifest, problems = read_manifest(path, street, skip_bad=True)
    assert manifest.inputs == ("a.png", "b.png", "c.png")
    assert problems.dropped == 2


def test_of_two_labels_of_one_version_neither_is_believed(folder, street):
    path = csv(folder, "image,label,version\na.png,road,v1\nb.png,bus,v1\na.png,bus,v1\na.png,road,v2")
    text = complaint(path, street)
    assert "row 2: a.png: label 'road' under v1 contradicts 'bus' in row 4" in text
    assert "row 4: a.png: label 'bus' under v1 contradicts 'road' in row 2" in text
    manifest, _ = read_manifest(path, street, skip_bad=True)
    assert manifest.labels["v1"].tolist() == [street["v1"].index("bus"), -1]
    assert manifest.inputs == ("b.png", "a.png")


def test_a_sample_in_train_and_test_is_a_leak_and_the_test_set_keeps_it(folder, street):
    path = csv(folder, "image,label,version,split\na.png,road,v1,train\na.png,road,v2,test\nb.png,bus,v1,")
    assert "row 2: a.png: is in split train here, but in test in row 3" in complaint(path, street)
    manifest, problems = read_manifest(path, street, skip_bad=True)
    assert dict(zip(manifest.inputs, manifest.split.tolist(), strict=True)) == {"a.png": "test", "b.png": "train"}
    assert problems.counts == {"leak": 1}


def test_an_empty_split_follows_the_other_rows_of_the_sample_even_if_they_are_bad(folder, street):
    path = csv(folder, "image,label,version,split\na.png,raod,v1,test\na.png,road,v2,\nb.png,road,v1,")
    manifest, _ = read_manifest(path, street, skip_bad=True)
    assert dict(zip(manifest.inputs, manifest.split.tolist(), strict=True)) == {"a.png": "test", "b.png": "train"}


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
    assert "row 2: a.png: is in train, but is byte-identical to copy.png, which is in test" in text
    assert read_manifest(path, street, skip_bad=True)[0].inputs == ("b.png", "alike.png", "copy.png")
    assert len(read_manifest(path, street, decode=False)[0]) == 4  # reads no file


def test_files_that_differ_only_at_the_front_are_not_a_leak(tmp_path, street):
    for name, first in (("a.npy", 1.0), ("b.npy", 2.0)):
        np.save(tmp_path / name, np.array([first] + [0.0] * 5000))
    path = csv(tmp_path, "features,label,version,split\na.npy,road,v1,train\nb.npy,road,v1,test")
    assert len(read_manifest(path, street)[0]) == 2


def test_a_class_called_by_name_and_by_id_is_the_same(folder, tmp_path):
    versions = [{"name": "v1", "classes": ["car"]}, {"name": "v2", "classes": {"automobile": {"renamed": "car"}}}]
    ontology = Ontology.from_dict({"versions": versions})
    path = csv(folder, "image,label,version\na.png,automobile,v2\na.png,car,v2")
    assert "repeats the sample of row 2 under v2" in complaint(path, ontology)
