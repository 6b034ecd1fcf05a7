"""The report of `make bench`: rows of all scripts have a place in the documentation."""

import importlib.util
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
PAGE = BENCHMARKS.parent / "docs" / "explanation" / "performance.md"
SPEC = importlib.util.spec_from_file_location("bench", BENCHMARKS / "bench.py")
assert SPEC is not None
assert SPEC.loader is not None
bench = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(bench)

FOUND = [
    {"table": "steps", "measured": "a", "result": "1", "goal": "", "limit": "b", "script": "x.py"},
    {"table": "steps", "measured": "c", "result": "2", "goal": "", "limit": "d", "script": "y.py --z 1"},
    {"table": "growth", "measured": "e", "result": "3", "goal": "4", "limit": "", "script": "z.py"},
    {"figure": "growth-classes", "name": "lpl", "x": [10, 1_000], "y": [1.0, 20.0], "script": "z.py"},
]


def test_rows_become_tables_without_empty_columns():
    assert dict(bench.tables(FOUND)) == {
        "steps": "| measured | script | result | limited by |\n| --- | --- | --- | --- |\n"
        "| a | `x.py` | 1 | b |\n| c | `y.py --z 1` | 2 | d |",
        "growth": "| measured | script | result | goal |\n| --- | --- | --- | --- |\n| e | `z.py` | 3 | 4 |",
    }


def test_every_script_exists_and_every_table_has_a_place():
    tables = {
        name for path in BENCHMARKS.glob("*.py") for name in re.findall(r'\brow\(\s*"([\w-]+)"', path.read_text())
    }
    assert tables == set(re.findall(r"<!-- bench: ([\w-]+) -->", PAGE.read_text())) - {"machine"}
    assert all((BENCHMARKS / script.split()[0]).is_file() for script in bench.SCRIPTS)


@pytest.fixture
def measured(tmp_path, monkeypatch):
    for name, path in (
        ("BUILD", tmp_path / "build"),
        ("FIGURES", tmp_path / "figures"),
        ("PAGE", tmp_path / "page.md"),
    ):
        monkeypatch.setattr(bench, name, path)
    bench.FIGURES.mkdir()
    bench.PAGE.write_text(PAGE.read_text())

    def run(command: list[str], env: dict[str, str], **_: object) -> subprocess.CompletedProcess[str]:
        is_growth = "growth.py" in command[1]
        for found in FOUND if is_growth else ():
            with Path(env["LECO_BENCH"]).open("a") as file:
                file.write(json.dumps(found) + "\n")
        return subprocess.CompletedProcess(command, 0 if is_growth else 1)

    monkeypatch.setattr(subprocess, "run", run)


def test_what_was_measured_is_pasted_and_nothing_else_changes(measured, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["bench.py", "--only", "growth"])
    bench.main()
    monkeypatch.setattr(sys, "argv", ["bench.py", "--paste"])
    bench.main()
    page = bench.PAGE.read_text()
    assert (
        "| e | `z.py` | 3 | 4 |\n\n![ms a step over newest classes](../figures/growth-classes.svg)\n\n<!-- end -->"
        in page
    )
    assert (bench.FIGURES / "growth-classes.svg").read_text().startswith("<svg")
    block = re.compile(r"(<!-- bench: (?:steps|growth|machine) -->).*?(<!-- end -->)", re.DOTALL)
    assert block.sub(r"\1\2", page) == block.sub(r"\1\2", PAGE.read_text())


def test_nothing_is_pasted_if_a_script_failed(measured, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["bench.py", "--only", "growth", "views"])
    with pytest.raises(SystemExit, match=r"failed: views.py"):
        bench.main()
    monkeypatch.setattr(sys, "argv", ["bench.py", "--paste"])
    with pytest.raises(SystemExit, match=r"not pasted, since some scripts failed: views.py"):
        bench.main()
    assert bench.PAGE.read_text() == PAGE.read_text()
