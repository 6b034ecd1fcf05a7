import struct
import zlib
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from leco import LecoError
from leco.ontology.inference import CoLabels, infer, parents, read_pairs
from leco.ontology.masks import MaskClasses, count_masks, pair_masks, read_mask


def write_masks(folder: Path, masks: dict[str, list[list[int]]], dtype: type = np.uint8) -> Path:
    for name, values in masks.items():
        path = folder / f"{name}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(np.array(values, dtype=dtype)).save(path)
    return folder


def write_classes(path: Path, names: list[str]) -> MaskClasses:
    path.write_text("id,name\n" + "".join(f"{value},{name}\n" for value, name in enumerate(names)))
    return MaskClasses.load(path, ignored=["void"])


SAMPLES = (
    [("dog", "husky")] * 9 + [("cat", "husky")] + [("dog", "pet")] * 5 + [("cat", "pet")] * 5 + [("cat", "lynx")] * 2
)


def test_the_majority_parent_and_its_conflicts_are_found():
    husky, pet, lynx = parents(CoLabels.count(SAMPLES))
    assert (husky.parent, husky.share, husky.count, husky.status) == ("dog", 0.9, 10, "decided")
    assert husky.conflict == pytest.approx(0.1)
    assert 0.55 < husky.at_least < 0.6  # Wilson, 9 of 10
    assert pet.status == "mixed"  # half and half: no majority, however often it is seen
    assert (lynx.parent, lynx.status) == ("cat", "rare")


def test_a_tree_takes_the_majority_and_a_soft_transition_the_measured_shares():
    colabels = CoLabels.count(SAMPLES)
    tree, soft = infer(colabels), infer(colabels, kind="soft", min_share=0)
    assert tree.transition("v2", "v1").shares.tolist() == [[1, 0], [1, 0], [0, 1]]
    np.testing.assert_allclose(soft.transition("v2", "v1").shares, [[0.9, 0.1], [0.5, 0.5], [0, 1]], rtol=1e-6)
    pruned = infer(colabels, kind="soft", min_share=0.2)
    np.testing.assert_allclose(pruned.transition("v2", "v1").shares, [[1, 0], [0.5, 0.5], [0, 1]])
    np.testing.assert_allclose(colabels.shares.toarray().sum(axis=1), 1)


def test_the_inferred_transition_equals_counting_with_loops():
    generator = np.random.default_rng(0)
    pairs = [(f"o{generator.integers(3)}", f"n{generator.integers(5)}") for _ in range(300)]
    ontology = infer(CoLabels.count(pairs), kind="soft")
    shares = ontology.transition("v2", "v1").shares
    for new in ontology["v2"].classes:
        of_new = [old for old, name in pairs if name == new]
        for old in ontology["v1"].classes:
            share = shares[ontology["v2"].index(new), ontology["v1"].index(old)].item()
            assert share == pytest.approx(of_new.count(old) / len(of_new))


def test_an_old_class_that_nothing_comes_from_says_nothing_any_more():
    merged = [("car", "vehicle")] * 8 + [("truck", "vehicle")] * 3
    tree = infer(CoLabels.count(merged))
    assert tree["v2"].ignored == ("truck",)
    assert (tree.evidence().rows(["truck"], "v1") == 0).all()
    assert infer(CoLabels.count(merged), kind="soft")["v2"].ignored == ()


def test_same_names_are_kept_and_ignored_labels_say_nothing():
    pairs = [("road", "road")] * 5 + [("road", "lane")] * 5 + [("void", "lane"), ("road", "void"), ("", "road")]
    ontology = infer(CoLabels.count(pairs, ignore=["void"]))
    assert {change.kind for change in ontology.changes("v1", "v2")} == {"carved"}
    assert ontology["v1"].ignored == ontology["v2"].ignored == ("void",)


