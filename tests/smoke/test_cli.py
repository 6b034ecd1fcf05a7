"""Every verb, run as a user would, in a process of its own where that matters."""

import inspect
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from tests.commands import assert_refused, leco
from tests.conftest import STREET

from leco.cli.ontology import infer
from leco.ontology.files import to_yaml
from leco.ontology.inference import MIN_SHARE


@pytest.fixture
def street_file(tmp_path: Path) -> Path:
    path = tmp_path / "street.yaml"
    path.write_text(to_yaml(STREET))
    return path


def test_help_names_the_verbs_without_importing_torch():
    code = "import sys; import leco.cli.main; sys.exit(any(m in sys.modules for m in ('torch', 'numpy', 'scipy')))"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
    result = leco("--help")
    assert result.returncode == 0
    assert "ontology" in result.stdout
    assert leco("--version").stdout.startswith("leco 0.")


@pytest.mark.parametrize("group", [(), ("ontology",), ("data",), ("runs",), ("batch",), ("report",)], ids=str)
def test_the_help_does_not_cut_summaries_of_commands(group):
    summaries = leco(*group, "--help").stdout.partition("Commands:\n")[2]
    assert summaries
    assert "..." not in summaries


def test_check_says_what_is_in_a_file(street_file):
    result = leco("ontology", "check", street_file)
    assert result.returncode == 0, result.stderr
    assert "1 split, 2 carved, 1 merged" in result.stdout
    assert "no label of v1 can mean 'drone'" in result.stdout
    assert "nothing comes from 'fax' of v1" in result.stdout
    summary = json.loads(leco("ontology", "check", street_file, "--json").stdout)
    assert [version["classes"] for version in summary["versions"]] == [8, 10, 9]


def test_check_asks_whether_a_new_class_is_an_old_one_renamed(tmp_path):
    path = tmp_path / "o.yaml"
    path.write_text(
        "versions:\n  - {name: v1, classes: [sidewalk, road]}\n  - {name: v2, classes: [side-walk, road]}\n"
    )
    assert "is 'side-walk' the old 'sidewalk'? Then write `renamed: sidewalk`" in leco("ontology", "check", path).stdout


def test_check_uses_no_torch(street_file):
    code = f"""
import sys
sys.argv = ["leco", "ontology", "check", {str(street_file)!r}]
from leco.cli.main import app
try:
    app()
except SystemExit:
    pass
sys.exit("torch" in sys.modules)
"""
    assert subprocess.run([sys.executable, "-c", code], capture_output=True).returncode == 0


def test_diff_compares_the_last_two_versions_or_those_asked_for(street_file):
    assert "ignored" in leco("ontology", "diff", street_file).stdout
    first = leco("ontology", "diff", street_file, "v1", "v2", "--json")
    assert {"kind": "renamed", "old": ["car"], "new": ["automobile"]} in json.loads(first.stdout)
    backwards = leco("ontology", "diff", street_file, "v2", "v1")
    assert backwards.returncode == 2
    assert "v2 does not come before v1" in backwards.stderr


@pytest.mark.parametrize("ending", ["svg", "html"])
def test_draw_writes_a_picture(street_file, ending):
    output = street_file.with_suffix(f".{ending}")
    assert leco("ontology", "draw", street_file, "-o", output).returncode == 0
    assert "special-subject" in output.read_text()


def test_infer_reads_a_table(tmp_path):
    rows = ["road,lane"] * 5 + ["road,road"] * 5 + ["bus,coach"] * 5 + ["car,coach"] * 1 + ["bus,tram"] * 2
    (tmp_path / "labels.csv").write_text("\n".join(["coarse,fine", *rows]) + "\n")
    arguments = ["labels.csv", "--old", "coarse", "--new", "fine", "-o", "ontology.yaml", "--versions", "2019", "2020"]
    result = leco("ontology", "infer", *arguments, cwd=tmp_path)
    assert result.returncode == 0, result.stderr
    assert "5.56% disagree with the majority parent" in result.stdout
    assert "old classes that are not a majority parent: car" in result.stdout
    written = (tmp_path / "ontology.yaml").read_text()
    assert "tram: {from: bus}  # 100% of 2, seen in 2; seen in too few samples to decide" in written
    assert leco("ontology", "check", "ontology.yaml", cwd=tmp_path).returncode == 0
    (tmp_path / "ontology.yaml").write_text("# edited\n")
    assert_refused(["ontology", "infer", *arguments], "ontology.yaml: exists, and may have been edited", tmp_path)
    assert (tmp_path / "ontology.yaml").read_text() == "# edited\n"
    assert leco("ontology", "infer", *arguments, "--overwrite", cwd=tmp_path).returncode == 0
    assert (tmp_path / "ontology.yaml").read_text() == written


def test_the_help_of_infer_shows_the_default_of_the_code():
    assert inspect.signature(infer).parameters["min_share"].default == MIN_SHARE


def test_infer_reads_two_folders_of_masks(tmp_path):
    for folder, values in (("old", [0, 1, 2]), ("new", [1, 0, 2])):
        (tmp_path / folder).mkdir()
        for number in range(5):
            Image.fromarray(np.array([values], dtype=np.uint8)).save(tmp_path / folder / f"{number}.png")
        (tmp_path / f"{folder}.csv").write_text(f"id,name\n0,{folder}-0\n1,{folder}-1\n2,void\n")
    arguments = ["--old", "old", "--new", "new", "--old-classes", "old.csv", "--new-classes", "new.csv"]
    result = leco("ontology", "infer", *arguments, "--ignore", "void", "-o", "o.yaml", cwd=tmp_path)
    assert result.returncode == 0, result.stderr
    assert "new-0: {from: old-1}" in (tmp_path / "o.yaml").read_text()
    assert "ignore: [void]" in (tmp_path / "o.yaml").read_text()


