"""Labels that a newer version needs nobody for, and those that it needs an annotator for."""

import csv
import io
import json

import pytest
from tests.commands import assert_refused, leco

from leco import LecoError
from leco.data.manifest.table import Table
from leco.planning.migrate import migrate


def table(tmp_path, *rows: tuple[str, str, str]) -> Table:
    columns = zip(*rows, strict=True)
    return Table(tmp_path / "labels.csv", dict(zip(("image", "label", "version"), map(list, columns), strict=True)))


def test_every_kind_of_change_is_told_apart(street, tmp_path):
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
        *("there already", "unlabelled", "newer", "there already", "there already"),
    ]
    assert found.added == {"a": "sidewalk", "b": "automobile", "c": "special-subject"}
    assert found.questions() == {
        ("v1", "bus"): (1, ("school-bus", "city-bus")),
        ("v1", "road"): (1, ("road", "parking-aisle")),
    }
    assert found.migrated()["label"][-3:] == ["sidewalk", "automobile", "special-subject"]
    assert found.migrated()["version"][-3:] == ["v2"] * 3


def test_what_was_split_and_merged_again_needs_nobody(street, tmp_path):
    found = migrate(table(tmp_path, ("a", "bus", "v1"), ("b", "road", "v1")), street, "v3")
    assert found.added == {"a": "bus", "b": "road"}


def test_labels_of_two_versions_that_disagree_need_somebody(street, tmp_path):
    found = migrate(table(tmp_path, ("a", "sidewalk", "v1"), ("a", "special-subject", "v2")), street, "v3")
    assert found.kinds == ["contradicting"] * 2
    assert not found.added


def test_a_label_that_is_no_class_is_refused(street, tmp_path):
    with pytest.raises(LecoError, match="'buss' is not a class of v1; did you mean 'bus'"):
        migrate(table(tmp_path, ("a", "buss", "v1")), street, "v2")


def test_the_command_counts_and_writes(street, tmp_path):
    street.save(tmp_path / "ontology.yaml")
    (tmp_path / "labels.csv").write_text("image,label,version\na.png,bus,v1\nb.png,car,v1\nc.png,bus,v1\n")
    call = ["ontology", "migrate", "labels.csv", "--ontology", "ontology.yaml", "--to", "v2"]
    result = leco(*call, "-o", "labels2.csv", cwd=tmp_path)
    assert result.returncode == 0, result.stderr
    assert "3 rows to v2: 1 without an annotator, 2 with one" in result.stdout
    assert list(csv.DictReader(io.StringIO((tmp_path / "labels2.csv").read_text())))[-1] == {
        **{"image": "b.png", "label": "automobile", "version": "v2"}
    }
    told = json.loads(leco(*call, "--json", cwd=tmp_path).stdout)
    assert (told["without_annotator"], told["with_annotator"]) == (1, 2)
    assert told["questions"] == [{"version": "v1", "class": "bus", "rows": 2, "choices": ["school-bus", "city-bus"]}]
    assert_refused([*call[:-1], "v9"], "'v9' is not a version of street", tmp_path)
    (tmp_path / "elsewhere").mkdir()
    assert_refused([*call, "-o", "elsewhere/labels.csv"], "write it there, or say --root", tmp_path)


def test_manifests_of_every_format_are_carried_over_alike(street, tmp_path):
    street.save(tmp_path / "ontology.yaml")
    (tmp_path / "labels.csv").write_text("image,label,version\n./a.png,car,v1\na.png,automobile,v2\nb.png,car,v1\n")
    source = "labels.csv"
    for name in ("a.jsonl", "b.parquet", "c.csv"):
        call = ["ontology", "migrate", source, "--ontology", "ontology.yaml", "--to", "v2", "-o", name]
        told = leco(*call, cwd=tmp_path)
        more = 1 if source == "labels.csv" else 0  # ./a.png is a.png, which has a label of v2 already
        assert f"wrote {name}, with {more} more rows" in told.stdout, told.stderr
        source = name
    assert (tmp_path / "c.csv").read_text() == (tmp_path / "labels.csv").read_text() + "b.png,automobile,v2\n"
