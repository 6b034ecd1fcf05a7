"""Tables of paths and labels."""

import json

import pytest
from tests.pictures import draw

from leco import LecoError
from leco.data.importers.importer import Options, Sample
from leco.data.importers.tables import read_tables


def write(path, *lines: str):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(lines) + "\n")
    return path


def test_columns_are_guessed_from_usual_names_in_any_spelling(tmp_path):
    old = write(tmp_path / "old.csv", "id,File Name,Category", "1,images/a.png,dog", "2,images/b.png,")
    new = write(tmp_path / "new.csv", "class,image,extra,subset", "husky,images/c.png,x,Validation")
    found = read_tables([old, new], Options(tmp_path))
    assert found.samples == [
        Sample("images/a.png", "dog", "old"),
        Sample("images/b.png", "", ""),
        Sample("images/c.png", "husky", "new", "val"),
    ]
    assert found.remarks[0] == "old.csv: paths are in column 'File Name', labels in 'Category'"


def test_columns_can_be_named(tmp_path):
    files = [write(tmp_path / f"{n}.csv", "where,what,label", "a.png,dog,wrong") for n in "ab"]
    found = read_tables(files, Options(tmp_path, path_column="where", label_column="what"))
    assert {sample.label for sample in found.samples} == {"dog"}
    for options, message in (
        (Options(tmp_path, path_column="wher"), "has no column 'wher'; did you mean 'where'"),
        (Options(tmp_path), "no column named image, path or the like; choose one with --path-column"),
        (Options(tmp_path, path_column="label"), "'label' cannot be both the column of paths and the column of labels"),
    ):
        with pytest.raises(LecoError, match=message):
            read_tables(files, options)


def test_one_file_may_have_a_column_of_versions_in_any_order(tmp_path):
    file = write(
        tmp_path / "all.csv", "path,label,version", "a.png,dog,v10", "b.png,dog,v2", "c.png,cat,v10", "d.png,,"
    )
    found = read_tables([file], Options(tmp_path))
    assert found.versions == ("v2", "v10")
    assert [sample.version for sample in found.samples] == ["v10", "v2", "v10", ""]
    assert (
        found.remarks[-1]
        == "all.csv: v2 before v10, by number; if that is wrong, give a file per version, oldest first"
    )
    file = write(tmp_path / "all.csv", "path,label,version", "a.png,dog,fine", "b.png,dog,coarse")
    found = read_tables([file], Options(tmp_path / "project"))
    assert found.versions == ("fine", "coarse")
    assert "fine before coarse, as they first appear" in found.remarks[-1]
    for lines, message in (
        (["path,label", "a.png,dog"], "has no column 'version'"),
        (["path,label,version", "a.png,,"], "no row has a label and a version"),
    ):
        with pytest.raises(LecoError, match=message):
            read_tables([write(tmp_path / "bad.csv", *lines)], Options(tmp_path))


def test_paths_are_relative_to_the_table_or_to_the_folder_of_images(tmp_path):
    draw(tmp_path, "photos/a.png")
    absolute = tmp_path / "photos" / "a.png"
    old = write(tmp_path / "tables" / "old.csv", "path,label", "a.png,dog", f"{absolute},dog", "sub\\b.png,cat")
    new = write(tmp_path / "tables" / "new.csv", "path,label", "../a.png,dog", "/etc/passwd,dog", "a.png,dog", ",dog")
    found = read_tables([old, new], Options(tmp_path, images=tmp_path / "photos"))
    assert found.root == tmp_path / "photos"
    assert [sample.path for sample in found.samples] == ["a.png", "a.png", "sub/b.png", "a.png"]
    (outside,) = (items for reason, items in found.left_out.items.items() if reason.startswith("outside"))
    assert outside == ["new.csv row 2", "new.csv row 3"]
    assert found.left_out.items["a row without a path"] == ["new.csv row 5"]
    apart = read_tables([old, write(tmp_path / "new.csv", "path,label", "a.png,dog")], Options(tmp_path))
    assert apart.root == tmp_path
    assert apart.samples[0].path == "tables/a.png"


def test_bad_rows_are_counted_and_bad_tables_refused(tmp_path):
    good = write(tmp_path / "good.csv", "path,label", "a.png,dog")
    ragged = write(tmp_path / "ragged.csv", "path,label,split", "a.png", "b.png,dog,sometimes", "c.png,dog,test")
    left_out = read_tables([good, ragged], Options(tmp_path)).left_out
    assert len(left_out) == 2
    assert left_out.items["a split other than train, val and test"] == ["ragged.csv row 3: sometimes"]
    (tmp_path / "binary.csv").write_bytes(b"path,label\n\xff\xfe,x\n")
    for lines, message in (
        (["path;label", "a.png;dog"], "columns are not separated by commas: 'path;label'"),
        (["path,path", "a,b"], "duplicate column 'path'"),
        ([""], "no column named image"),
    ):
        with pytest.raises(LecoError, match=message):
            read_tables([good, write(tmp_path / "bad.csv", *lines)], Options(tmp_path))
    with pytest.raises(LecoError, match="not valid UTF-8"):
        read_tables([good, tmp_path / "binary.csv"], Options(tmp_path))


def test_other_tables_of_manifests_are_taken_too(tmp_path):
    lines = [json.dumps({"file": "a.png", "label": label}) for label in ("dog", "cat")]
    found = read_tables([write(tmp_path / f"{n}.jsonl", lines[n]) for n in range(2)], Options(tmp_path))
    assert [sample.label for sample in found.samples] == ["dog", "cat"]
