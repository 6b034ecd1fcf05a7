"""Exports of Label Studio: choices, and brush masks."""

import json
from contextlib import suppress

import numpy as np
import pytest
from tests.brushes import brush_stream
from tests.pictures import draw

from leco import LecoError
from leco.data.importers.importer import Options, Sample
from leco.data.importers.label_studio import decode_brush, read_label_studio


def task(number: int, image: str, *chosen: list[str], name: str = "choice", **more: object) -> dict[str, object]:
    """A task of the JSON export: one annotation for each list of choices."""
    annotations = [
        {
            "id": 100 + n,
            "completed_by": 1,
            "result": [
                {"value": {"choices": choices}, "id": "x", "from_name": name, "to_name": "image", "type": "choices"}
            ],
            "was_cancelled": False,
        }
        for n, choices in enumerate(chosen)
    ]
    return {"id": number, "annotations": annotations, "predictions": [], "data": {"image": image}, "project": 3} | more


@pytest.fixture
def folder(tmp_path):
    draw(tmp_path, "photos/a.png", "photos/sub/b c.png", "photos/c.png", "photos/1a2b3c4d-d.png")
    return tmp_path


def read(folder, first: object, second: object, **options: str):
    for name, content in (("v1", first), ("v2", second)):
        (folder / f"{name}.json").write_text(content if isinstance(content, str) else json.dumps(content))
    paths = [folder / "v1.json", folder / "v2.json"]
    return read_label_studio(paths, Options(folder, images=folder / "photos", **options))


GOOD = [task(1, "/data/upload/3/99999999-a.png", ["dog"])]


def test_json_is_read_and_images_are_found_however_they_are_called(folder):
    tasks = [
        *GOOD,
        task(2, "/data/local-files/?d=server/sub/b%20c.png", ["cat"]),
        task(3, "https://host/some/c.png?token=1", ["cat"], ["cat"]),
        task(4, "/data/upload/3/1a2b3c4d-d.png"),
        task(5, "s3://bucket/nowhere.png", ["cat"]),
        task(6, "c.png", ["cat"], ["dog"]),
        task(7, "c.png", ["cat", "dog"]),
    ]
    tasks[0]["annotations"].append(
        {"was_cancelled": True, "result": [{"type": "choices", "value": {"choices": ["x"]}}]}
    )
    found = read(folder, tasks, GOOD)
    assert found.samples == [
        Sample("a.png", "dog", "v1"),
        Sample("sub/b c.png", "cat", "v1"),
        Sample("c.png", "cat", "v1"),
        Sample("1a2b3c4d-d.png", "", ""),
        Sample("a.png", "dog", "v2"),
    ]
    assert found.left_out.items == {
        f"no such file below {folder / 'photos'}": ["v1: s3://bucket/nowhere.png"],
        "several choices, or disagreeing annotators": ["v1: c.png", "v1: c.png"],
    }


def test_json_min_is_read_too(folder):
    about = {"id": 1, "annotator": 1, "annotation_id": 5, "created_at": "2021-03-09", "lead_time": 4.2}
    tasks = [
        {"image": "/data/upload/3/99999999-a.png", "choice": "dog", "note": "blurred", **about},
        {"image": "c.png", "choice": [{"choices": ["cat", "dog"]}], **about},
        {"image": "sub/b c.png", "choice": {"choices": ["cat"]}, **about},
    ]
    found = read(folder, tasks, [{"photo": "c.png", "animal": "cat", **about}])
    assert [(s.path, s.label, s.version) for s in found.samples] == [
        ("a.png", "dog", "v1"),
        ("sub/b c.png", "cat", "v1"),
        ("c.png", "cat", "v2"),
    ]
    assert found.remarks == [
        "v1.json: images are under 'image', labels under 'choice'",
        "v2.json: images are under 'photo', labels under 'animal'",
    ]


