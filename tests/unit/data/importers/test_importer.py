"""Samples that a manifest would refuse, the test split, and the folder of all images."""

from collections import Counter
from pathlib import Path

import pytest
from tests.pictures import content, draw

from leco import LecoError
from leco.data.importers.importer import Sample, Source, add_test_split, clean, common_root


def source(root, *samples: Sample) -> Source:
    return Source(root, ("v1", "v2"), list(samples))


def test_files_with_the_same_bytes_are_one_sample_labelled_twice(tmp_path):
    draw(tmp_path, "old/a.png", "new/b.png")
    (tmp_path / "new" / "copy.png").write_bytes((tmp_path / "old" / "a.png").read_bytes())
    found = clean(
        source(
            tmp_path,
            Sample("old/a.png", "dog", "v1", "train"),
            Sample("new/copy.png", "husky", "v2", "test"),
            Sample("new/b.png", "cat", "v2"),
        )
    )
    assert found.samples == [
        Sample("old/a.png", "dog", "v1", "test"),  # all of it is where it must not be trained on
        Sample("old/a.png", "husky", "v2", "test"),
        Sample("new/b.png", "cat", "v2"),
    ]
    assert "1 files are byte-identical to another one" in found.remarks[0]
    assert "1 images in several splits were moved" in found.remarks[1]


def test_labels_that_differ_in_the_spelling_of_accents_are_one_class(tmp_path):
    draw(tmp_path, "a.png", "b.png", "c.png")
    labels = [("a.png", "caf\u00e9"), ("b.png", "cafe\u0301"), ("c.png", "cafe")]
    found = clean(source(tmp_path, Sample("a.png", "x", "v2"), *(Sample(path, label, "v1") for path, label in labels)))
    assert found.classes() == {"v1": ["cafe", "caf\u00e9"], "v2": ["x"]}


def test_repetitions_are_dropped_and_contradictions_left_out(tmp_path):
    draw(tmp_path, "a.png", "b.png", "c.png")
    found = clean(
        source(
            tmp_path,
            Sample("a.png", "dog", "v1"),
            Sample("a.png", "dog", "v1"),
            Sample("a.png", "", ""),
            Sample("b.png", "dog", "v2"),
            Sample("b.png", "cat", "v2"),
            Sample("c.png", "cat", "v2"),
        )
    )
    assert found.samples == [Sample("a.png", "dog", "v1"), Sample("c.png", "cat", "v2")]
    assert found.left_out.items == {"several labels in one version": ["b.png: cat, dog in v2"]}


def test_odd_names_and_missing_files_are_counted(tmp_path):
    draw(tmp_path, "a.png", " b.png", "x\ry.png", "c.txt", "d.png", "e.png")
    (tmp_path / "empty.png").touch()
    (tmp_path / "out.png").symlink_to("/etc/hostname")
    odd = ["<script>alert(1)</script>", "..", "a\nb", "x" * 300, "ok"]
    samples = [Sample("a.png", label, f"v{n % 2 + 1}") for n, label in enumerate(odd[2:4])]
    unfit = (" b.png", "x\ry.png", "c.txt", "missing.png", "empty.png", "out.png", "\udc80.png", "../a.png", "C:/a.png")
    samples += [Sample(name, "ok", "v1") for name in unfit]
    samples += [Sample("d.png", odd[0], "v1"), Sample("e.png", odd[1], "v2")]
    found = clean(source(tmp_path, *samples))
    assert [sample.label for sample in found.samples] == odd[:2]  # printable, so they are names like any other
    assert sum(map(len, found.left_out.items.values())) == len(samples) - 2
    assert all(line.isprintable() for line in found.left_out.summary())
    assert found.left_out.to_text().count("\n") == len(samples) - 2


def test_a_version_of_which_nothing_is_left_is_refused(tmp_path):
    draw(tmp_path, "a.png")
    with pytest.raises(LecoError, match=r"labelled in v2; 1 left out: no such file: b.png"):
        clean(source(tmp_path, Sample("a.png", "dog", "v1"), Sample("b.png", "dog", "v2")))


def newest(count: int, label: str, split: str = "") -> list[Sample]:
    return [Sample(f"{label}/{number}.png", label, "v2", split) for number in range(count)]


def test_a_fifth_of_every_newest_class_is_moved_to_test(tmp_path):
    samples = [*newest(20, "dog"), *newest(5, "cat"), *newest(2, "rare"), Sample("cat/0.png", "pet", "v1")]
    found, moved = add_test_split(source(tmp_path, *samples))
    tested = Counter(sample.label for sample in found.samples if sample.split == "test" and sample.version == "v2")
    assert tested == {"dog": 4, "cat": 1}
    assert moved == 5
    assert {sample.split for sample in found.samples} == {"train", "test"}
    both = [sample.split for sample in found.samples if sample.path == "cat/0.png"]
    assert len(set(both)) == 1
    assert add_test_split(source(tmp_path, *samples))[0].samples == found.samples
    fewer, _ = add_test_split(source(tmp_path, *newest(20, "dog")))
    assert fewer.samples == found.samples[:20]  # other classes do not change what this one is tested with


def test_a_test_split_is_left_as_it_is_and_validation_is_not_touched(tmp_path):
    given = source(tmp_path, *newest(20, "dog", "train"), *newest(3, "cat", "test"))
    assert add_test_split(given) == (given, 0)
    found, moved = add_test_split(source(tmp_path, *newest(10, "dog", "train"), *newest(10, "cat", "val")))
    assert moved == 2
    assert all(sample.split == "val" for sample in found.samples if sample.label == "cat")


def test_the_same_number_makes_the_same_picture():
    assert content(3) == content(3) != content(4)


def test_the_whole_machine_is_not_a_folder_of_images():
    assert common_root([Path("/data/v1"), Path("/data/v2")]) == Path("/data")
    for folders in (["/data/v1", "/home/v2"], ["/v1", "/v2"], ["/"]):
        with pytest.raises(LecoError, match="only / contains all images"):
            common_root([Path(folder) for folder in folders])
