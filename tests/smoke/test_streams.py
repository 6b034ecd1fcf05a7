"""Standard streams that are a pipe without a reader, closed, or on a full disk."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from tests.trainings import train_digits


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """A model, and images whose answers do not fit into the buffer of a pipe."""
    folder = tmp_path_factory.mktemp("streams")
    train_digits(folder, {"training.batches.steps": "2"})
    (folder / "images").mkdir()
    Image.fromarray(np.zeros((8, 8), dtype=np.uint8)).save(folder / "image.png")
    for number in range(800):
        os.link(folder / "image.png", folder / "images" / f"{number:0100}.png")
    return folder


def shell(command: str, folder: Path) -> tuple[int, str]:
    """Exit code of a shell, in which `leco` is ours, and what was written to its standard error."""
    ours = f'leco() {{ exec "{sys.executable}" -m leco "$@"; }}; {command}'
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    found = subprocess.run(
        ["bash", "-o", "pipefail", "-c", ours], cwd=folder, capture_output=True, text=True, timeout=300, env=environment
    )
    return found.returncode, found.stderr


@pytest.mark.parametrize("command", ["--version | true", "predict bundle-v2 images | head -1"])
def test_a_reader_that_has_seen_enough_ends_the_command_as_its_signal_would(command, folder):
    assert shell(f"leco {command}", folder) == (141, "")


@pytest.mark.parametrize("command", ["--version", "predict bundle-v2 images"])
def test_closed_standard_output_is_one_message(command, folder):
    message = "error: standard output: is closed; redirect it to a file or to /dev/null\n"
    assert shell(f"leco {command} >&-", folder) == (2, message)


def test_a_full_disk_is_one_message(folder):
    assert shell("leco --version > /dev/full", folder) == (2, "error: output: No space left on device\n")


def test_files_are_written_though_no_stream_is_open(folder):
    assert shell("leco predict bundle-v2 image.png -o out.csv <&- >&- 2>&-", folder) == (0, "")
    header, answer = (folder / "out.csv").read_text().splitlines()
    assert header == "input,version,label,probability"
    assert answer.startswith("image.png,v2,")