def test_of_several_controls_one_must_be_named(folder):
    tasks = [task(1, "a.png", ["dog"], name="kind")]
    tasks[0]["annotations"] += task(1, "a.png", ["good"], name="quality")["annotations"]
    with pytest.raises(
        LecoError, match=r"several keys may be the choices \('kind', 'quality'\); choose one with --label-column"
    ):
        read(folder, tasks, tasks)
    assert {s.label for s in read(folder, tasks, tasks, label_column="quality").samples} == {"good"}
    with pytest.raises(LecoError, match="no choices named 'kin'; did you mean 'kind'"):
        read(folder, tasks, tasks, label_column="kin")
    with pytest.raises(LecoError, match="tasks have no key 'img'"):
        read(folder, tasks, tasks, path_column="img")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{}", "is not a Label Studio export"),
        ("[]", "is not a Label Studio export"),
        ('["a"]', "is not a Label Studio export"),
        ("[" * 100_000, "v2.json:1: not valid JSON: nested too deeply"),
        ([task(1, "a.png")], "no task has choices"),
        ([task(1, "a.txt", ["x"])], "no key of a task is the path of an image; choose one with --path-column"),
        ([task(1, "a.png", ["x"]), task(2, "", ["x"])], "task 1: 'image' is not the path of an image: ''"),
        ([task(1, "a.png", ["x"]), task(2, 5, ["x"])], "task 1: 'image' is not the path of an image: 5"),
        ([task(1, "a.png", ["x"], annotations=3)], "task 0: annotations must be a list of objects, not 3"),
        ([task(1, "a.png", annotations=[{"result": "x"}])], "task 0: result must be a list of objects"),
    ],
)
def test_what_is_not_an_export_is_refused(content, message, folder):
    with pytest.raises(LecoError, match=message) as refused:
        read(folder, GOOD, content)
    assert "\n" not in str(refused.value)


REAL = [0, 0, 0, 60, 57, 27, 254, 23, 0, 183, 255, 132, 192, 35, 255, 0]


def test_a_stream_of_label_studio_is_read():
    assert decode_brush(REAL, 5, 3).astype(int).tolist() == [[0] * 5, [0, 1, 1, 1, 0], [0, 0, 0, 0, 1]]


def test_runs_begin_and_end_at_any_channel():
    rng = np.random.default_rng(0)
    for height, width in ((1, 1), (3, 5), (17, 23)):
        mask = rng.random((height, width)) < 0.5
        for colours in (None, rng):
            assert np.array_equal(decode_brush(brush_stream(mask, colours), width, height), mask)


@pytest.mark.parametrize(
    ("stream", "problem"),
    [
        ([], "ends early, after 0 bytes"),
        (REAL[:-2], "ends early, after 14 bytes"),
        (REAL[:5], "ends early"),
        ([255] * 4 + REAL[4:], "has 4,294,967,295 values, not 4 for each of 5x3 pixels"),
        ([*REAL[:7], 0x7F, 0xFF, 0xFF, 0xFF], "a run of the brush stream ends at value"),
        ([*REAL[:3], 300], "not a list of integers from 0 to 255"),
        ([*REAL[:3], -1], "not a list of integers from 0 to 255"),
        ([*REAL[:3], "60"], "not a list of integers from 0 to 255"),
        ([*REAL[:3], 6.5], "not a list of integers from 0 to 255"),
        ([[60]], "not a list of integers from 0 to 255"),
    ],
)
def test_what_is_not_a_stream_is_refused(stream, problem):
    with pytest.raises(LecoError, match=problem):
        decode_brush(stream, 5, 3)


def test_any_bytes_are_a_mask_or_refused():
    rng = np.random.default_rng(1)
    read = 0
    for _ in range(300):
        stream = [0, 0, 0, 60, *rng.integers(0, 256, int(rng.integers(0, 60))).tolist()]
        with suppress(LecoError):
            assert decode_brush(stream, 5, 3).shape == (3, 5)
            read += 1
    assert 0 < read < 300
