"""The labelling interface, exports, and masks drawn with the brush."""

import csv
import io
import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from tests.brushes import brush_stream
from tests.commands import leco

from leco import LecoError, Ontology
from leco.data.manifest.manifest import read_manifest
from leco.data.masks import decode_mask
from leco.planning.label_studio import labelling_config, read_export

WIDTH, HEIGHT = 6, 4
CALL = ["batch", "import", "export.json", "--manifest", "labels.csv", "--ontology", "ontology.yaml"]
LEFT, RIGHT, MIDDLE = slice(0, 3), slice(3, 6), slice(2, 4)


@pytest.mark.parametrize("kind", ["image", "features", "mask"])
def test_the_configuration_is_xml_that_takes_its_choices_from_the_task(kind):
    from xml.etree import ElementTree

    tree = ElementTree.fromstring(labelling_config(kind))
    control = next(node for node in tree if node.get("name") == "label")
    assert control.get("value") == "$choices"
    assert control.get("toName") == tree[0].get("name")
    assert tree[0].tag == ("Text" if kind == "features" else "Image")
    assert not tree.findall(".//Choice")  # Label Studio refuses a `Choices` tag with a single one


def test_what_is_not_an_export_is_refused(tmp_path):
    for content in (
        '{"a": 1}',
        '[{"data": {}}]',
        "[1]",
        "[]",
        '[{"data": {"sample": "a"}, "annotations": [1]}]',
        '[{"data": {"sample": "a"}, "annotations": [{"result": 3}]}]',
        "[" * 9000,
    ):
        (tmp_path / "export.json").write_text(content)
        with pytest.raises(LecoError, match=r"export\.json"):
            read_export(tmp_path / "export.json")


@pytest.fixture
def pictures(tmp_path: Path) -> Path:
    """Four images, the first with a mask of v1 that is all dogs."""
    history = {"v1": ["dog", "cat"], "v2": {"poodle": {"from": "dog"}, "husky": {"from": "dog"}, "cat": None}}
    versions = [{"name": name, "classes": classes} for name, classes in history.items()]
    Ontology.from_dict({"versions": versions}).save(tmp_path / "ontology.yaml")
    (tmp_path / "photos").mkdir()
    for number in range(4):
        pixels = np.full((HEIGHT, WIDTH), 9 * number, dtype=np.uint8)
        Image.fromarray(pixels).save(tmp_path / "photos" / f"{number}.png")
    Image.fromarray(np.zeros((HEIGHT, WIDTH), dtype=np.uint8)).save(tmp_path / "old.png")
    rows = ["image,mask,version", "photos/0.png,old.png,v1", *(f"photos/{number}.png,," for number in range(1, 4))]
    (tmp_path / "labels.csv").write_text("\n".join(rows) + "\n")
    return tmp_path


def region(name: str, columns: slice, **more: object) -> dict[str, object]:
    """A region of some columns, as a result of Label Studio's JSON."""
    mask = np.zeros((HEIGHT, WIDTH), dtype=bool)
    mask[:, columns] = True
    value = {"format": "rle", "rle": brush_stream(mask), "brushlabels": [name]}
    result = {"original_width": WIDTH, "original_height": HEIGHT, "from_name": "label", "to_name": "object"}
    return result | {"type": "brushlabels", "value": value | more}


def task(number: int, *regions: dict[str, object], who: int = 7, **more: object) -> dict[str, object]:
    annotation = {"completed_by": who, "created_at": "2026-01-02T03:04:05Z", "result": list(regions)}
    return {"data": {"sample": f"photos/{number}.png"}, "annotations": [annotation | more]}


def take(folder: Path, tasks: list[dict[str, object]], *more: str) -> tuple[str, dict[str, tuple[str, str]]]:
    """Output of the command, and the conflicts by sample."""
    (folder / "export.json").write_text(json.dumps(tasks))
    result = leco(*CALL, "--conflicts", "conflicts.csv", *more, cwd=folder)
    assert result.returncode == 0, result.stderr
    rows = csv.DictReader(io.StringIO((folder / "conflicts.csv").read_text()))
    return " ".join(result.stdout.split()), {row["sample"]: (row["kind"], row["problem"]) for row in rows}


def test_regions_become_one_mask_and_the_same_again_changes_nothing(pictures):
    before = {path: path.read_bytes() for path in pictures.rglob("*.png")}
    tasks = [
        task(0, region("poodle", LEFT), region("husky", slice(4, 6)), region("husky", slice(5, 6))),
        task(1, region("cat", MIDDLE)),
        task(1, region("cat", MIDDLE), who=8),
        task(2, region("cat", LEFT), was_cancelled=True),
    ]
    output, conflicts = take(pictures, tasks)
    assert "2 answers added, 0 conflicts, 1 already known, 1 empty" in output, conflicts
    manifest, problems = read_manifest(pictures / "labels.csv", Ontology.load(pictures / "ontology.yaml"))
    assert not problems
    first, second = manifest.masks["v2"][:2]
    assert first.startswith("export-masks/photos/0.png.")
    assert decode_mask(pictures / first).tolist() == [[0, 0, 0, -1, 1, 1]] * HEIGHT
    assert decode_mask(pictures / second).tolist() == [[-1, -1, 2, 2, -1, -1]] * HEIGHT
    row = list(csv.DictReader(io.StringIO((pictures / "labels.csv").read_text())))[-1]
    assert (row["annotator"], row["time"]) == ("7; 8", "2026-01-02T03:04:05Z")
    assert {path: path.read_bytes() for path in before} == before
    there = {path: path.read_bytes() for path in pictures.rglob("*.*") if path.name != "conflicts.csv"}
    output, _ = take(pictures, tasks)
    assert "0 answers added, 0 conflicts, 3 already known" in output
    assert {path: path.read_bytes() for path in pictures.rglob("*.*") if path.name != "conflicts.csv"} == there
    (pictures / "export.json").rename(pictures / "later.json")
    later = leco("batch", "import", "later.json", *CALL[3:], cwd=pictures)
    assert "0 answers added, 0 conflicts, 3 already known" in " ".join(later.stdout.split()), later.stderr
    assert (pictures / "labels.csv").read_bytes() == there[pictures / "labels.csv"]


