"""Stages that are damaged, partly copied, or written by somebody who means harm: named, set aside or left out."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from tests.commands import leco
from tests.stores import make_stages, write_store

from leco.evaluation.evaluate import as_record
from leco.evaluation.scores import scores
from leco.io import SUMS, write_sums

RUN = ["run", "digits-leco", "--size", 40, "--method", "ce", "--set", "training.batches.steps=2", "--runs", "runs"]


@pytest.fixture(scope="module")
def trained(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("trained")
    assert leco(*RUN, cwd=folder).returncode == 0
    return folder


@pytest.fixture
def folder(trained, tmp_path) -> Path:
    shutil.copytree(trained / "runs", tmp_path / "runs")
    shutil.rmtree(tmp_path / "runs" / "bundles")
    return tmp_path


def weights(folder: Path) -> dict[str, bytes]:
    return {path.parent.name: path.read_bytes() for path in folder.glob("runs/stages/*/model.safetensors")}


@pytest.mark.parametrize("missing", ["result.json", "SHA256SUMS", "model.safetensors"])
def test_a_partly_copied_stage_is_set_aside_and_trained_again(folder, trained, missing):
    for path in folder.glob(f"runs/stages/*/{missing}"):
        path.unlink()
    listed = leco("runs", "runs", cwd=folder)
    assert listed.returncode == 0
    result = leco(*RUN, cwd=folder)
    assert result.returncode == 0, result.stderr
    assert result.stderr.count("is not a complete stage; moved to") == 2
    assert weights(folder) == weights(trained)
    assert len(list(folder.glob("runs/aside/*"))) == 2
    again = leco(*RUN, cwd=folder)
    assert (again.returncode, "moved to" in again.stderr) == (0, False)


def test_what_is_set_aside_twice_is_kept_twice(folder):
    for _ in range(2):
        for path in folder.glob("runs/stages/*/result.json"):
            path.unlink()
        assert leco(*RUN, cwd=folder).returncode == 0
    assert len(list(folder.glob("runs/aside/*-2"))) == len(list(folder.glob("runs/aside/*"))) / 2 == 2


@pytest.mark.parametrize("name", ["model.safetensors", "result.json"])
def test_a_damaged_stage_is_named_with_the_remedy(folder, name):
    (path, *_) = sorted(folder.glob(f"runs/stages/*/{name}"))
    content = bytearray(path.read_bytes())
    content[-9] ^= 1
    path.write_bytes(content)
    result = leco("bundle", "runs", path.parent.name, "-o", "bundle", cwd=folder)
    assert result.returncode == 2
    assert (
        f"{path.relative_to(folder)}: is damaged: it changed since it was written; delete its folder" in result.stderr
    )
    assert not (folder / "bundle").exists()


def test_a_damaged_ontology_of_a_store_is_named_and_written_again_by_the_next_run(folder):
    (path,) = folder.glob("runs/ontologies/*.json")
    (stage, *_) = sorted(path.name for path in folder.glob("runs/stages/*"))
    before = path.read_bytes()
    path.write_bytes(before[:50])
    result = leco("bundle", "runs", stage, "-o", "bundle", cwd=folder)
    assert result.returncode == 2
    assert f"{path.relative_to(folder)}:1: not valid JSON" in result.stderr
    assert "run the same experiment again to write it anew" in result.stderr
    assert leco(*RUN, cwd=folder).returncode == 0
    assert path.read_bytes() == before


def test_weights_of_a_previous_stage_that_are_nan_are_named(folder):
    """Not: "try a smaller learning rate"."""
    for stage in sorted(folder.glob("runs/stages/*")):
        if json.loads((stage / "config.json").read_text())["period"]:
            shutil.rmtree(stage)
            continue
        broken = {name: tensor * float("nan") for name, tensor in load_file(stage / "model.safetensors").items()}
        save_file(broken, stage / "model.safetensors")
        write_sums(stage, [path.name for path in stage.iterdir() if path.name != SUMS])
    result = leco(*RUN, cwd=folder)
    assert result.returncode == 2
    assert "holds NaN or infinity; delete its folder to train the stage again" in result.stderr


HOSTILE: dict[str, tuple[str, Any]] = {
    "a huge number": ("seconds", 10**400),
    "an infinite number": ("seconds", float("inf")),
    "a text for a number": ("samples", "60"),
    "a truth for a number": ("samples", True),
    "null for a number": ("threads", None),
    "a list for a score": ("test", {"v2": []}),
    "a score above one": ("test", {"v2": 7.0}),
    "no scores": ("test", []),
    "an ontology elsewhere": ("ontology", "../../x"),
    "another metric": ("metric", "model_dump"),
    "a number for a name": ("device", 7),
    "no configuration": ("config", None),
}


@pytest.mark.parametrize("case", [*HOSTILE, *(f"without {name}" for name in ("seconds", "validation_score", "test"))])
@pytest.mark.parametrize("command", ["runs", "report"])
def test_one_stage_that_does_not_fit_is_left_out_with_one_line(case, command, tmp_path):
    runs = write_store(tmp_path / "runs", make_stages([0], {"ce": 0.5}, cells=()))
    path = sorted(runs.glob("stages/*/summary.json"))[0]
    content = json.loads(path.read_text())
    if case in HOSTILE:
        name, value = HOSTILE[case]
        content[name] = value
    else:
        del content[case.removeprefix("without ")]
    path.write_text(json.dumps(content))
    arguments = [command, "runs"] + (["-o", "report.md"] if command == "report" else [])
    result = leco(*arguments, cwd=tmp_path)
    assert result.returncode == 0, result.stderr
    (line,) = result.stderr.splitlines()
    assert line.startswith("warning: ")
    assert path.parent.name in line
    strict = leco(*arguments, "--strict", cwd=tmp_path)
    assert strict.returncode == 2
    assert strict.stderr.splitlines()[-1].startswith("error: runs: 1 ")


def test_stages_that_start_from_themselves_are_left_out(tmp_path):
    runs = write_store(tmp_path / "runs", make_stages([0], {"ce": 0.5}, cells=()))
    for path in runs.glob("stages/*/summary.json"):
        content = json.loads(path.read_text())
        content["config"]["previous"] = [path.parent.name]
        path.write_text(json.dumps(content))
    result = leco("report", "runs", "-o", "report.md", cwd=tmp_path)
    assert result.returncode == 0, result.stderr
    assert result.stderr.count("starts from itself") == 2


def test_control_characters_of_a_store_do_not_reach_the_terminal(tmp_path):
    runs = write_store(tmp_path / "runs", make_stages([0], {"ce": 0.5}, cells=()))
    for number, path in enumerate(runs.glob("stages/*/summary.json")):
        content = json.loads(path.read_text())
        content["config"]["material"] = "\x1b[2J\x07evil 0123"
        path.write_text(json.dumps(content))
        (path.parent.parent / f"\x1b[31m{number}").mkdir()
    for arguments in (["runs", "runs"], ["report", "runs", "-o", "report.html"]):
        result = leco(*arguments, cwd=tmp_path)
        assert result.returncode == 0
        assert "\x1b" not in result.stdout + result.stderr
        assert "\\x1b[2J\\x07evil" in result.stdout


def test_scores_where_nothing_was_counted_are_json():
    """As where all classes of the older version were merged."""
    (found,) = (as_record({"v1": scores(torch.zeros(2, 3, dtype=torch.int64), ["a", "b"])}) or {}).values()
    assert found.macc is None
    assert json.loads(found.model_dump_json(), parse_constant=pytest.fail)["miou"] is None


def test_chains_of_stages_without_end_are_left_out(tmp_path):
    runs = write_store(tmp_path / "runs", make_stages([0], {"ce": 0.5}, cells=()))
    last = next(runs.glob("stages/*/summary.json")).parent
    content = json.loads((last / "summary.json").read_text())
    before = last.name
    for number in range(300):
        shutil.copytree(last, last.with_name(f"{number:016}"))
        content["config"]["previous"] = [before]
        before = f"{number:016}"
        (last.with_name(before) / "summary.json").write_text(json.dumps(content))
    result = leco("report", "runs", "-o", "report.md", cwd=tmp_path)
    assert result.returncode == 0, result.stderr
    assert "follows on 200 others" in result.stderr
