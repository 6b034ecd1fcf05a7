"""The paper's benchmarks, from archives in their official layouts."""

import json
from pathlib import Path

import pytest
import torch
from PIL import Image
from tests.trees import made_up_inat, made_up_vistas, taxa, write_annotation, write_lists

from leco import LecoError
from leco.data.benchmarks import Benchmark, load

PARTS = {"l_train": 1, "u_train_in": 2, "val": 1}


def inat(root: Path) -> Benchmark:
    return load("inat-leco", root, size=200)


def same(one: Benchmark, other: Benchmark) -> None:
    """Both have the same classes, images and labels."""
    assert one.ontology.fingerprint == other.ontology.fingerprint
    for mine, theirs in ((one.pool, other.pool), (one.test, other.test)):
        assert [p.parts[-3:] for p in mine.inputs.paths] == [p.parts[-3:] for p in theirs.inputs.paths]
        everything = torch.arange(len(mine))
        for version in mine.labels:
            assert torch.equal(mine.labels[version].read(everything), theirs.labels[version].read(everything))


@pytest.fixture(scope="module")
def archives(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The unpacked archives and `annotation_v2.json`, without any list."""
    root = tmp_path_factory.mktemp("inat")
    made_up_inat(root / "semi-inat-2021", PARTS)
    write_annotation(root / "semi-inat-2021", taxa())
    return root


@pytest.fixture
def folder(archives: Path, tmp_path: Path) -> Path:
    """The same images, to be changed."""
    copy = tmp_path / "semi-inat-2021"
    copy.mkdir()
    for path in (archives / "semi-inat-2021").iterdir():
        (copy / path.name).symlink_to(path)
    return copy


def write_list(folder: Path, part: str, name: str, labels: bool = True) -> None:
    lines = [f"{part}/{c}/{n}.jpg {c if labels else -1}" for c in range(810) for n in range(PARTS[part])]
    (folder / name).write_text("\n".join(lines) + "\n")


def test_semi_inat_is_read_from_its_archives_alone(archives):
    benchmark = inat(archives)
    assert (len(benchmark.pool), len(benchmark.test)) == (3 * 810, 810)
    assert [len(version) for version in benchmark.ontology.versions] == [123, 810]
    assert benchmark.ontology["species"].classes[17] == taxa()[17]["species"]
    labels = benchmark.pool.labels["species"].read(torch.arange(len(benchmark.pool)))
    assert [int(path.parent.name) for path in benchmark.pool.inputs.paths] == labels.tolist()
    assert benchmark.pool.inputs.read(torch.tensor([0])).shape == (1, 3, 256, 256)


def test_four_levels_are_read_from_the_annotation(archives):
    benchmark = load("inat-4tp-leco", archives, size=100)
    assert [len(version) for version in benchmark.ontology.versions] == [123, 339, 729, 810]


def test_the_published_lists_and_the_archives_give_the_same_data(archives, folder):
    for part in PARTS:
        write_list(folder, part, f"{part}.txt")
    (folder / "annotation_v2.json").unlink()
    write_lists(folder, taxa())
    same(inat(folder.parent), inat(archives))


def test_the_first_name_of_the_list_of_classes_is_known(archives, folder):
    (folder / "annotation_v2.json").unlink()
    write_annotation(folder, taxa(), key="annotations")
    same(inat(folder.parent), inat(archives))


def test_an_unlabelled_list_takes_the_labels_of_the_folders(archives, folder):
    write_list(folder, "u_train_in", "u_train_in.txt", labels=False)
    same(inat(folder.parent), inat(archives))


def test_labels_that_were_released_later_win_over_a_list_without(archives, folder):
    write_list(folder, "u_train_in", "u_train_in.txt", labels=False)
    write_list(folder, "u_train_in", "u_train_in_oracle.txt")
    same(inat(folder.parent), inat(archives))


def test_an_unlabelled_list_of_images_in_one_folder_is_refused(folder):
    (folder / "u_train").mkdir()
    (folder / "u_train" / "0a1b.jpg").hardlink_to(folder / "image.jpg")
    (folder / "u_train_in.txt").write_text("u_train/0a1b.jpg -1\n")
    with pytest.raises(LecoError, match=r"u_train_in\.txt:1: .* has the label -1, .* into .*u_train_in_oracle\.txt"):
        inat(folder.parent)


def test_the_archive_of_the_released_code_is_read_too(archives, tmp_path):
    folder = tmp_path / "semi_inat"
    made_up_inat(folder, {"l_train_and_u_train_in": 3, "val": 1})
    write_annotation(folder, taxa())
    benchmark = inat(tmp_path)
    assert (len(benchmark.pool), len(benchmark.test)) == (3 * 810, 810)
    assert benchmark.ontology.fingerprint == inat(archives).ontology.fingerprint


def test_a_folder_that_is_no_class_is_named(folder):
    (folder / "val").unlink()
    (folder / "val" / "810").mkdir(parents=True)
    (folder / "val" / "810" / "0.jpg").hardlink_to(folder / "image.jpg")
    with pytest.raises(LecoError, match=r"val/810/0\.jpg: is not in a folder from 0 to 809"):
        _ = inat(folder.parent).test


def test_a_class_without_an_entry_is_named(folder):
    (folder / "annotation_v2.json").unlink()
    write_annotation(folder, taxa()[:-2] + taxa()[-1:])
    with pytest.raises(LecoError, match=r"annotation_v2\.json: does not give order, species of every label: KeyError"):
        inat(folder.parent)


NAMES = ["mapillary-vistas", "An-ZjB1Zm61yAZG0ozTymz8I8NqI4x0MrYrh26dq7kPgfu8vf9ImrdaOAVOFYbJ2pNAgUnVGBmbue9lTgdBOb5Bb"]


@pytest.mark.parametrize("name", NAMES, ids=["renamed", "as in the archive"])
def test_mapillary_is_read_whether_its_folder_is_renamed_or_not(name, tmp_path):
    made_up_vistas(tmp_path / name)
    benchmark = load("mapillary-leco-2.5k", tmp_path, size=3)
    assert [len(version) for version in benchmark.ontology.versions] == [66, 124]
    assert len(benchmark.evaluated) == 116
    assert (len(benchmark.pool), len(benchmark.test)) == (6, 2)
    mask = benchmark.pool.labels["v2.0"].read(torch.tensor([0]))
    assert set(mask.unique().tolist()) == {-1, *range(124)}  # -1: the padding
    parents = benchmark.ontology.translate(torch.arange(124), "v2.0", "v1.2")
    assert torch.equal(parents, torch.arange(124) % 66)


def test_a_folder_that_was_unpacked_without_its_own_is_found(tmp_path):
    made_up_vistas(tmp_path)
    assert len(load("mapillary-leco-2.5k", tmp_path, size=3).pool) == 6


def test_two_copies_of_mapillary_are_refused_unless_one_is_renamed(tmp_path):
    for name in ("a", "b"):
        made_up_vistas(tmp_path / name)
    with pytest.raises(LecoError, match=r"each is a copy of Mapillary Vistas; rename one of them to mapillary-vistas"):
        load("mapillary-leco-2.5k", tmp_path, size=3)
    (tmp_path / "b").rename(tmp_path / "mapillary-vistas")
    assert load("mapillary-leco-2.5k", tmp_path, size=3).pool.inputs.paths[0].parts[-4] == "mapillary-vistas"


def test_a_configuration_that_evaluates_other_classes_is_refused(tmp_path):
    made_up_vistas(tmp_path / "mapillary-vistas", evaluated=120)
    message = r"evaluates 116 of 124 classes, but the data in .* say 120 \(`evaluate` in the list of classes\)"
    with pytest.raises(LecoError, match=message):
        load("mapillary-leco-2.5k", tmp_path, size=3)


def test_masks_are_paletted_like_the_official_ones(tmp_path):
    made_up_vistas(tmp_path)
    (first, *_) = sorted((tmp_path / "training" / "v2.0" / "labels").iterdir())
    with Image.open(first) as image:
        assert image.mode == "P"
    assert set(json.loads((tmp_path / "config_v2.0.json").read_text())["labels"][0]) == {
        *("color", "instances", "readable", "name", "evaluate"),
    }