def test_a_table_is_read_row_by_row(tmp_path):
    path = tmp_path / "labels.csv"
    path.write_text("image,coarse,fine\n1.png,dog,husky\n2.png, dog ,poodle\n3.png,cat,\n4.png,cat\n")
    assert list(read_pairs(path, "coarse", "fine")) == [("dog", "husky"), ("dog", "poodle"), ("cat", ""), ("cat", "")]
    with pytest.raises(LecoError, match=r"has no column 'corse'; did you mean 'coarse'\?"):
        list(read_pairs(path, "corse", "fine"))
    with pytest.raises(LecoError, match="in the same column"):
        list(read_pairs(path, "fine", "fine"))
    for text, message in (
        ('coarse,fine\ndog,"husky\ncat,lynx\n', r"labels\.csv:3: is not CSV"),
        ("coarse,fine\ndog,husky,x\n", r"labels\.csv:2: 3 cells, but the header names 2"),
        ("coarse,fine,fine\ndog,husky,x\n", "has several columns 'fine'"),
    ):
        path.write_text(text)
        with pytest.raises(LecoError, match=message):
            list(read_pairs(path, "coarse", "fine"))
    with pytest.raises(LecoError, match="there is no such file"):
        list(read_pairs(tmp_path / "missing.csv", "a", "b"))


def test_no_overlap_and_unknown_ignored_labels_are_said():
    with pytest.raises(LecoError, match="no sample is labelled in both versions"):
        CoLabels.count([("dog", ""), ("", "husky")])
    with pytest.raises(LecoError, match=r"the ignored label 'viod' does not occur; did you mean 'void'\?"):
        CoLabels.count([("dog", "husky"), ("void", "husky")], ignore=["viod"])


def test_masks_are_counted_over_pixels_and_images(tmp_path):
    old = write_masks(tmp_path / "old", {"a": [[0, 0, 1], [1, 1, 2]], "sub/b": [[0, 0, 0], [0, 0, 0]], "c": [[0]]})
    new = write_masks(tmp_path / "new", {"a": [[0, 0, 2], [2, 1, 2]], "sub/b": [[0, 1, 1], [1, 3, 1]]})
    pairs, alone = pair_masks(old, new)
    assert [path.name for path, _ in pairs] == ["a.png", "b.png"]
    assert alone == [old / "c.png"]
    old_classes = write_classes(tmp_path / "old.csv", ["road", "bus", "void"])
    new_classes = write_classes(tmp_path / "new.csv", ["road", "lane", "coach", "void", "tram"])
    ticks = []
    colabels = count_masks(pairs, old_classes, new_classes, tick=lambda: ticks.append(1))
    assert colabels.new == ("road", "lane", "coach", "tram")
    assert colabels.counts.toarray().tolist() == [[3, 0], [4, 1], [0, 2], [0, 0]]
    assert colabels.seen_in.tolist() == [2, 2, 1, 0]
    assert len(ticks) == 2
    found = {parent.new: (parent.parent, parent.status) for parent in parents(colabels)}
    assert found["tram"] == ("", "unseen")
    assert found["lane"] == ("road", "rare")
    ontology = infer(colabels)
    assert ontology["v1"].ignored == ("void",)
    assert ontology.translate(["lane", "coach", "tram"], "v2", "v1") == ["road", "bus", ""]


def test_values_name_the_classes_where_no_list_does(tmp_path):
    old = write_masks(tmp_path / "old", {"a": [[7, 7]]}, np.uint16)
    new = write_masks(tmp_path / "new", {"a": [[300, 12]]}, np.uint16)
    colabels = count_masks(pair_masks(old, new)[0])
    assert (colabels.old, colabels.new) == (("7",), ("12", "300"))


