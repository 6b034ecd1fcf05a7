"""Formats, columns, and rows that cannot be parsed."""

import json
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pytest
from pyarrow import parquet
from tests.manifests import complaint, csv

from leco import LecoError, Ontology
from leco.data.manifest.manifest import read_manifest
from leco.data.manifest.table import SUFFIXES, Table, read_cells, read_table, stream_cells, write_table

ROWS = [
    {"image": "a.png", "label": "road", "version": "v1", "split": "train", "period": 0},
    {"image": "./a.png", "label": "parking-aisle", "version": "v2", "split": "", "period": None},
    {"image": "b.png", "label": "void", "version": "v2", "split": "val", "period": 1},
    {"image": "c.png", "label": "", "version": "", "split": "", "period": None},
    {"image": "d.png", "label": "bus", "version": "v1", "split": "test", "period": None},
]


def write_rows(folder: Path, kind: str) -> Path:
    path = folder / f"labels.{kind}"
    if kind == "csv":
        pd.DataFrame(ROWS).astype({"period": "Int64"}).to_csv(path, index=False)
    elif kind == "jsonl":
        path.write_text("".join(json.dumps({k: v for k, v in row.items() if v != ""}) + "\n" for row in ROWS))
    else:
        frame = pd.DataFrame(ROWS).replace({"": None}).astype({"label": "category"})
        frame.iloc[::-1].iloc[::-1].to_parquet(path)
    return path


@pytest.mark.parametrize("kind", ["csv", "jsonl", "parquet"])
def test_the_three_formats_say_the_same(folder, street, kind):
    manifest, problems = read_manifest(write_rows(folder, kind), street)
    assert not len(problems)
    assert (manifest.root, manifest.kind, manifest.masks) == (folder, "image", {})
    assert manifest.inputs == ("a.png", "b.png", "c.png", "d.png")
    assert {version: labels.tolist() for version, labels in manifest.labels.items()} == {
        "v1": [street["v1"].index("road"), -1, -1, street["v1"].index("bus")],
        "v2": [street["v2"].index("parking-aisle"), -1, -1, -1],
    }
    assert manifest.split.tolist() == ["train", "val", "train", "test"]
    assert manifest.period.tolist() == [0, 1, -1, -1]


def test_a_class_may_have_a_name_that_looks_like_nothing(folder):
    versions = [{"name": "1", "classes": ["NA", "null", "7"]}, {"name": "2", "classes": ["NA", "null", "7"]}]
    ontology = Ontology.from_dict({"name": "odd", "versions": versions})
    path = csv(folder, "image,label,version\na.png,NA,1\nb.png,null,1\n\nc.png,7,2")
    manifest, _ = read_manifest(path, ontology)
    assert manifest.labels["1"].tolist() == [0, 1, -1]
    (folder / "m.jsonl").write_text('{"image": "a.png", "label": 7, "version": 2}')
    assert read_manifest(folder / "m.jsonl", ontology)[0].labels["2"].tolist() == [2]


@pytest.mark.parametrize(
    ("header", "message"),
    [
        ("image,lable,version", "unknown column 'lable'; did you mean 'label'?"),
        ("image,label", "no column 'version'"),
        ("label,version", "neither column 'image' nor 'features'"),
        ("image,features,label,version", "both columns 'image' and 'features'"),
        ("image,label,mask,version", "both columns 'label' and 'mask'"),
        ("image,version", "neither column 'label' nor 'mask'"),
        ("features,mask,version", "features have no pixels"),
        ("image,label,version", "the table has no rows"),
        ("image,image,label,version", "duplicate column 'image'"),
    ],
)
def test_wrong_columns_are_named(tmp_path, street, header, message):
    assert message in complaint(csv(tmp_path, header), street, skip_bad=True)


def test_files_that_are_not_manifests_are_refused(tmp_path, street):
    assert "valid: .csv, .jsonl, .parquet" in complaint(tmp_path / "a.xlsx", street)
    assert "no such file" in complaint(tmp_path / "a.csv", street)
    (tmp_path / "a.csv").write_bytes(b"image,label,version\n\xff,a,b\n")
    assert "not valid UTF-8" in complaint(tmp_path / "a.csv", street)
    (tmp_path / "a.csv").write_text('image,label,version\n"a.png,a,b\n')
    assert "not valid CSV" in complaint(tmp_path / "a.csv", street)
    (tmp_path / "a.parquet").write_text("hello")
    assert "not valid Parquet" in complaint(tmp_path / "a.parquet", street)
    pd.DataFrame({"image": [["a"]], "label": ["a"], "version": ["v1"]}).to_parquet(tmp_path / "b.parquet")
    assert "column 'image': ['a'] is neither text nor an integer" in complaint(tmp_path / "b.parquet", street)
    (tmp_path / "a.csv").write_text("")
    assert "the table has no rows" in complaint(tmp_path / "a.csv", street)