def test_drawings_that_cannot_be_taken_are_listed(pictures):
    tasks = [
        task(0, region("cat", LEFT)),  # it was a dog
        task(1, region("cat", LEFT), region("husky", MIDDLE)),
        task(2, region("cat", LEFT)),
        task(2, region("cat", RIGHT), who=8),
        task(3, region("wolf", LEFT)),
    ]
    output, conflicts = take(pictures, tasks)
    assert "0 answers added, 5 conflicts" in output
    assert {sample: kind for sample, (kind, _) in conflicts.items()} == {
        "photos/0.png": "outside the old class",
        "photos/1.png": "regions overlap",
        "photos/2.png": "annotators disagree",
        "photos/3.png": "unknown class",
    }
    assert "region 2: 4 pixels are both 'cat' and 'husky'" in conflicts["photos/1.png"][1]


@pytest.mark.parametrize(
    ("wrong", "problem"),
    [
        ({"original_width": 10**9, "original_height": 10**9}, "was drawn on 1000000000x1000000000 pixels, but"),
        ({"original_width": None}, "pixels, but the image is 6x4"),
        ({"rle": [0, 0]}, "ends early, after 2 bytes"),
        ({"rle": ["a"]}, "not a list of integers from 0 to 255"),
        ({"rle": "abc"}, "only 'rle', a list of bytes, can be read"),
        ({"format": "png"}, "only 'rle', a list of bytes, can be read"),
        ({"brushlabels": []}, "exactly one"),
        ({"brushlabels": ["cat", "husky"]}, "exactly one"),
        ({"brushlabels": [["cat"]]}, "exactly one"),
        ({"rle": brush_stream(np.zeros((HEIGHT, WIDTH), dtype=bool))}, "no pixel is drawn"),
    ],
)
def test_broken_regions_are_listed(pictures, wrong, problem):
    output, conflicts = take(pictures, [task(1, region("cat", LEFT, **wrong)), task(2, region("cat", LEFT))])
    assert "1 answers added, 1 conflicts" in output
    kind, message = conflicts["photos/1.png"]
    assert kind == "bad mask"
    assert problem in message


def test_polygons_beside_a_drawing_are_not_dropped(pictures):
    polygon = {"type": "polygonlabels", "value": {"points": [[0, 0]], "polygonlabels": ["cat"]}}
    _, conflicts = take(pictures, [task(1, region("cat", LEFT), polygon)])
    assert "region 2: has the brush labels None" in conflicts["photos/1.png"][1]


def test_the_short_export_says_the_same(pictures):
    drawn = region("cat", LEFT)
    value = {"original_width": WIDTH, "original_height": HEIGHT, **drawn["value"]}
    output, _ = take(pictures, [{"id": 1, "sample": "photos/1.png", "label": [value], "annotator": 7}], "-o", "a.csv")
    assert "1 answers added" in output
    take(pictures, [task(1, drawn)], "-o", "b.csv")
    masks = [
        [row["mask"] for row in csv.DictReader(io.StringIO((pictures / name).read_text()))]
        for name in ("a.csv", "b.csv")
    ]
    assert masks[0] == masks[1]


def test_existing_files_and_folders_elsewhere_are_not_written(pictures, tmp_path_factory):
    take(pictures, [task(1, region("cat", LEFT))], "-o", "a.csv")
    mask = next((pictures / "export-masks").rglob("*.png"))
    Image.fromarray(np.ones((HEIGHT, WIDTH), dtype=np.uint8)).save(mask)
    before = mask.read_bytes()
    output, conflicts = take(pictures, [task(1, region("cat", LEFT))], "-o", "a.csv")
    assert "already exists with other content" in conflicts["photos/1.png"][1]
    assert mask.read_bytes() == before
    (pictures / "export-masks").rename(pictures / "elsewhere")
    outside = tmp_path_factory.mktemp("outside")
    (pictures / "export-masks").symlink_to(outside)
    output, conflicts = take(pictures, [task(1, region("cat", LEFT))], "-o", "a.csv")
    assert "0 answers added" in output
    assert "leads out of the root folder" in conflicts["photos/1.png"][1]
    assert not list(outside.iterdir())


def test_a_manifest_of_labels_takes_no_drawing(pictures):
    (pictures / "labels.csv").write_text("image,label,version\nphotos/1.png,dog,v1\n")
    _, conflicts = take(pictures, [task(1, region("husky", LEFT))])
    assert "a mask was drawn, but the manifest has a column `label`" in conflicts["photos/1.png"][1]
    assert not (pictures / "export-masks").exists()