BAD_CALLS = {
    "missing file": (["check", "missing.yaml"], "missing.yaml: no such file"),
    "unknown version": (["diff", "street.yaml", "v1", "v9"], "street.yaml: 'v9' is not a version of street"),
    "class lists for a table": (
        ["infer", "labels.csv", "--old", "coarse", "--new", "fine", "-o", "o.yaml", "--old-classes", "x.csv"],
        "a table has names already",
    ),
    "a control character in a file": (
        ["infer", "control.csv", "--old", "coarse", "--new", "fine", "-o", "o.yaml"],
        "control.csv: versions[0].classes[0]: a class name must not be empty, padded with blanks or contain control",
    ),
    "two versions of one name": (
        ["infer", "labels.csv", "--old", "coarse", "--new", "fine", "-o", "o.yaml", "--versions", "a", "a"],
        "labels.csv: versions[1].name: duplicate version 'a'",
    ),
    "wrong ending": (
        ["draw", "street.yaml", "-o", "picture.png"],
        "picture.png: unknown format '.png'; valid: .svg, .html",
    ),
    "missing folder": (["draw", "street.yaml", "-o", "no/picture.svg"], "the folder no does not exist"),
    "unknown class": (["draw", "street.yaml", "-o", "a.svg", "--focus", "raod"], "did you mean 'road'?"),
    "unknown column": (
        ["infer", "labels.csv", "--old", "corse", "--new", "fine", "-o", "o.yaml"],
        "labels.csv: has no column 'corse'; did you mean 'coarse'?",
    ),
    "the same column": (
        ["infer", "labels.csv", "--old", "fine", "--new", "fine", "-o", "o.yaml"],
        "--old and --new are the same column, 'fine'",
    ),
    "no such masks": (["infer", "--old", "a", "--new", "b", "-o", "o.yaml"], "a: no such folder"),
    "senseless share": (
        [
            "infer",
            "labels.csv",
            "--old",
            "coarse",
            "--new",
            "fine",
            "-o",
            "o.yaml",
            "--kind",
            "soft",
            "--min-share",
            "2",
        ],
        "min_share must be in [0, 1), not 2.0",
    ),
}


@pytest.mark.parametrize("case", BAD_CALLS)
def test_a_wrong_call_gives_one_message_and_writes_nothing(case, street_file):
    folder = street_file.parent
    (folder / "labels.csv").write_text("coarse,fine\nroad,lane\n")
    (folder / "control.csv").write_text('coarse,fine\n"ro\x1b[31mad\nx",lane\n')
    arguments, message = BAD_CALLS[case]
    assert_refused(["ontology", *arguments], message, folder)


@pytest.mark.slow
def test_the_demo_tells_the_whole_story(tmp_path):
    result = leco("demo", cwd=tmp_path)
    assert result.returncode == 0, result.stderr
    assert "split: loop -> 0, 6, 8, 9" in result.stdout
    assert "136 trainings, 64 of them shared with others: 72 to do" in result.stdout
    for name in ("ontology.html", "ontology.yaml", "results.png"):
        assert (tmp_path / "leco-demo" / name).is_file()
    rows = [line for line in result.stdout.splitlines() if "±" in line and "%" in line]
    assert len(list((tmp_path / "leco-demo" / "runs" / "stages").iterdir())) == 72
    means = {line.split("±")[0].rsplit(None, 1)[0].strip(): float(line.split("±")[0].split()[-1]) for line in rows}
    lpl, best, all_fine = (
        value for name, value in means.items() if "lpl" in name or "pseudo" in name or "fine)" in name
    )
    assert 80 < lpl < best < all_fine < 95
    again = leco("demo", cwd=tmp_path)
    assert "0 to do" in again.stdout  # everything is kept
    assert again.stdout.split("test mAcc")[1] == result.stdout.split("test mAcc")[1]


MISTYPED = {
    "an unknown option": (["run", "x", "--sed", "3"], "leco run: unknown option --sed; did you mean '--seed'?"),
    "a missing argument": (["run"], "leco run: BENCHMARK|FILE is missing (leco run --help)"),
    "a missing option": (["plan", "x"], "leco plan: --budget is missing"),
    "a bad number": (["run", "x", "--seed", "q"], "leco run: --seed q: "),
    "a number out of range": (["predict", "a", "b", "--top=0"], "leco predict: --top=0: "),
    "an option without its value": (["evaluate", "a", "b", "--split"], "leco evaluate: --split needs a value"),
    "too many words": (["check", "a", "b"], "leco check: "),
    "an unknown command": (["rum"], "leco: unknown command 'rum'; did you mean 'run'? (leco --help)"),
    "an unknown inner command": (
        ["ontology", "chekc"],
        "leco ontology: unknown command 'chekc'; did you mean 'check'",
    ),
}


@pytest.mark.parametrize("case", MISTYPED)
def test_what_is_mistyped_is_one_line(case, tmp_path):
    arguments, message = MISTYPED[case]
    assert_refused(arguments, f"error: {message}", tmp_path)


def test_a_command_without_anything_shows_its_help(tmp_path):
    result = leco("ontology", cwd=tmp_path)
    assert result.returncode == 2
    assert "Usage: leco ontology" in result.stderr + result.stdout
