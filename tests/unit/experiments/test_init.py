"""New projects: the example, and projects made from data."""

import json
from pathlib import Path

import numpy as np
import pytest
from tests.pictures import draw

from leco import LecoError, Ontology
from leco.data.importers.importer import Options
from leco.data.manifest.manifest import read_manifest
from leco.experiments.experiment import experiment
from leco.experiments.init import example, from_data

FILES = ("ontology.yaml", "labels.csv", "experiment.yaml")


def read(folder: Path):
    """Read the project as a run would."""
    wanted = experiment(str(folder / "experiment.yaml"), {}, {})
    ontology = Ontology.load(wanted.data.ontology)
    return wanted, ontology, read_manifest(wanted.data.manifest, ontology, root=wanted.data.root)[0]


def test_the_example_is_complete_and_always_the_same(tmp_path):
    for name in ("one", "two"):
        example(tmp_path / name)
    wanted, ontology, manifest = read(tmp_path / "one")
    assert wanted.method == "auto"
    assert {change.kind for change in ontology.changes("v1", "v2")} == {"split", "renamed", "kept", "added"}
    assert set(manifest.split) == {"train", "test"}
    assert min(manifest.counts(ontology.newest)["train"]) >= 5
    one, two = ({p.relative_to(f): p.read_bytes() for p in f.rglob("*") if p.is_file()} for f in tmp_path.iterdir())
    assert one == two


def test_images_stay_where_they_are_and_the_experiment_says_where(tmp_path):
    names = [f"photos/v1/{c}/{n}.png" for c in ("cat", "dog") for n in range(3)]
    names += [f"photos/v2/{c}/{n}.png" for c in ("cat", "dog-poodle", "husky") for n in range(10)]
    draw(tmp_path, *names)
    before = sorted(tmp_path.rglob("*"))
    folder = tmp_path / "new" / "project"
    made = from_data(
        folder, "images", [tmp_path / "photos" / "v1", tmp_path / "photos" / "v2"], Options(folder), strict=True
    )
    assert sorted(path.name for path in folder.iterdir()) == sorted(FILES)
    assert [path for path in sorted(tmp_path.rglob("*")) if folder.parent not in (path, *path.parents)] == before
    assert made.moved == 6
    assert made.steps[0].open == {"dog-poodle": ["dog"], "husky": []}
    ontology = Ontology.load(folder / "ontology.yaml")
    assert ontology.newest.classes == ("cat", "dog-poodle", "husky")
    with pytest.raises(LecoError, match="3 impossible label"):  # until someone says what became of dogs
        read(folder)
    text = (folder / "ontology.yaml").read_text()
    text = text.replace("dog-poodle:", "dog-poodle: {from: dog}").replace("husky:", "husky: {from: dog}")
    (folder / "ontology.yaml").write_text(text)
    wanted, ontology, manifest = read(folder)
    assert wanted.data.root == tmp_path / "photos"
    assert manifest.inputs[0] == "v1/cat/0.png"
    assert manifest.counts(ontology.newest) == {"train": [8, 8, 8], "val": [0, 0, 0], "test": [2, 2, 2]}


def test_origins_that_names_leave_no_doubt_about_need_not_be_written(tmp_path):
    draw(tmp_path, *(f"v1/{c}/{n}.png" for c in ("cat", "dog") for n in range(3)))
    draw(tmp_path, *(f"v2/{c}/{n}.png" for c in ("cat", "dog-poodle", "husky dog") for n in range(10)))
    folder = tmp_path / "project"
    made = from_data(folder, "images", [tmp_path / "v1", tmp_path / "v2"], Options(folder))
    (step,) = made.steps
    assert step.guessed == {"dog-poodle": {"from": "dog"}, "husky dog": {"from": "dog"}}
    assert (step.open, step.orphans) == ({}, ())
    _, ontology, manifest = read(folder)
    assert ontology.translate(["husky dog"], "v2", "v1") == ["dog"]
    assert len(manifest) == 36


def test_images_labelled_in_both_versions_show_which_class_came_from_which(tmp_path):
    draw(tmp_path, *(f"{n}.png" for n in range(12)))
    for version, labels in (("old", ["dog", "cat"]), ("new", ["husky", "lynx"])):
        rows = [f"{n}.png,{labels[n % 2]}" for n in range(12)]
        (tmp_path / f"{version}.csv").write_text("\n".join(["image,label", *rows]) + "\n")
    folder = tmp_path / "project"
    made = from_data(folder, "csv", [tmp_path / "old.csv", tmp_path / "new.csv"], Options(folder))
    assert "5 of 5 samples labelled in both were dog" in made.steps[0].inferred["husky"]  # one is for testing
    _, ontology, manifest = read(folder)
    assert ontology.translate(["husky", "lynx"], "new", "old") == ["dog", "cat"]
    assert len(manifest) == 12
    assert np.array_equal(manifest.labels["old"] == 0, manifest.labels["new"] == 1)


def test_labels_of_test_images_are_not_used_to_guess(tmp_path):
    draw(tmp_path, *(f"{n}.png" for n in range(20)))
    for version, label in (("old", "dog"), ("new", "husky")):
        rows = [f"{n}.png,{label},{'test' if n else 'train'}" for n in range(20)]
        (tmp_path / f"{version}.csv").write_text("\n".join(["image,label,split", *rows]) + "\n")
    folder = tmp_path / "project"
    made = from_data(folder, "csv", [tmp_path / "old.csv", tmp_path / "new.csv"], Options(folder))
    assert made.steps[0].inferred == {}
    assert made.steps[0].open == {"husky": ["dog"]}
    assert "except test images" in (folder / "ontology.yaml").read_text()


def test_what_was_left_out_is_listed_in_a_file(tmp_path):
    draw(tmp_path, "a.png", "b.png")
    rows = [*(f"{n}\x1b[31m.png,dog" for n in range(30)), "a.png,dog"]
    (tmp_path / "v1.csv").write_text("\n".join(["image,label", *rows]) + "\n")
    (tmp_path / "v2.csv").write_text("image,label\nb.png,dog\n")
    folder = tmp_path / "project"
    made = from_data(folder, "csv", [tmp_path / "v1.csv", tmp_path / "v2.csv"], Options(folder))
    listed = (folder / "left-out.txt").read_text().splitlines()
    assert len(listed) == 30
    assert all(line.isprintable() and "no such file" in line for line in listed)
    assert made.source.left_out.summary()[0].startswith("30 left out: no such file: ")


def test_nothing_is_overwritten_and_nothing_half_written_stays(tmp_path):
    draw(tmp_path, "v1/dog/a.png", "v2/dog/b.png", "full/x.png")
    (tmp_path / "file").touch()
    (tmp_path / "empty").mkdir()
    for folder in (tmp_path / "full", tmp_path / "file", tmp_path / "new" / ".." / "full"):
        with pytest.raises(LecoError, match="is not an empty folder"):
            example(folder)
    bad, worse = tmp_path / "bad.json", tmp_path / "worse.json"
    for path in (bad, worse):
        path.write_text(json.dumps({"images": []}))
    for folder in (tmp_path / "empty", tmp_path / "some" / "where"):
        with pytest.raises(LecoError, match="has no 'categories'"):
            from_data(folder, "coco", [bad, worse], Options(folder))
    assert list((tmp_path / "empty").iterdir()) == []
    assert [path.name for path in (tmp_path / "full").iterdir()] == ["x.png"]
    assert not (tmp_path / "some").exists()
    with pytest.raises(LecoError, match="cannot be created"):
        example(tmp_path / "file" / "inside")
