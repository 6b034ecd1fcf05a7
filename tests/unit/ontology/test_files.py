"""Every way a file can be wrong gives one message with the file, the line, the value and the remedy."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from tests.ontologies import ontologies

from leco import LecoError, Ontology
from leco.ontology.files import load, load_all, write_tsv

V1 = "name: street\nversions:\n  - name: v1\n    classes: [road, bus, car]\n"  # lines 1 to 4
V2 = V1 + "  - name: v2\n    classes:\n"  # lines 5 and 6; classes begin on line 7

BAD_YAML = {
    "unknown parent": (
        V2 + "      lane: {from: raod}\n",
        r":7: .*classes.lane.from: 'raod' is not a class of v1; did you mean 'road'\?",
    ),
    "parent two versions back": (
        V2 + "      road:\n      coach: {from: bus}\n  - name: v3\n    classes:\n      minibus: {from: bus}\n",
        r":11: .*'bus' is a class of v1, not of v2, the previous version; name its descendant in v2",
    ),
    "duplicate class": (V2 + "      road:\n      bus:\n      road:\n", r":9: duplicate key 'road'"),
    "duplicate class in a list": (
        V1.replace("car", "bus") + "  - {name: v2, classes: [road]}\n",
        r":4: .*duplicate class 'bus' of v1",
    ),
    "cycle": (
        V2 + "      a: {from: b}\n      b: {from: a}\n",
        r":7: .*a <- b <- a is a cycle; parents come from v1",
    ),
    "cycle through lists and shares": (
        V2 + "      a: {from: [b]}\n      b: {from: {a: 1.0}}\n",
        r":7: .*a <- b <- a is a cycle; parents come from v1",
    ),
    "cycle of one": (V2 + "      a: {from: a}\n", r":7: .*a <- a is a cycle; parents come from v1"),
    "parent in the same version": (
        V2 + "      road:\n      a: {from: b}\n      b:\n",
        r":8: .*'b' is not a class of v1 but of v2 itself",
    ),
    "shares above one": (V2 + "      a: {from: {road: 0.7, bus: 0.6}}\n", r":7: .*the shares of 'a' sum to 1.3, not 1"),
    "shares below one": (V2 + "      a: {from: {road: 0.7}}\n", r":7: .*the shares of 'a' sum to 0.7, not 1"),
    "negative share": (
        V2 + "      a: {from: {road: 0.6, car: 0.6, bus: -0.2}}\n",
        r":7: .*a share must be in \(0, 1\], not -0.2",
    ),
    "share that is no number": (
        V2 + "      a: {from: {road: most, bus: 0.5}}\n",
        r":7: .*a share must be in \(0, 1\], not 'most'",
    ),
    "share that is nan": (
        V2 + "      a: {from: {road: .nan, bus: 1.0}}\n",
        r":7: .*a share must be in \(0, 1\], not .nan",
    ),
    "empty version": (V1 + "  - name: v2\n    classes: []\n", r":6: .*version 'v2' has no classes"),
    "version without classes": (V1 + "  - name: v2\n", r":5: .*version 'v2' has no classes"),
    "two versions of one name": (
        V1 + "  - name: v1\n    classes: [road]\n",
        r":5: .*duplicate version 'v1'",
    ),
    "no versions": ("name: street\n", r"`versions` must be a list of versions"),
    "version without a name": (V1 + "  - classes: [road]\n", r":5: versions\[1\]: the version has no `name`"),
    "not YAML": ("name: [street\nversions: }\n", r":2: not valid YAML"),
    "not a mapping": ("just some text\n", r"an ontology must be a mapping .* not 'just some text'"),
    "empty file": ("", r"an ontology must be a mapping .* not nothing"),
    "unknown key of a class": (V2 + "      lane: {form: road}\n", r":7: .*unknown key 'form'; did you mean 'from'\?"),
    "unknown key of a version": (
        V1 + "  - name: v2\n    clases: [road]\n",
        r":6: .*unknown key 'clases'; did you mean 'classes'\?",
    ),
    "unknown key of the file": (
        "nmae: x\n" + V2 + "      road:\n",
        r":1: nmae: .*unknown key 'nmae'; did you mean 'name'\?",
    ),
    "a class YAML reads as a boolean": (V2 + "      no:\n", r':7: .*YAML reads no as a boolean; write "no"'),
    "a class YAML reads as a number": (
        V2 + "      1.0: {from: road}\n",
        r':7: .*YAML reads 1.0 as a number; write "1.0"',
    ),
    "a class in a list YAML reads as a date": (
        V1 + "  - name: v2\n    classes: [road, 2020-01-01]\n",
        r':6: .*YAML reads 2020-01-01 as a date; write "2020-01-01"',
    ),
    "a list of numbers": (V1 + "  - name: v2\n    classes: [road, 7]\n", r':6: .*YAML reads 7 as a number; write "7"'),
    "very many versions": (
        "versions: [" + "{name: v, classes: [a]}, " * 1_001 + "]\n",
        r":1: .*1001 versions are too many; the limit is 1000",
    ),
    "a version that is a number": (
        V1 + "  - name: 2.0\n    classes: [road]\n",
        r':5: .*YAML reads 2.0 as a number; write "2.0"',
    ),
    "a parent that is a boolean": (
        V2 + "      a: {from: yes}\n",
        r":7: .*a parent must be text, but YAML reads yes as a boolean",
    ),
    "no parent": (V2 + "      a: {from: }\n", r":7: .*`from` of 'a' is empty; remove it if the class is brand-new"),
    "a share of zero": (
        V2 + "      a: {from: {road: 0, bus: 1}}\n",
        r":7: .*a share must be in \(0, 1\], not 0; remove the parent",
    ),
    "a share of many digits": (V2 + "      a: {from: {road: 1" + "0" * 500 + "}}\n", r":7: .*a share must be in"),
    "a share in other digits": (V2 + "      a: {from: {road: ٠.٥, bus: 0.5}}\n", r":7: .*not '٠.٥'"),
    "the same parent twice": (V2 + "      a: {from: [road, road]}\n", r":7: .*duplicate parent 'road' of 'a'"),
    "renamed and from": (V2 + "      a: {from: road, renamed: bus}\n", r":7: .*both `from` and `renamed`"),
    "a guess that is no mark": (
        V2 + "      a: {from: road, guessed: maybe}\n",
        r":7: .*`guessed` of 'a' must be true, not 'maybe'; remove it once the origin is checked",
    ),
    "a guess that is false": (V2 + "      a: {from: road, guessed: no}\n", r":7: .*must be true, not a boolean no; "),
    "a guess without an origin": (
        V2 + "      a: {guessed: true}\n",
        r":7: .*'a' has `guessed`, but no origin; remove it, or add `from` or `renamed`",
    ),
    "a guess of a kept class": (V2 + "      road: {guessed: true}\n", r":7: .*'road' has `guessed`, but no origin"),
    "renamed twice": (
        V2 + "      a: {renamed: car}\n      b: {renamed: car}\n",
        r":8: .*'a' and 'b' have the same id 'car'",
    ),
    "renamed and kept": (
        V2 + "      car:\n      b: {renamed: car}\n",
        r":8: .*'car' and 'b' have the same id 'car'",
    ),
    "a parent in the first version": (
        "versions:\n  - name: v1\n    classes:\n      a: {from: b}\n  - {name: v2, classes: [a]}\n",
        r":4: .*'a' cannot have `from`: v1 is the first version",
    ),
    "a class that is ignored, too": (
        V2 + "      road:\n    ignore: [road]\n",
        r":8: .*ignored label 'road' is also a class of this version",
    ),
    "a parent that is ignored": (
        V1 + "    ignore: [void]\n  - name: v2\n    classes:\n      cone: {from: void}\n",
        r":8: .*'void' is ignored in v1, so it cannot be the origin of 'cone'",
    ),
    "ignored twice": (V2 + "      road:\n    ignore: [a, a]\n", r":8: .*ignored label 'a' is a duplicate"),
    "an ignored label that was several classes": (
        "versions:\n  - name: v1\n    classes:\n      a: {name: S}\n      b: {name: S}\n"
        "  - name: v2\n    classes: [c]\n    ignore: [S]\n",
        r":8: .*'S' is the name of several classes of v1; use an id: 'a' or 'b'",
    ),
    "a key that is another's name": (
        "versions:\n  - name: v1\n    classes:\n      x:\n      d: {name: x}\n  - {name: v2, classes: [d]}\n",
        r":4: .*the key 'x' of one of several classes named 'x' is the name of another",
    ),
    "an id of another class": (
        V2 + "      a: {from: bus, id: car}\n",
        r":7: .*the id 'car' is that of another class, which 'a' does not come from",
    ),
    "an endless name": (
        V1 + "  - {name: v2, classes: [" + "x" * 201 + "]}\n",
        r":5: .*must have at most 200 characters, not 201",
    ),
    "a key that is a number": (V1 + "1: x\n", r":5: 1: an ontology has the unknown key '1'"),
    "a NUL": (V1 + "  - \0", r":5: the character U\+0000 is not allowed in YAML"),
    "an alias": (V1.replace("[road", "&all [road") + "  - name: v2\n    classes: *all\n", r":6: anchors and aliases"),
    "a tag": ("name: !!python/object/apply:os.system ['true']\n", r":1: tags are not supported"),
    "two documents": (V1 + "---\nname: b\n", r":5: several YAML documents in one file"),
    "deeply nested": ("versions: " + "[" * 100_000, r":1: nested more than 12 levels deep"),
    "an empty name": (V1 + "  - name: v2\n    classes: [road, '']\n", r":6: .*must not be empty, padded with blanks"),
    "a padded name": (V1 + "  - name: v2\n    classes: [' road']\n", r":6: .*must not be empty, padded with blanks"),
    "a control character": (V1 + '  - name: v2\n    classes: ["ro\\tad"]\n', r":6: .*control characters: 'ro\\tad'"),
    "a mapping as key": (V2 + "      {a: b}: {from: road}\n", r":7: a key must be text"),
}


@pytest.mark.parametrize("case", BAD_YAML)
def test_a_wrong_file_gives_one_message_with_its_line(case, tmp_path):
    text, message = BAD_YAML[case]
    path = tmp_path / "street.yaml"
    path.write_text(text)
    with pytest.raises(LecoError, match=message) as error:
        Ontology.load(path)
    assert str(error.value).startswith(f"{path}:")
    assert "\n" not in str(error.value)


BAD_JSON = {
    "not JSON": ('{"versions": [', r":1: not valid JSON"),
    "duplicate class": (
        '{"versions": [{"name": "v1", "classes": ["a"]},\n{"name": "v2", "classes": {"a": null,\n "a": null}}]}',
        r":3: duplicate key 'a'",
    ),
    "unknown parent": (
        '{"versions": [{"name": "v1", "classes": ["road"]},\n{"name": "v2", "classes": {"a": {"from":\n "raod"}}}]}',
        r":2: versions\[1\].classes.a.from: 'raod' is not a class of v1; did you mean 'road'\?",
    ),
    "a class that is a number": ('{"versions": [{"name": "v1", "classes": [1]}, {}]}', r":1: .*must be text, not 1"),
    "a key twice in spite of an emoji": (
        '{"name": "\\ud83d\\ude00", "versions": [{"c": 1, "c": 2}]}',
        r":1: duplicate key 'c'",
    ),
    "deeply nested": ("[" * 100_000, r":1: not valid JSON: nested too deeply"),
    "a share that is a boolean": (
        '{"versions": [{"name": "v1", "classes": ["a"]}, {"name": "v2", "classes": {"b": {"from": {"a": true}}}}]}',
        r":1: .*a share must be in \(0, 1\], not True",
    ),
    "a share that is NaN": (
        '{"versions": [{"name": "v1", "classes": ["a"]}, {"name": "v2", "classes": {"b": {"from": {"a": NaN}}}}]}',
        r":1: .*a share must be in \(0, 1\], not nan",
    ),
}


@pytest.mark.parametrize("case", BAD_JSON)
def test_a_wrong_json_file_gives_one_message(case, tmp_path):
    text, message = BAD_JSON[case]
    path = tmp_path / "street.json"
    path.write_text(text)
    with pytest.raises(LecoError, match=message) as error:
        Ontology.load(path)
    assert str(error.value).startswith(f"{path}:")


def test_json_that_yaml_cannot_read_is_located_by_its_path(tmp_path):
    path = tmp_path / "o.json"
    path.write_text(json.dumps({"versions": [{"name": "\U0001f600", "classes": ["a"]}, {"name": "v2", "clases": []}]}))
    with pytest.raises(LecoError, match=r"o\.json: versions\[1\].clases: .*unknown key 'clases'"):
        Ontology.load(path)


BAD_TSV = {
    "empty": ("", "the first line of a TSV mapping must be version names"),
    "one column": ("v1\nroad\n", "the first line of a TSV mapping must be version names"),
    "ragged": ("\nv1\tv2\n\nroad\troad\textra\n", r"street\.tsv:4: 3 columns, but the header has 2"),
    "unknown number": ("v1\tv2\tshare\na\tc\tx\n", r"street\.tsv:2: a share must be in \(0, 1\], not 'x'"),
    "a share beside nothing": (
        "v1\tv2\tshare\na\ta\t1\n\tb\t0.5\n",
        r"street\.tsv:3: the share 0.5 needs a class in both versions, not only b",
    ),
    "a share of itself": ("v1\tv2\tShare\na\ta\t0.5\n", "the shares of 'a' sum to 0.5, not 1"),
    "two versions of one name": ("v1\tv1\na\tb\n", "duplicate version 'v1'"),
    "shares": ("v1\tv2\tshare\na\tc\t0.5\nb\tc\t0.6\n", "the shares of 'c' sum to 1.1, not 1"),
    "shares over three versions": ("v1\tv2\tv3\tshare\na\tb\tc\t1\n", "needs exactly two versions"),
    "an empty version": ("v1\tv2\na\t\n", "version 'v2' has no classes"),
    "the same line twice": (
        "v1\tv2\tshare\na\tc\t0.5\na\tc\t0.5\n",
        r"street\.tsv:3: duplicate row: 'a' and 'c'",
    ),
}


@pytest.mark.parametrize("case", BAD_TSV)
def test_a_wrong_tsv_file_gives_one_message(case, tmp_path):
    text, message = BAD_TSV[case]
    path = tmp_path / "street.tsv"
    path.write_text(text)
    with pytest.raises(LecoError, match=message):
        Ontology.load(path)


def test_files_of_another_format_or_too_large_are_refused(tmp_path):
    huge = tmp_path / "huge.yaml"
    with huge.open("wb") as file:
        file.truncate(1_000_000_000)  # sparse: no disk is used
    with pytest.raises(LecoError, match="too large: 1000 MB; the limit is 32 MB"):
        Ontology.load(huge)
    with pytest.raises(LecoError, match=r"unknown ontology format '.txt'; valid: .yaml, .yml, .json, .tsv"):
        Ontology.load(tmp_path / "street.txt")


@given(ontologies())
def test_yaml_and_json_give_the_same_ontology_back(tmp_path_factory, ontology):
    folder = tmp_path_factory.mktemp("round")
    for ending in ("yaml", "json"):
        path = folder / f"o.{ending}"
        ontology.save(path)
        assert_same(Ontology.load(path), ontology)


@given(ontologies(trees=True))
def test_tsv_gives_the_same_tree_back(tmp_path_factory, ontology):
    path = tmp_path_factory.mktemp("round") / "random.tsv"
    ontology.save(path)
    assert_same(Ontology.load(path), ontology)


def assert_same(found: Ontology, expected: Ontology) -> None:
    assert found.fingerprint == expected.fingerprint
    assert found.versions == expected.versions
    for one, other in zip(found.steps, expected.steps, strict=True):
        assert abs(one.sparse - other.sparse).max() < 1e-9


TRICKY_NAMES = [
    *(
        "no",
        "1.0",
        "-",
        "[a]",
        "{a}",
        "'a'",
        '"a"',
        "ähre",
        "日本",
        "a\\b",
        "true",
        "null",
        "~",
        "&a",
        "*a",
        "%a",
        "@a",
    ),
    *("`a`", "?", "a:", "<<", "=", "2020-01-01", "0x1F", "1_000", "y", "N", "|", ">", "!a"),
]


@pytest.mark.parametrize("name", [*TRICKY_NAMES, "a: b", "a #b", "- a", "a, b"])
def test_any_name_survives_being_written_and_read(name, tmp_path):
    versions = [{"name": "v1", "classes": [name]}, {"name": "v2", "classes": {"x": {"from": name}, name: None}}]
    ontology = Ontology.from_dict({"name": name, "versions": versions})
    for ending in ("yaml", "json", "tsv"):
        path = tmp_path / f"o.{ending}"
        ontology.save(path)
        assert Ontology.load(path).versions == ontology.versions


def test_yaml_may_say_what_json_says(tmp_path, street):
    path = tmp_path / "street.yaml"
    path.write_text(json.dumps(street.to_dict()))
    assert Ontology.load(path).fingerprint == street.fingerprint


def test_a_tsv_mapping_reads_as_people_write_it(tmp_path):
    path = tmp_path / "birds.tsv"
    path.write_text(
        "order\tfamily\tspecies\nOwls\tStrigidae\tSnowy Owl\nOwls\tStrigidae\tTawny Owl\nDucks\tAnatidae\tMallard\n"
    )
    ontology = Ontology.load(path)
    assert [len(version) for version in ontology.versions] == [2, 2, 3]
    assert ontology.translate(["Tawny Owl"], "species", "order") == ["Owls"]
    path.write_text("v1\tv2\tshare\nchild\tspecial\t0.7\nofficer\tspecial\t0.3\n\tdrone\t\n")
    merged = Ontology.load(path)
    assert merged.transition("v2", "v1").shares[0].tolist() == pytest.approx([0.7, 0.3])
    assert_same(_reloaded(merged, path), merged)


@pytest.mark.parametrize(
    "versions",
    [
        [["a"], {"b": {"renamed": "a"}}],
        [["a", "b"], {"k": {"name": "a"}, "b": None}],
        [{"k": {"name": "y"}}, {"k": {"from": ["y"]}}],
        [{"a": {"name": "x"}, "b": {"name": "x"}}, ["a"]],
        [["a", "b"], {"c": {"from": ["a", "b"]}}, {"c": None}],
    ],
)
def test_a_tsv_refuses_what_it_cannot_hold(versions):
    content = [{"name": f"v{n}", "classes": classes} for n, classes in enumerate(versions)]
    with pytest.raises(LecoError, match=r"a TSV mapping cannot represent .*; save as \.yaml or \.json"):
        write_tsv(Ontology.from_dict({"versions": content}))


def test_a_tsv_refuses_a_version_named_share():
    content = [{"name": name, "classes": ["a"]} for name in ("v1", "v2", "share")]
    with pytest.raises(LecoError, match="or a version named `share`"):
        write_tsv(Ontology.from_dict({"versions": content}))


def test_a_single_version_is_not_saved(tmp_path, street):
    with pytest.raises(LecoError, match="an ontology file needs at least two versions"):
        street.until("v1").save(tmp_path / "o.yaml")


HARD = {
    "repeated names, renames back, merges into a kept name": [
        {"a": {"name": "Satyrium"}, "b": {"name": "Satyrium"}, "c": None, "d": None},
        {"a": None, "b": {"name": "Orchid"}, "e": {"renamed": "c"}, "d": {"from": ["d", "c"]}},
        {"a": None, "b": None, "c": {"renamed": "e"}, "d": None, "f": {"from": "d"}},
    ],
    "a name taken over by another lineage": [
        ["car", "truck"],
        {"automobile": {"renamed": "car"}, "car": {"from": "truck"}, "truck": None},
        ["automobile", "car", "truck"],
    ],
    "swapped names": [["a", "b"], {"a": {"renamed": "b"}, "b": {"renamed": "a"}}, ["b", "a"]],
    "a brand-new class with the name of a removed one": [["a", "b"], {"a": {"from": []}, "b": None}, ["a", "b"]],
    "merged under another's name": [
        {"a": None, "b": {"name": "x"}, "c": None},
        {"c": None, "a": {"from": ["a", "c"], "name": "x"}},
    ],
    "generated ids that meet written ones": [["a"], ["b"], {"a": None, "a@v2": None}],
    "an id that another class has as name": [
        {"y": {"id": "x"}, "x": {"id": "z"}, "w": None},
        {"x": {"from": ["y", "w"], "id": "x"}},
    ],
    "rounded shares": [["c0", "c1", "c2"], {"z": {"from": {"c0": 0.31, "c1": 0.524, "c2": 0.167}}}],
}


@pytest.mark.parametrize("case", HARD)
def test_hard_histories_survive_being_written_and_read(case, tmp_path):
    content = [{"name": f"v{n}", "classes": classes} for n, classes in enumerate(HARD[case])]
    ontology = Ontology.from_dict({"name": "hard", "versions": content})
    for ending in ("yaml", "json"):
        path = tmp_path / f"o.{ending}"
        ontology.save(path)
        assert_same(Ontology.load(path), ontology)


def test_shares_written_by_hand_may_be_rounded():
    parents = {"a": 0.333, "b": 0.333, "c": 0.333}
    versions = [{"name": "v1", "classes": list(parents)}, {"name": "v2", "classes": {"d": {"from": parents}}}]
    shares = Ontology.from_dict({"versions": versions}).transition("v2", "v1").shares
    assert shares.sum().item() == pytest.approx(1)


@pytest.mark.parametrize("case", BAD_YAML)
def test_of_all_problems_the_first_is_the_one_that_is_raised(case, tmp_path):
    path = tmp_path / "o.yaml"
    path.write_text(BAD_YAML[case][0])
    with pytest.raises(LecoError) as refused:
        load(path)
    ontology, problems, _ = load_all(path)
    assert ontology is None
    assert problems[0] == str(refused.value)


def test_all_wrong_classes_are_found_and_none_that_follows_from_another(tmp_path):
    path = tmp_path / "o.yaml"
    path.write_text(
        V2 + "      a: {from: rod}\n      b: {from: bus}\n      c: {renamed: kar}\n      d: {form: car}\n      e: 3\n"
        "  - name: v3\n    classes:\n      f: {from: a}\n      g: {from: z}\n"
    )
    _, problems, _ = load_all(path)
    assert [int(problem.split(":")[1]) for problem in problems] == [7, 9, 10, 11, 15]
    path.write_text(V2 + "      road:\n")
    ontology, problems, _ = load_all(path)
    assert problems == []
    assert_same(ontology, load(path))


def test_origins_marked_as_guessed_are_listed_and_change_nothing_else(tmp_path):
    marked = V2 + "      lane: {from: road, guessed: true}\n      automobile: {renamed: car, guessed: True}\n"
    marked += "      mixed: {from: {road: 0.5, bus: 0.5}, guessed: true}\n      bus:\n"
    path = tmp_path / "o.yaml"
    path.write_text(marked)
    ontology, problems, guessed = load_all(path)
    assert problems == []
    assert guessed == ["lane from road", "automobile from car", "mixed from road and bus"]
    path.write_text(marked.replace(", guessed: true", "").replace(", guessed: True", ""))
    assert_same(ontology, load(path))
    for ending in ("yaml", "json"):  # whoever writes an ontology has decided
        ontology.save(tmp_path / f"written.{ending}")
        assert "guessed" not in (tmp_path / f"written.{ending}").read_text()
    content = {"from": "road", "guessed": True}
    versions = [{"name": "v1", "classes": ["road"]}, {"name": "v2", "classes": {"lane": content}}]
    path = tmp_path / "o.json"
    path.write_text(json.dumps({"versions": versions}))
    assert load_all(path)[2] == ["lane from road"]


def _reloaded(ontology: Ontology, path: Path) -> Ontology:
    ontology.save(path)
    return Ontology.load(path)
