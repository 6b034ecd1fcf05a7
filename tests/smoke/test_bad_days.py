"""Killed, out of space, twice at once: every command that writes ends as an undisturbed one, or refuses in one line.

A child process, forked from this one, runs a command and fails at one of the moments at which it changes files.
"""

import os
import shutil
import signal
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from tests.commands import leco
from tests.shapes import write_project
from tests.trainings import train_digits

from leco import io

pytestmark = pytest.mark.slow
CHANGES = ("os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.truncate", "os.link", "os.chmod")
MOMENTS = 6  # of each command, evenly among all


def kill() -> None:
    """End this process as `kill -9` and the kernel that runs out of memory do."""
    os.kill(os.getpid(), signal.SIGKILL)


def fill() -> None:
    """Fail as a full disk does."""
    raise OSError(28, "No space left on device")


def lock() -> None:
    """Fail as a disk that has become read-only does."""
    raise OSError(30, "Read-only file system")


@dataclass(frozen=True)
class Ended:
    status: int  # negative for a signal
    errors: str
    moments: int  # at which files were changed


def child(folder: Path, arguments: list[object], moment: int = 0, fail: Callable[[], object] = kill) -> int:
    """Start a command in a process that fails at one of its moments, if any; return the number of the process."""
    started = os.fork()
    if started:
        return started
    seen = 0

    def count(event: str, given: tuple[Any, ...]) -> None:
        nonlocal seen
        writes = event == "open" and isinstance(given[2], int) and given[2] & (os.O_WRONLY | os.O_RDWR)
        inside = (event in CHANGES or writes) and str(given[0]).startswith(str(folder / "work"))
        seen += inside
        if inside and seen == moment:
            fail()

    status = 99
    try:
        torch.set_num_threads(1)
        io.remove_leftovers.cache_clear()
        io._SETTLED = 0.0
        sys.addaudithook(count)
        result = leco(*arguments, cwd=folder / "work")
        status = result.returncode
        (folder / f"errors-{os.getpid()}").write_text(f"{seen}\n{result.stderr}")
    except BaseException as error:
        (folder / f"errors-{os.getpid()}").write_text(f"{seen}\nTraceback: {error!r}")
    os._exit(status)


def end(folder: Path, process: int) -> Ended:
    _, status = os.waitpid(process, 0)
    noted = folder / f"errors-{process}"
    seen, _, errors = noted.read_text().partition("\n") if noted.exists() else ("0", "", "")
    return Ended(os.waitstatus_to_exitcode(status), errors, int(seen))


@pytest.fixture(scope="module")
def source(tmp_path_factory) -> Path:
    """Own images with weights to embed them with and to fine-tune, digits, and a model."""
    folder = tmp_path_factory.mktemp("source")
    write_project(folder)
    trained = train_digits(folder / "digits", {"training.batches.steps": "2", "training.batches.evaluate_every": "2"})
    shutil.copytree(trained.folders[-1], folder / "model")
    (folder / "pictures").mkdir()
    for number in range(5):
        Image.fromarray(np.full((8, 8), 40 * number, dtype=np.uint8)).save(folder / "pictures" / f"{number}.png")
    return folder


DIGITS = ["run", "digits-leco", "--size", 40, "--method", "lpl+st-hard", "--set", "training.batches.steps=4"]
DIGITS += ["--set", "training.batches.evaluate_every=2", "--runs", "runs", "--bundle", "bundle"]
COMMANDS = {
    "training": DIGITS,
    "embedding and fine-tuning": ["run", "experiment.yaml", "--runs", "runs", "--bundle", "bundle"],
    "prediction": ["predict", "model", "pictures", "-o", "answers.csv"],
    "export": ["export", "model", "-o", "model.onnx"],
    "upgrade": ["upgrade", "model", "--ontology", "newer.yaml", "-o", "newer"],
}


def prepare(source: Path, folder: Path) -> None:
    """Copy the sources to where a command may write."""
    shutil.rmtree(folder / "work", ignore_errors=True)
    shutil.copytree(source, folder / "work", ignore=shutil.ignore_patterns("digits"))
    text = (source / "model" / "ontology.yaml").read_text()
    (folder / "work" / "newer.yaml").write_text(f"{text}  - name: v3\n    classes: {{one: {{from: ['0', '1']}}}}\n")


def written(folder: Path) -> dict[str, bytes]:
    """All files that must be equal to the bit: weights, features, answers and exported models."""
    kinds = (".safetensors", ".csv", ".onnx", ".yaml")
    files = sorted(
        path for path in (folder / "work").rglob("*") if path.suffix in kinds and "features" not in path.parts
    )
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


@pytest.mark.parametrize("fail", [kill, fill, lock], ids=["killed", "disk full", "disk read-only"])
@pytest.mark.parametrize("name", COMMANDS)
def test_a_disturbed_command_ends_like_an_undisturbed_one_when_it_is_called_again(
    name, fail, source, tmp_path, monkeypatch
):
    monkeypatch.setenv("LECO_SAVE_EVERY", "0")
    command = COMMANDS[name]
    prepare(source, tmp_path)
    undisturbed = end(tmp_path, child(tmp_path, command))
    assert undisturbed.status == 0, undisturbed.errors
    expected = written(tmp_path)
    for moment in sorted({1 + round(place * (undisturbed.moments - 1) / MOMENTS) for place in range(MOMENTS + 1)}):
        prepare(source, tmp_path)
        disturbed = end(tmp_path, child(tmp_path, command, moment, fail))
        if fail is kill:
            assert disturbed.status == -signal.SIGKILL
        else:
            assert disturbed.status in (0, 2), disturbed.errors
            assert "Traceback" not in disturbed.errors
            assert disturbed.errors.count("error: ") == (disturbed.status == 2), disturbed.errors
        again = end(tmp_path, child(tmp_path, command))
        assert again.status == 0, (moment, again.errors)
        assert written(tmp_path) == expected, moment
        assert list((tmp_path / "work").rglob(".leco-*")) == [], moment


@pytest.mark.parametrize("name", ["training", "embedding and fine-tuning", "prediction", "export", "upgrade"])
def test_a_command_may_run_twice_at_once(name, source, tmp_path):
    prepare(source, tmp_path)
    assert end(tmp_path, child(tmp_path, COMMANDS[name])).status == 0
    expected = written(tmp_path)
    prepare(source, tmp_path)
    ended = [end(tmp_path, process) for process in [child(tmp_path, COMMANDS[name]) for _ in range(2)]]
    assert {found.status for found in ended} <= {0, 2}
    assert all("another process is working" in found.errors for found in ended if found.status == 2), ended
    assert end(tmp_path, child(tmp_path, COMMANDS[name])).status == 0
    assert written(tmp_path) == expected


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_an_ended_command_leaves_no_temporary_files(number, source, tmp_path):
    prepare(source, tmp_path)
    process = child(tmp_path, COMMANDS["prediction"], 2, lambda: os.kill(os.getpid(), number))
    assert end(tmp_path, process).status == 128 + number
    assert [path.name for path in (tmp_path / "work").iterdir() if path.name.startswith((".leco", "answers"))] == []


def test_a_place_that_cannot_be_written_to_is_refused_in_one_line(source, tmp_path):
    prepare(source, tmp_path)
    for command in COMMANDS.values():
        moved = [
            f"/proc/none/{word}" if before in ("-o", "--runs", "--bundle") else word
            for before, word in zip(["", *command], command, strict=False)
        ]
        result = leco(*moved, cwd=tmp_path / "work")
        assert result.returncode == 2
        assert [line for line in result.stderr.splitlines() if line.startswith("error: /proc/none")], result.stderr
