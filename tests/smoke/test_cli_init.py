"""`leco init` and `leco check`, as a user would run them."""

import json

import pytest
from tests.commands import assert_refused, leco
from tests.pictures import draw

from leco import LecoError
from leco.cli.check import check
from leco.experiments.init import example


def test_data_become_a_project_and_what_is_open_is_said(tmp_path):
    draw(tmp_path, *(f"v1/{c}/{n}.png" for c in ("cat", "dog") for n in range(3)))
    draw(tmp_path, *(f"v2/{c}/{n}.png" for c in ("cat", "dog-poodle") for n in range(5)), "v2/stray.png")
    result = leco("init", "own", "--strict", "--from-images", "v1/", "v2/", cwd=tmp_path)
    assert result.returncode == 0, result.stderr
    for part in (
        "own: 16 images; labels: 6 of v1, 10 of v2",
        "1 left out: an image outside the class folders: v2/stray.png",
        "2 were moved there (1 in 5 of each class, seed 0)",
        "v1 -> v2, classes: 1 kept by name, 0 inferred, 1 open",
        "dog-poodle: brand-new, or {from: dog}?",
        "complete own/ontology.yaml, then run:",
        "leco check own/experiment.yaml",
    ):
        assert part in result.stdout
    found = leco("check", "own/experiment.yaml", "--json", cwd=tmp_path)
    assert found.returncode == 2  # dogs have no future yet
    (problem,) = json.loads(found.stdout)["problems"]
    assert (problem["about"], problem["count"]) == ("manifest", 3)


def test_guessed_origins_are_listed_and_repeated_until_they_are_checked(tmp_path):
    draw(tmp_path, *(f"v1/{c}/{n}.png" for c in ("cat", "dog", "side_walk") for n in range(3)))
    draw(tmp_path, *(f"v2/{c}/{n}.png" for c in ("cat", "dog-poodle", "husky dog", "Sidewalk") for n in range(10)))
    result = leco("init", "own", "--from-images", "v1", "v2", cwd=tmp_path)
    assert result.returncode == 0, result.stderr
    for part in (
        "v1 -> v2, classes: 1 kept by name, 0 inferred, 3 guessed, 0 open",
        "guessed from the names (3 of 3): Sidewalk renamed from side_walk, dog-poodle from dog, husky dog from dog\n",
        "\ncheck own/ontology.yaml, then run:",
    ):
        assert part in result.stdout
    checked = leco("check", "own/experiment.yaml", "--no-timing", cwd=tmp_path)
    assert checked.returncode == 0, checked.stderr
    assert (
        "warning: own/ontology.yaml: 3 origins were guessed by leco init: Sidewalk from side_walk, "
        "dog-poodle from dog, husky dog from dog; remove `guessed: true` once you have checked them\n"
    ) in checked.stdout
    file = tmp_path / "own" / "ontology.yaml"
    file.write_text(file.read_text().replace(", guessed: true", ""))
    assert "guessed" not in leco("check", "own/experiment.yaml", "--no-timing", cwd=tmp_path).stdout


def test_a_history_may_begin_with_one_version(tmp_path):
    draw(tmp_path, *(f"v1/{c}/{n}.png" for c in ("cat", "dog") for n in range(10)))
    result = leco("init", "own", "--from-images", "v1", cwd=tmp_path)
    assert result.returncode == 0, result.stderr
    assert "own: 20 images; labels: 20 of v1" in result.stdout
    found = leco("check", "own/experiment.yaml", "--no-timing", cwd=tmp_path)
    assert found.returncode == 0, found.stderr
    assert "TP0 ce" in found.stdout
    assert "v1: is the only version" in leco("ontology", "check", "own/ontology.yaml", cwd=tmp_path).stdout


def test_problems_are_printed_and_end_in_an_error(tmp_path, capsys):
    example(tmp_path / "own")
    file = tmp_path / "own" / "experiment.yaml"
    (tmp_path / "own" / "ontology.yaml").write_text("versions: []\n")
    file.write_text(file.read_text().replace("seed", "sed"))
    with pytest.raises(LecoError, match=r"experiment.yaml: 2 problems, as listed above"):
        check(file)
    printed = capsys.readouterr().err.splitlines()
    assert [line.startswith("problem: ") for line in printed] == [True, True]


BAD = {
    "not empty": (["init", "."], ".: is not an empty folder"),
    "no kind": (["init", "own", "a", "b"], "give exactly one of --from-images, --from-csv"),
    "no data": (["init", "own", "--from-csv"], "together with the data, oldest version first"),
    "two kinds": (["init", "own", "a", "b", "--from-csv", "--from-coco"], "give exactly one of"),
    "wrong option": (["init", "own", "v1", "v1", "--from-images", "--images", "v1"], "--images is only for files"),
    "wrong column": (["init", "own", "a", "b", "--from-coco", "--label-column", "x"], "are only for --from-csv"),
    "strict example": (["init", "own", "--strict"], "--strict is only for your own data"),
    "no images": (["init", "own", "a", "b", "--from-coco", "--images", "x"], "x: no such folder"),
    "the same twice": (
        ["init", "own", "v1", "./v1", "--from-images"],
        "v1: is given twice; each version needs its own",
    ),
    "the same table twice": (["init", "own", "x.csv", "x.csv", "--from-csv"], "x.csv: is given twice"),
    "missing": (["init", "own", "a.csv", "b.csv", "--from-csv"], "a.csv: no such file"),
}


@pytest.mark.parametrize("case", BAD)
def test_a_wrong_call_gives_one_message_and_writes_nothing(case, tmp_path):
    draw(tmp_path, "v1/dog/a.png")
    (tmp_path / "x.csv").write_text("image,label\nv1/dog/a.png,dog\n")
    arguments, message = BAD[case]
    assert_refused(arguments, message, tmp_path)


@pytest.mark.slow
def test_the_example_is_checked_and_trained_as_it_is(tmp_path):
    assert leco("init", "own", cwd=tmp_path).returncode == 0
    checked = leco("check", "own/experiment.yaml", "--set", "training.batches.steps=4", cwd=tmp_path)
    assert checked.returncode == 0, checked.stderr
    assert "3 trainings: 12 steps, 384 images" in checked.stdout
    assert "on this machine: an estimate from a few steps" in checked.stdout
    assert "memory of a step: about " in checked.stdout
    assert checked.stdout.endswith("ok\n")
    ran = leco("run", "own/experiment.yaml", "--set", "training.batches.steps=4", cwd=tmp_path)
    assert ran.returncode == 0, ran.stderr
    assert len(list((tmp_path / "runs" / "stages").iterdir())) == 3
