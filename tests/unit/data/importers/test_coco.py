"""COCO's JSON, for classification."""

import json

import pytest
from tests.pictures import draw

from leco import LecoError
from leco.data.importers.coco import read_coco
from leco.data.importers.importer import Options, Sample

GOOD = {
    "info": {"year": 2020},
    "categories": [
        {"id": 1, "name": "dog", "supercategory": "pet"},
        {"id": 7, "name": "cat"},
        {"id": 9, "name": "yak"},
    ],
    "images": [
        {"id": 10, "file_name": "a.png", "width": 12, "height": 12},
        {"id": 11, "file_name": "sub/b.png"},
        {"id": 12, "file_name": "c.png"},
        {"id": 13, "file_name": "d.png"},
        {"id": 14, "file_name": "missing.png"},
    ],
    "annotations": [
        {"id": 1, "image_id": 10, "category_id": 1, "bbox": [0, 0, 1, 1]},
        {"id": 2, "image_id": 10, "category_id": 1},
        {"id": 3, "image_id": 11, "category_id": 7},
        {"id": 4, "image_id": 12, "category_id": 1},
        {"id": 5, "image_id": 12, "category_id": 7},
        {"id": 6, "image_id": 14, "category_id": 7},
        {"id": 7, "image_id": 99, "category_id": 7},
        {"id": 8, "image_id": 13, "category_id": 8},
    ],
}


@pytest.fixture
def folder(tmp_path):
    draw(tmp_path, "photos/a.png", "photos/sub/b.png", "photos/c.png", "photos/d.png")
    (tmp_path / "v1.json").write_text(json.dumps(GOOD))
    return tmp_path


def read(folder, second: object):
    (folder / "v2.json").write_text(second if isinstance(second, str) else json.dumps(second))
    return read_coco([folder / "v1.json", folder / "v2.json"], Options(folder, images=folder / "photos"))


def test_images_of_one_category_are_taken_and_the_others_counted(folder):
    found = read(folder, GOOD)
    assert [sample for sample in found.samples if sample.version == "v1"] == [
        Sample("a.png", "dog", "v1"),
        Sample("sub/b.png", "cat", "v1"),
    ]
    counted = {reason: [item for item in items if "v1" in item] for reason, items in found.left_out.items.items()}
    assert counted == {
        "an annotation of an image that is not listed": ["v1: 99"],
        "an annotation of a category that is not listed": ["v1: 8"],
        "several categories": ["v1: c.png"],
        "no annotation": ["v1: d.png"],
        f"no such file below {folder / 'photos'}": ["v1: missing.png"],
        "a class without annotations": ["v1: yak"],
    }


def test_a_file_elsewhere_below_the_folder_is_found_by_its_name(folder):
    content = {
        **GOOD,
        "images": [{"id": 10, "file_name": "b.png"}],
        "annotations": [{"image_id": 10, "category_id": 1}],
    }
    assert read(folder, content).samples[-1].path == "sub/b.png"
    draw(folder, "photos/other/b.png")
    assert "several files have this name" in str(read(folder, content).left_out.items)
    content["images"] = [{"id": 10, "file_name": "elsewhere/other/b.png"}]
    assert read(folder, content).samples[-1].path == "other/b.png"


def without(key: str, **changes: object) -> dict[str, object]:
    return {name: value for name, value in GOOD.items() if name != key} | changes


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("[]", "v2.json: is not COCO JSON"),
        ("{", "v2.json:1: not valid JSON"),
        ("[" * 100_000, "v2.json:1: not valid JSON: nested too deeply"),
        (without("images"), "v2.json: has no 'images'"),
        (without("", annotations={}), "v2.json: 'annotations' has the wrong type: an object"),
        (without("", images=[{"id": 1}]), r"v2.json: images\[0\]: has no 'file_name'"),
        (without("", images=["a.png"]), r"v2.json: images\[0\]: must be an object, not 'a.png'"),
        (without("", images=[{"id": [1], "file_name": "a"}]), r"images\[0\]: 'id' has the wrong type: a list"),
        (without("", categories=[{"id": 1, "name": 3}]), r"categories\[0\]: 'name' has the wrong type: 3"),
        (without("", annotations=[{"image_id": True, "category_id": 1}]), "'image_id' has the wrong type: True"),
        (
            without("", categories=[{"id": 1, "name": "dog"}, {"id": 2, "name": "dog"}]),
            "2 categories are named 'dog'; rename all but one",
        ),
        (
            without("", categories=[{"id": 1, "name": "dog"}, {"id": 1, "name": "cat"}]),
            "v2.json: categories: the id 1 is that of 'dog' and 'cat'; give each its own",
        ),
        (
            without("", images=[{"id": 1, "file_name": "a.png"}, {"id": 1, "file_name": "c.png"}]),
            "v2.json: images: the id 1 is that of 'a.png' and 'c.png'",
        ),
    ],
)
def test_what_is_not_coco_is_refused_with_its_place(content, message, folder):
    with pytest.raises(LecoError, match=message) as refused:
        read(folder, content)
    assert "\n" not in str(refused.value)