def test_a_column_that_parquet_has_twice_is_named(tmp_path, street):
    columns = [pa.array(["a.png"]), pa.array(["road"]), pa.array(["v1"]), pa.array(["bus"])]
    table = pa.Table.from_arrays(columns, names=["image", "label", "version", "label"])
    parquet.write_table(table, tmp_path / "a.parquet")
    assert complaint(tmp_path / "a.parquet", street).endswith("a.parquet: duplicate column 'label'")
    with pytest.raises(LecoError, match="duplicate column 'label'"):
        list(stream_cells(tmp_path / "a.parquet", "image"))


def test_rows_that_cannot_be_parsed_are_named_and_can_be_skipped(folder, street):
    path = csv(folder, "image,label,version\na.png,road,v1,what\nb.png,road\nc.png,road,v1")
    assert "row 2: has 4 cells, but the header has 3" in complaint(path, street)
    assert "row 3: has 2 cells" in complaint(path, street)
    manifest, problems = read_manifest(path, street, skip_bad=True)
    assert (manifest.inputs, problems.dropped, problems.rows) == (("c.png",), 2, 3)
    lines = ["{", "[1]", '{"image": 1, "image": 2}', '{"image": {}}', '{"image": true}', '{"image": Infinity}', "\n"]
    good = '{"image": "a.png", "label": "road", "version": "v1"}'
    (folder / "m.jsonl").write_text("\n".join([*lines, good]))
    manifest, problems = read_manifest(folder / "m.jsonl", street, skip_bad=True)
    assert [problem.row for problem in problems.found] == [1, 2, 3, 4, 5, 6]
    assert manifest.inputs == ("a.png",)


def test_the_first_twenty_problems_are_shown_in_the_order_of_rows_and_all_counted(folder, street):
    rows = "\n".join(f"{number}.png,raod,v1" for number in range(30))
    text = complaint(csv(folder, f"image,label,version\n{rows}"), street)
    headline, *lines = text.splitlines()
    assert headline.endswith("labels.csv: 60 problems (30 unknown label, 30 missing file)")
    assert len(lines) == 21
    assert [line.split(":")[0].strip() for line in lines[:20]] == [f"row {n // 2 + 2}" for n in range(20)]
    assert lines[20].strip() == "… and 40 more"


SOME = {"image": ["a.png", "b, c.png"], "label": ['ro"ad', ""], "version": ["v1", ""]}


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_what_is_written_is_read_back_whole_or_by_column(tmp_path, suffix):
    path = tmp_path / f"table{suffix}"
    write_table(Table(tmp_path, SOME), path)
    found = read_table(path)
    first = 2 if suffix == ".csv" else 1
    assert (found.columns, found.rows, found.broken) == (SOME, (first, first + 1), ())
    cells = list(zip(SOME["version"], SOME["image"], strict=True))
    assert list(stream_cells(path, "version", "image")) == list(enumerate(cells, start=first))
    assert found.select([1]).columns == {name: column[1:] for name, column in SOME.items()}
    assert found.select([1]).name(0) == f"row {first + 1}"


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_a_column_that_is_missing_is_named(tmp_path, suffix):
    path = tmp_path / f"table{suffix}"
    write_table(Table(tmp_path, SOME), path)
    with pytest.raises(LecoError, match=r"has no column 'versoin'; did you mean 'version'\?"):
        list(stream_cells(path, "label", "versoin"))


def test_the_cells_of_a_broken_row_are_an_error_where_all_are_needed(tmp_path):
    path = tmp_path / "labels.csv"
    path.write_text("image,coarse,fine\n1.png,dog,husky\n2.png, dog ,poodle\n3.png,cat,\n")
    pairs = [("dog", "husky"), ("dog", "poodle"), ("cat", "")]
    assert [cells for _, cells in read_cells(path, "coarse", "fine")] == pairs
    for text, message in (
        ('coarse,fine\ndog,"husky\ncat,lynx\n', r"labels\.csv:3: not valid CSV"),
        ("coarse,fine\ndog,husky,x\n", r"labels\.csv: row 2: has 3 cells, but the header has 2"),
        ("coarse,fine\ndog\n", r"labels\.csv: row 2: has 1 cells, but the header has 2"),
        ("coarse,fine,fine\ndog,husky,x\n", "duplicate column 'fine'"),
    ):
        path.write_text(text)
        with pytest.raises(LecoError, match=message):
            list(read_cells(path, "coarse", "fine"))


@pytest.mark.parametrize(
    ("columns", "kind"),
    [(["image", "label"], "images"), (["image", "mask"], "masks"), (["features", "label"], "features")],
)
def test_columns_say_what_kind_of_data_there_is(tmp_path, columns, kind):
    assert Table(tmp_path, {name: [] for name in columns}).data_kind == kind


def test_a_table_that_was_read_already_is_a_manifest_too(folder, street):
    path = csv(folder, "image,label,version\na.png,road,v1\nb.png,road\n")
    table = read_table(path)
    manifest, problems = read_manifest(table, street, skip_bad=True)
    assert (manifest.root, manifest.inputs, problems.dropped) == (folder, ("a.png",), 1)
    with pytest.raises(LecoError, match="row 3: has 2 cells"):
        read_manifest(table, street, root=folder)
