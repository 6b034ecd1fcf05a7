"""Migration of labels and masks to a newer version, with and without annotators."""

import json

import pytest
from tests.commands import assert_refused, leco
from tests.unit.planning.conftest import draw, rows_of

from leco import LecoError, Ontology
from leco.data.manifest.table import Table
from leco.data.masks import decode_mask
from leco.planning.migrate import migrate

CALL = ["ontology", "migrate", "labels.csv", "--ontology", "ontology.yaml", "--to", "v2"]


def table(tmp_path, *rows: tuple[str, str, str]) -> Table:
    columns = zip(*rows, strict=True)
    return Table(tmp_path / "labels.csv", dict(zip(("image", "label", "version"), map(list, columns), strict=True)))


def test_every_kind_of_change_is_recognised(street, tmp_path):
    rows = [
        ("a", "sidewalk", "v1"),
        ("b", "car", "v1"),
        ("c", "child", "v1"),
        ("d", "bus", "v1"),
        ("e", "road", "v1"),
        ("f", "fax", "v1"),
        ("g", "city-bus", "v2"),
        ("h", "", ""),
        ("i", "bus", "v3"),
        ("j", "bus", "v1"),
        ("j", "school-bus", "v2"),
    ]
    found = migrate(table(tmp_path, *rows), street, "v2")
    assert found.kinds == [
        *("kept", "renamed", "merged", "split", "carved", "removed"),
        *("already labelled", "unlabelled", "newer", "already labelled", "already labelled"),
    ]
    assert found.added == {"a": "sidewalk", "b": "automobile", "c": "special-subject"}
    assert found.questions() == {
        ("v1", "bus"): (1, ("school-bus", "city-bus")),
        ("v1", "road"): (1, ("road", "parking-aisle")),
    }
    assert found.migrated()["label"][-3:] == ["sidewalk", "automobile", "special-subject"]
    assert found.migrated()["version"][-3:] == ["v2"] * 3


def test_what_was_split_and_merged_again_needs_no_annotator(street, tmp_path):
    found = migrate(table(tmp_path, ("a", "bus", "v1"), ("b", "road", "v1")), street, "v3")
    assert found.added == {"a": "bus", "b": "road"}


def test_labels_of_two_versions_that_disagree_need_an_annotator(street, tmp_path):
    found = migrate(table(tmp_path, ("a", "sidewalk", "v1"), ("a", "special-subject", "v2")), street, "v3")
    assert found.kinds == ["contradicting"] * 2
    assert not found.added


def test_a_label_that_is_not_a_class_is_refused(street, tmp_path):
    with pytest.raises(LecoError, match="'buss' is not a class of v1; did you mean 'bus'"):
        migrate(table(tmp_path, ("a", "buss", "v1")), street, "v2")


def test_the_command_counts_and_writes(street, tmp_path):
    street.save(tmp_path / "ontology.yaml")
    (tmp_path / "labels.csv").write_text("image,label,version\na.png,bus,v1\nb.png,car,v1\nc.png,bus,v1\n")
    call = ["ontology", "migrate", "labels.csv", "--ontology", "ontology.yaml", "--to", "v2"]
    result = leco(*call, "-o", "labels2.csv", cwd=tmp_path)
    assert result.returncode == 0, result.stderr
    assert "3 rows to v2: 1 without an annotator, 2 with one" in result.stdout
    assert rows_of(tmp_path / "labels2.csv")[-1] == {**{"image": "b.png", "label": "automobile", "version": "v2"}}
    found = json.loads(leco(*call, "--json", cwd=tmp_path).stdout)
    assert (found["without_annotator"], found["with_annotator"]) == (1, 2)
    assert found["questions"] == [{"version": "v1", "class": "bus", "rows": 2, "choices": ["school-bus", "city-bus"]}]
    assert_refused([*call[:-1], "v9"], "'v9' is not a version of street", tmp_path)
    (tmp_path / "elsewhere").mkdir()
    assert_refused([*call, "-o", "elsewhere/labels.csv"], "write there, or pass --root", tmp_path)


