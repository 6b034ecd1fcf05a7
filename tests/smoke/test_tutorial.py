"""docs/tutorial.md, run literally: every command in its order, with fewer images and steps."""

import csv
import re
import runpy
import shlex
import sys
from pathlib import Path

import pytest
from tests.commands import leco

from leco import Ontology

ROOT = Path(__file__).parents[2]
FEWER = {
    "--images 60": "--images 6",
    "leco run": "leco run --set training.batch_size=16 --set training.evaluate_every=2",
}


def change(file: Path, lines: list[str]) -> None:
    """Replace the lines that have the same key, as the tutorial says."""
    text = file.read_text()
    for line in lines:
        key = re.escape(line.strip().split(":")[0])
        text, count = re.subn(rf"^( +){key}:.*$", rf"\g<1>{line.strip()}", text, flags=re.MULTILINE)
        assert count == 1, f"{file}: {line}"
    file.write_text(text)


def answered(file: Path) -> list[str]:
    with file.open(newline="") as lines:
        return [row["label"] for row in csv.DictReader(lines)]


def shortened(command: str) -> str:
    for full, fewer in FEWER.items():
        command = command.replace(full, fewer)
    return command


@pytest.mark.slow
def test_the_tutorial_works_as_it_is_written(cifar_root, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "data").symlink_to(cifar_root)
    said: dict[str, str] = {}
    for kind, block in re.findall(r"^```(\w+)\n(.*?)^```", (ROOT / "docs" / "tutorial.md").read_text(), re.M | re.S):
        if kind == "yaml":
            experiment = "image_size" in block
            file = tmp_path / "project" / ("experiment.yaml" if experiment else "ontology.yaml")
            change(file, [line.replace("300", "4") for line in block.splitlines()])
        elif kind == "python":
            exec(compile(block, "tutorial.md", "exec"), {})
        for line in block.splitlines() if kind == "sh" else ():
            program, *arguments = shlex.split(shortened(line), comments=True)
            if program == "python":
                monkeypatch.setattr(sys, "argv", arguments)
                runpy.run_path(str(ROOT / arguments[0]), run_name="__main__")
            elif arguments[:2] != ["data", "fetch"]:  # nothing is fetched in tests
                result = leco(*arguments)
                assert result.returncode == 0, f"{line}\n{result.stderr}"
                said[" ".join(arguments[:2])] = result.stdout
    assert "1 to be explained" in said["init project"]
    assert re.search(r"renamed +trees +tree", said["ontology diff"])
    assert re.search(r"merged +aquatic_mammals, fish +sea_animal", said["ontology diff"])
    assert re.search(r"added +- +rocket", said["ontology diff"])
    for name in ("answers.csv", "old-answers.csv", "sure.csv", "same-answers.csv", "model.onnx", "model/README.md"):
        assert (tmp_path / name).stat().st_size > 0
    answers = {name: answered(tmp_path / name) for name in ("answers.csv", "old-answers.csv", "same-answers.csv")}
    assert answers["answers.csv"] == answers["same-answers.csv"]
    history = Ontology.load(tmp_path / "project" / "ontology.yaml")
    assert set(answers["answers.csv"]) <= set(history["v2"].handles)
    assert set(answers["old-answers.csv"]) <= {*history["v1"].handles, ""}  # rockets have no name there
