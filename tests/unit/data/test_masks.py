import struct
import zlib
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from leco import LecoError
from leco.data.masks import MaskClasses, count_masks, pair_masks, read_mask
from leco.ontology.inference import infer, parents


def write_masks(folder: Path, masks: dict[str, list[list[int]]], dtype: type = np.uint8) -> Path:
    for name, values in masks.items():
        path = folder / f"{name}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(np.array(values, dtype=dtype)).save(path)
    return folder


def write_classes(path: Path, names: list[str]) -> MaskClasses:
    path.write_text("id,name\n" + "".join(f"{value},{name}\n" for value, name in enumerate(names)))
    return MaskClasses.load(path, ignored=["void"])


def test_masks_are_counted_over_pixels_and_images(tmp_path):
    old = write_masks(tmp_path / "old", {"a": [[0, 0, 1], [1, 1, 2]], "sub/b": [[0, 0, 0], [0, 0, 0]], "c": [[0]]})
    new = write_masks(tmp_path / "new", {"a": [[0, 0, 2], [2, 1, 2]], "sub/b": [[0, 1, 1], [1, 3, 1]]})
    pairs, alone = pair_masks(old, new)
    assert [path.name for path, _ in pairs] == ["a.png", "b.png"]
    assert alone == [old / "c.png"]
    old_classes = write_classes(tmp_path / "old.csv", ["road", "bus", "void"])
    new_classes = write_classes(tmp_path / "new.csv", ["road", "lane", "coach", "void", "tram"])
    ticks = []
    colabels = count_masks(pairs, old_classes, new_classes, tick=ticks.append)
    assert colabels.new == ("road", "lane", "coach", "tram")
    assert colabels.counts.toarray().tolist() == [[3, 0], [4, 1], [0, 2], [0, 0]]
    assert colabels.seen_in.tolist() == [2, 2, 1, 0]
    assert ticks == [1, 2]
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
    with pytest.raises(LecoError, match=r"no mask of .* has the name of one in"):
        pair_masks(old, other)
    with pytest.raises(LecoError, match="no such folder"):
        pair_masks(old, tmp_path / "missing")
    (tmp_path / "empty").mkdir()
    with pytest.raises(LecoError, match="has no masks"):
        pair_masks(old, tmp_path / "empty")
    colour = tmp_path / "colour"
    colour.mkdir()
    Image.new("RGB", (2, 1)).save(colour / "a.png")
    with pytest.raises(LecoError, match="is not a mask, which has one channel of class indices, but a RGB image"):
        count_masks(pair_masks(old, colour)[0])
    (colour / "a.png").write_bytes((old / "a.png").read_bytes()[:40])
    with pytest.raises(LecoError, match=r"is not an image \(PNG, TIFF, BMP\)"):
        count_masks(pair_masks(old, colour)[0])


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("value,name\n0,road\n", "has no column 'id'"),
        ("id,name\nx,road\n", "row 2: id 'x' is not an integer"),
        ("id,name\n0,road\n0,bus\n", "row 3: duplicate id 0"),
        ("id,name\n0,\n", "row 2: a class name must not be empty"),
        ("id,name\n70000,road\n", "is above 65535"),
        ("", "has no column 'id'"),
        ("id,name\n", "lists no classes"),
        ("id,name\n²,road\n", "id '²' is not an integer"),
        ('id,name\n0,"road\n', "not valid CSV: unexpected end of data"),
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
        ("7", "has no list `labels`"),
        ("[1, 2]", r"labels\[0\] has no `name` that is text"),
        ('{"labels": [{"name": null}]}', r"labels\[0\] has no `name` that is text"),
        ('{"labels": [], "labels": []}', "duplicate key 'labels'"),
        ('{"labels": [', "config.json:1: not valid JSON"),
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
    with pytest.raises(LecoError, match=r"a\.png: has the same name as a\.bmp"):
        pair_masks(old, old)
    pages = tmp_path / "pages.tif"
    Image.new("L", (2, 1)).save(pages, save_all=True, append_images=[Image.new("L", (2, 1))])
    with pytest.raises(LecoError, match="but several images"):
        read_mask(pages)
    four_bits = tmp_path / "four.png"
    _write_grey_png(four_bits, bits=4)
    with pytest.raises(LecoError, match="a greyscale image of 4 bits; save it with 8 bits"):
        read_mask(four_bits)
    tiff = tmp_path / "inverted.tif"
    Image.new("L", (2, 1)).save(tiff, tiffinfo={262: 0})
    with pytest.raises(LecoError, match="a TIFF in which white is zero"):
        read_mask(tiff)
    one_bit = tmp_path / "one.png"
    Image.fromarray(np.array([[False, True]])).save(one_bit)
    assert read_mask(one_bit).tolist() == [[0, 1]]
    disguised = tmp_path / "photo.png"
    Image.new("L", (8, 8)).save(disguised, format="JPEG")
    with pytest.raises(LecoError, match=r"is not an image \(PNG, TIFF, BMP\)"):
        read_mask(disguised)