def test_manifests_of_every_format_are_carried_over_alike(street, tmp_path):
    street.save(tmp_path / "ontology.yaml")
    (tmp_path / "labels.csv").write_text("image,label,version\n./a.png,car,v1\na.png,automobile,v2\nb.png,car,v1\n")
    source = "labels.csv"
    for name in ("a.jsonl", "b.parquet", "c.csv"):
        call = ["ontology", "migrate", source, "--ontology", "ontology.yaml", "--to", "v2", "-o", name]
        result = leco(*call, cwd=tmp_path)
        more = 1 if source == "labels.csv" else 0  # ./a.png is a.png, which has a label of v2 already
        assert f"wrote {name}, with {more} more rows" in result.stdout, result.stderr
        source = name
    assert (tmp_path / "c.csv").read_text() == (tmp_path / "labels.csv").read_text() + "b.png,automobile,v2\n"


def test_masks_are_counted_carried_over_and_the_rest_is_listed(street, masked):
    before = {path: path.read_bytes() for path in masked.rglob("*.png")}
    found = json.loads(leco(*CALL, "--json", "-o", "labels2.csv", cwd=masked).stdout)
    assert found["pixels"] == {
        **{"kept": 10, "renamed": 20, "merged": 5, "unlabelled": 5},
        **{"split": 15, "removed": 5},
    }
    assert found["kinds"] == {
        **{"kept": 2, "renamed": 2, "merged": 1, "split": 1, "removed": 1, "already labelled": 2, "unlabelled": 2},
    }
    assert found["questions"] == [
        {"version": "v1", "class": "bus", "images": 1, "choices": ["school-bus", "city-bus"]},
    ]
    assert {left["image"]: left["because"] for left in found["left"]} == {
        "split.png": "bus (split, 75% of the pixels)",
        "gone.png": "fax (removed, 25% of the pixels)",
    }
    assert {path: path.read_bytes() for path in before} == before
    added = rows_of(masked / "labels2.csv")[-1]
    assert added == {"image": "easy.png", "mask": "labels2-masks/old/easy.png", "version": "v2"}
    names = ["sidewalk", "automobile", "special-subject"]
    assert decode_mask(masked / added["mask"])[0].tolist() == [*(street["v2"].index(name) for name in names), -1]
    shown = leco(*CALL, cwd=masked).stdout
    assert "5 images to v2: 1 without an annotator, 2 with one" in shown
    assert "not migrated: split.png: bus (split, 75% of the pixels)" in shown


def test_masks_of_two_versions_that_disagree_are_not_carried_over(street, masked):
    draw(masked, "old/both.png", [[street["v1"].index("sidewalk")] * 4])
    draw(masked, "new/both.png", [[street["v2"].index("special-subject")] * 4])
    found = json.loads(leco(*CALL[:-1], "v3", "--json", cwd=masked).stdout)
    assert {left["image"] for left in found["left"]} >= {"both.png"}
    assert found["kinds"]["contradicting"] == 1


def test_wrong_masks_are_refused_all_at_once_and_files_that_are_read_are_kept(masked):
    draw(masked, "old/easy.png", [[77, 0, 0, 0]])
    (masked / "old" / "split.png").write_bytes(b"no image")
    result = leco(*CALL, "-o", "labels2.csv", cwd=masked)
    assert result.returncode == 2
    assert "2 problems" in result.stderr
    assert not (masked / "labels2.csv").exists()
    draw(masked, "old/easy.png", [[0, 0, 0, 255]])
    (masked / "labels.csv").write_text(
        "image,mask,version\neasy.png,old/easy.png,v1\nboth.png,x-masks/old/easy.png,v2\n"
    )
    draw(masked, "x-masks/old/easy.png", [[0, 0, 0, 0]])
    (masked / "old" / "easy.png").write_bytes((masked / "old" / "gone.png").read_bytes())
    draw(masked, "old/easy.png", [[255, 255, 255, 255]])
    nothing = json.loads(leco(*CALL, "--json", cwd=masked).stdout)
    assert nothing["left"] == [{"image": "easy.png", "because": "no pixel has a class"}]
    sidewalk = Ontology.load(masked / "ontology.yaml")["v1"].index("sidewalk")
    draw(masked, "old/easy.png", [[sidewalk] * 4])
    assert_refused([*CALL, "-o", "x.csv"], "is a file of labels.csv; choose another output", masked)
