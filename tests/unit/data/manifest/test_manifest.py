"""Manifests as a whole."""

import random

import numpy as np
import pytest
from tests.manifests import complaint, csv, write_image

from leco import LecoError
from leco.data.manifest.manifest import read_manifest


def test_paths_are_relative_to_the_root_if_one_is_given(folder, street):
    (folder / "lists").mkdir()
    path = csv(folder / "lists", "image,label,version\na.png,road,v1")
    assert "no such file" in complaint(path, street)
    assert read_manifest(path, street, root=folder)[0].root == folder
    assert "no such folder" in complaint(path, street, root=folder / "nowhere")


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


def test_a_split_can_be_left_out_with_all_that_is_wrong_with_it(folder, street):
    text = "image,label,version,split\na.png,car,v1,train\ngone.png,no,v1,test\nb.png,car,v1,\nb.png,bus,v9,test\n"
    (folder / "m.csv").write_text(text)
    manifest, problems = read_manifest(folder / "m.csv", street, without="test")
    assert (manifest.inputs, manifest.split.tolist(), problems.rows) == (("a.png",), ["train"], 1)
    (folder / "m.csv").write_text(text.replace("a.png,car", "a.png,cat"))
    with pytest.raises(LecoError, match="row 2"):
        read_manifest(folder / "m.csv", street, without="test")
    (folder / "m.csv").write_text("image,label,version,split\na.png,car,v1,test\n")
    with pytest.raises(LecoError, match="all samples are in test; there is nothing to train on"):
        read_manifest(folder / "m.csv", street, without="test")


def test_nothing_left_is_an_error_even_when_skipping(folder, street):
    path = csv(folder, "image,label,version\nnone.png,road,v1")
    assert complaint(path, street, skip_bad=True).endswith("no rows are left")


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
    assert "row 77779: d0/0.pgn: no such file; did you mean '0.png'?" in complaint(path, street, decode=False)
    manifest, problems = read_manifest(path, street, decode=False, skip_bad=True)
    kept = np.delete(np.arange(number), 77_777)
    kept = kept[np.argsort(kept % 3 == 2, stable=True)]  # test samples are last
    assert len(manifest) == number - problems.dropped == number - 1
    np.testing.assert_array_equal(manifest.labels["v1"], kept % 7)
    np.testing.assert_array_equal(manifest.period, kept % 3)
    np.testing.assert_array_equal(manifest.split, np.array(["train", "val", "test"])[kept % 3])