def test_wrong_masks_are_named(tmp_path):
    classes = write_classes(tmp_path / "classes.csv", ["road", "bus"])
    old = write_masks(tmp_path / "old", {"a": [[0, 1]]})
    beyond = write_masks(tmp_path / "beyond", {"a": [[0, 9]]})
    with pytest.raises(
        LecoError, match=r"a.png: pixel \(row 0, column 1\) has the value 9, .* the nearest is 1 \(bus\)"
    ):
        count_masks(pair_masks(old, beyond)[0], classes, classes)
    larger = write_masks(tmp_path / "larger", {"a": [[0, 1, 1]]})
    with pytest.raises(LecoError, match=r"larger/a.png: is 3x1, but .*old/a.png is 2x1"):
        count_masks(pair_masks(old, larger)[0], classes, classes)
    other = write_masks(tmp_path / "other", {"b": [[0, 1]]})
    with pytest.raises(LecoError, match=r"no label map of .* has the name of one in"):
        pair_masks(old, other)
    with pytest.raises(LecoError, match="there is no such folder"):
        pair_masks(old, tmp_path / "missing")
    (tmp_path / "empty").mkdir()
    with pytest.raises(LecoError, match="holds no label maps"):
        pair_masks(old, tmp_path / "empty")
    colour = tmp_path / "colour"
    colour.mkdir()
    Image.new("RGB", (2, 1)).save(colour / "a.png")
    with pytest.raises(LecoError, match="a label map has one channel of class ids; this is a RGB image"):
        count_masks(pair_masks(old, colour)[0])
    (colour / "a.png").write_bytes((old / "a.png").read_bytes()[:40])
    with pytest.raises(LecoError, match="cannot be read as a label map"):
        count_masks(pair_masks(old, colour)[0])


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("value,name\n0,road\n", "has no column 'id'"),
        ("id,name\nx,road\n", "row 2: the id 'x' is not a whole number"),
        ("id,name\n0,road\n0,bus\n", "row 3: the id 0 stands there twice"),
        ("id,name\n0,\n", "row 2: a class name must not be empty"),
        ("id,name\n70000,road\n", "is above 65535"),
        ("", "has no column 'id'"),
        ("id,name\n", "holds no classes"),
        ("id,name\n²,road\n", "the id '²' is not a whole number"),
        ('id,name\n0,"road\n', "is not CSV: unexpected end of data"),
    ],
)
def test_a_wrong_class_list_is_named(content, message, tmp_path):
    path = tmp_path / "classes.csv"
    path.write_text(content)
    with pytest.raises(LecoError, match=message):
        MaskClasses.load(path)


def test_a_class_list_may_be_json_with_ids_or_by_position(tmp_path):
    path = tmp_path / "config.json"
    path.write_text('{"labels": [{"name": "bird"}, {"name": "curb"}]}')
    assert MaskClasses.load(path).names == {0: "bird", 1: "curb"}
    path.write_text('{"labels": [{"name": "plate", "id": -1}, {"name": "curb", "id": 7}]}')
    assert MaskClasses.load(path).names == {7: "curb"}
    for text, message in (
        ("7", "holds no list `labels`"),
        ("[1, 2]", r"labels\[0\] has no `name` that is text"),
        ('{"labels": [{"name": null}]}', r"labels\[0\] has no `name` that is text"),
        ('{"labels": [], "labels": []}', "'labels' stands twice"),
        ('{"labels": [', "config.json:1: this is not JSON"),
    ):
        path.write_text(text)
        with pytest.raises(LecoError, match=message):
            MaskClasses.load(path)


def _write_grey_png(path: Path, bits: int) -> None:
    """A PNG of 2 x 1 pixels with the values 0 and 1, which Pillow itself only writes with 8 bits."""

    def chunk(kind: bytes, content: bytes) -> bytes:
        return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))

    header = struct.pack(">IIBBBBB", 2, 1, bits, 0, 0, 0, 0)
    pixels = zlib.compress(b"\0\x01")
    path.write_bytes(b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", pixels) + chunk(b"IEND", b""))


def test_masks_that_could_be_mistaken_are_refused(tmp_path):
    old = write_masks(tmp_path / "old", {"a": [[0, 1]]})
    Image.new("L", (2, 1)).save(old / "a.bmp")
    with pytest.raises(LecoError, match=r"a\.png: is there as a\.bmp, too"):
        pair_masks(old, old)
    pages = tmp_path / "pages.tif"
    Image.new("L", (2, 1)).save(pages, save_all=True, append_images=[Image.new("L", (2, 1))])
    with pytest.raises(LecoError, match="this is several images"):
        read_mask(pages)
    four_bits = tmp_path / "four.png"
    _write_grey_png(four_bits, bits=4)
    with pytest.raises(LecoError, match="a grey image of 4 bits; save it with 8 bits"):
        read_mask(four_bits)
    tiff = tmp_path / "inverted.tif"
    Image.new("L", (2, 1)).save(tiff, tiffinfo={262: 0})
    with pytest.raises(LecoError, match="a TIFF whose white is zero"):
        read_mask(tiff)
    one_bit = tmp_path / "one.png"
    Image.fromarray(np.array([[False, True]])).save(one_bit)
    assert read_mask(one_bit).tolist() == [[0, 1]]
    disguised = tmp_path / "photo.png"
    Image.new("L", (8, 8)).save(disguised, format="JPEG")
    with pytest.raises(LecoError, match="cannot be read as a label map"):
        read_mask(disguised)
