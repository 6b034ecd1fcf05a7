"""A store at an address: stages are uploaded to and downloaded from any storage."""

import json
import shutil
import uuid
from pathlib import Path

import pytest
from tests.commands import assert_refused

from leco.errors import LecoError
from leco.experiments import run as running
from leco.experiments.experiment import experiment
from leco.experiments.grid import Graph, train_one
from leco.experiments.remote import Remote, at_hand, is_url, local_path
from leco.reports.stored import read_store


def graph(method: str, steps: int = 8) -> Graph:
    wanted = experiment("digits-leco", {"method": method, "size": 40}, {"training.batches.steps": str(steps)})
    return Graph.of([wanted], Path())


def train_all(planned: Graph, runs: str | Path) -> None:
    for name in planned.missing(runs):
        train_one(planned.needed_by[name], name, Path(), runs, device="cpu")


@pytest.fixture
def disk(tmp_path, monkeypatch):
    """The disk of one machine."""
    (tmp_path / "disk").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "disk"))
    return tmp_path / "disk"


@pytest.fixture
def url():
    return f"memory://{uuid.uuid4().hex}/runs"


def test_stages_trained_at_an_address_are_those_of_a_folder(tmp_path, disk, url):
    planned = graph("lpl+st-hard/cond")
    train_all(planned, tmp_path / "runs")
    for name in planned.missing(url):
        train_one(planned.needed_by[name], name, Path(), url, device="cpu")
        shutil.rmtree(disk)  # the next stage is trained on another machine
        disk.mkdir()
    assert planned.missing(url) == []
    found = at_hand(url)
    assert {path.name for path in (found / "stages").iterdir()} == set(planned.stages)
    for name in planned.stages:
        results = [json.loads((r / "stages" / name / "result.json").read_text()) for r in (found, tmp_path / "runs")]
        assert results[0]["test"] == results[1]["test"]
        assert not (found / "stages" / name / "model.safetensors").exists()  # a report needs no weights
    assert len(read_store(found).records) == 3


def test_another_machine_continues_from_the_last_checkpoint(disk, url, monkeypatch):
    planned = graph("ce", steps=6)
    first = next(iter(planned.stages))
    monkeypatch.setenv("LECO_SAVE_EVERY", "0")
    put, steps = Remote.put_checkpoint, []

    def put_then_die(self: Remote, folder: Path) -> None:
        put(self, folder)
        steps.append(folder)
        if len(steps) == 4:
            raise ConnectionError("the machine is gone")

    monkeypatch.setattr(Remote, "put_checkpoint", put_then_die)
    with pytest.raises(ConnectionError):
        train_one(planned.needed_by[first], first, Path(), url, device="cpu")
    shutil.rmtree(disk)
    disk.mkdir()
    monkeypatch.setattr(Remote, "put_checkpoint", put)
    begun, resume = [], running.Training.resume

    def note_and_resume(self, checkpoint):
        begun.append(checkpoint.step)
        resume(self, checkpoint)

    monkeypatch.setattr(running.Training, "resume", note_and_resume)
    train_one(planned.needed_by[first], first, Path(), url, device="cpu")
    assert begun == [4]
    remote = Remote(url)
    assert remote.complete() == [first]
    assert remote.files.glob(f"{remote.root}/partial/*/*") == []


def test_a_stage_without_its_result_is_not_complete(disk, url):
    remote = Remote(url)
    remote.files.makedirs(f"{remote.root}/stages/abc", exist_ok=True)
    remote.files.pipe_file(f"{remote.root}/stages/abc/model.safetensors", b"half of it")
    assert remote.complete() == []
    assert at_hand(url) == remote.local
    assert not (remote.local / "stages" / "abc").exists()


def test_what_names_a_folder():
    assert not is_url("runs")
    assert not is_url("file:///a/b%20c")
    assert local_path("file:///a/b%20c") == Path("/a/b c")
    assert is_url("s3://bucket/runs")


def test_an_address_of_an_unknown_kind_is_refused(disk, tmp_path):
    with pytest.raises(LecoError, match="smb3://here: cannot be opened"):
        Remote("smb3://here")
    assert_refused(["report", "smb3://here"], "cannot be opened", tmp_path)


BAD = {
    "another machine": (["grid", "digits-leco", "--runs", "file://host/x"], "is a folder of the machine 'host'"),
    "an address for one run": (["run", "digits-leco", "--runs", "memory://x"], "is an address"),
    "no name": (["grid", "digits-leco", "--runs", ""], "--runs is empty; pass a folder"),
    "a file system that lacks something": (["grid", "digits-leco", "--runs", "reference://x"], "cannot be opened"),
    "no methods": (["grid", "digits-leco", "--methods", ","], "pass at least one of each"),
}


@pytest.mark.parametrize("case", BAD)
def test_an_invalid_place_for_runs_is_refused(case, disk, tmp_path):
    arguments, message = BAD[case]
    assert_refused(arguments, message, tmp_path)
