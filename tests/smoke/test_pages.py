"""Every command of the documentation, run: page by page, in the order of the page, at small size."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests import own_data
from tests.pages import PAGES, blocks, follow
from tests.pictures import draw
from typer.main import get_command

from leco.cli.main import app
from leco.data.benchmarks import BENCHMARKS
from leco.methods import method
from leco.methods.terms import TERMS
from leco.modalities import MODALITIES
from leco.training.finish import HEADS
from leco.training.loggers import LOGGERS
from leco.training.optimisers import OPTIMISERS, SCHEDULES

# Commands that are not run here, and why.
LEFT_OUT = {
    "pip ": "installs packages",
    "torchrun ": "starts processes, as tests/smoke/test_processes.py does",
    "leco data fetch": "downloads data",
    ".venv/bin/python benchmarks/": "measures for many minutes",
    "leco reproduce": "reads the paper's datasets, as tests/smoke/test_reproduce.py does with made-up ones",
}
STEPS = "--set training.batches.steps=2 --set training.batches.evaluate_every=2"
FEW = f"{STEPS} --set training.batches.size=8"
SMALL = f"{FEW} --set training.network.backbone=wrn-16-1"
SCRIPT = 'network={"backbone": "wrn-16-1"}, batches={"steps": 2, "size": 8}'
# Grids train in processes of their own, which tests/smoke/test_grid.py does: one of them is enough here.
SMALLER = {
    "README.md": {
        "leco run project": f"leco run {SMALL} project",
        "leco.train(data)": f"leco.train(data, {SCRIPT})",
    },
    "python.md": {
        "leco.train(data)": f"leco.train(data, {SCRIPT})",
        '"backbone": "resnet18"': '"backbone": "wrn-16-1"',
        '"steps": 1_000, "size": 128': '"steps": 2, "size": 8',
    },
    "extend.md": {"run digits-leco": f"run digits-leco {STEPS}", "run experiment.yaml": f"run experiment.yaml {FEW}"},
    "bundles.md": {"leco run project": f"leco run {FEW} project"},
    "own-data.md": {"leco run": f"leco run {FEW}", "--time 30m": "--time 30m --dry-run"},
    "planning.md": {
        "leco plan": f"leco plan {FEW} --draws 5",
        "leco batch export": f"leco batch export {FEW}",
    },
    "reports.md": {"--seeds 0-4": f"--seeds 0-1 --jobs 1 {STEPS}"},
    "reproducing.md": {"leco grid": "leco grid --dry-run", "leco run cub": f"leco run {STEPS} cub"},
    "segmentation.md": {"leco run": "leco run --dry-run --set training.network.weights=random"},
    "stages.md": {"leco grid": "leco grid --dry-run"},
}


def is_run(command: str) -> bool:
    return not command.startswith(tuple(LEFT_OUT))


def is_on_benchmarks(command: str) -> bool:
    return is_run(command) and "--data DIR" in command


def is_on_own_data(command: str) -> bool:
    return is_run(command) and "--data DIR" not in command


def pages_with(wanted: Callable[[str], bool], scripts: bool = False) -> list[Path]:
    """All pages that have such commands, or scripts; the tutorial has a test of its own."""
    return [
        page
        for page in PAGES
        if page.name != "own-images.md"
        and any((block.is_script and scripts) or any(map(wanted, block.commands)) for block in blocks(page))
    ]


def prepare(page: Path, folder: Path) -> None:
    """The files that a reader of the page has."""
    match page.name:
        case "README.md" | "python.md":
            own_data.photograph(folder)
            draw(folder, *(f"inbox/{n}.jpg" for n in range(3)))
        case "own-data.md":
            own_data.photograph(folder)
            own_data.tabulate(folder)
        case "bundles.md":
            own_data.measure(folder)
            own_data.paint(folder)
        case "ontology.md":
            own_data.label_twice(folder)
        case "manifest.md":
            draw(folder, *(f"photos/{n:03}.jpg" for n in range(1, 5)))
            draw(folder, "pets/v1/dog/005.jpg", "pets/v2/husky/006.jpg", "pets/test/v2/husky/007.jpg")
        case "benchmarks.md":
            own_data.measure(folder)
            for name in ("labels.csv", "vectors.npy"):
                (folder / name).write_bytes((folder / "vectors" / name).read_bytes())
            (folder / "ontology.yaml").write_bytes((folder / "vectors" / "ontology.json").read_bytes())


@pytest.fixture
def registries(monkeypatch):
    """Forget what a page registered."""
    for registry in (TERMS, OPTIMISERS, SCHEDULES, HEADS, LOGGERS, BENCHMARKS, MODALITIES):
        for name in ("_entries", "_modules"):
            monkeypatch.setattr(registry, name, dict(getattr(registry, name)))
    for name in ("_COARSE", "_PSEUDO"):
        monkeypatch.setattr(method, name, dict(getattr(method, name)))
    monkeypatch.setattr("leco.registry.IMPORTED", [])


@pytest.mark.slow
@pytest.mark.parametrize("page", pages_with(is_on_own_data, scripts=True), ids=lambda page: page.name)
def test_the_commands_and_scripts_of_a_page_work_one_after_the_other(page, tmp_path, monkeypatch, registries):
    monkeypatch.chdir(tmp_path)
    prepare(page, tmp_path)
    follow(page, tmp_path, SMALLER.get(page.name, {}), is_on_own_data)


@pytest.mark.slow
@pytest.mark.data
@pytest.mark.parametrize("page", pages_with(is_on_benchmarks), ids=lambda page: page.name)
def test_the_commands_on_benchmarks_work(page, tmp_path, data_root, cifar_root, vistas_root, monkeypatch):
    monkeypatch.chdir(tmp_path)
    small = replace(BENCHMARKS["mapillary-leco-2.5k"], classes=(4, 6), size=10, image_size=40, evaluated=5)
    monkeypatch.setitem(BENCHMARKS._entries, small.name, small)
    (tmp_path / "DIR").mkdir()
    for folder in (*data_root.iterdir(), *cifar_root.iterdir(), vistas_root / "mapillary-vistas"):
        (tmp_path / "DIR" / folder.name).symlink_to(folder)
    follow(page, tmp_path, SMALLER.get(page.name, {}), is_on_benchmarks)


def test_what_is_shortened_or_left_out_is_still_in_the_pages():
    shown = {page.name: [c for block in blocks(page) for c in block.commands] for page in PAGES}
    scripts = {page.name: [block.text for block in blocks(page) if block.is_script] for page in PAGES}
    for page, replacements in SMALLER.items():
        for full in replacements:
            assert any(full in text for text in (*shown[page], *scripts[page])), f"{page}: {full}"
    for start in LEFT_OUT:
        assert any(command.startswith(start) for commands in shown.values() for command in commands), start


def verbs(command: Any, name: str) -> list[str]:
    inner = getattr(command, "commands", None)
    return [verb for key in inner for verb in verbs(inner[key], f"{name} {key}")] if inner else [name]


def test_every_verb_has_a_how_to_whose_commands_are_run():
    shown = {line for page in PAGES for block in blocks(page) for line in block.commands if is_run(line)}
    index = next(page for page in PAGES if page.name == "cli.md").read_text("utf-8")
    for verb in verbs(get_command(app), "leco"):
        assert f"`{verb}`" in index
        written = {"leco runs list": "leco runs", "leco report write": "leco report"}.get(verb, verb)
        # The demo has a test of its own, and nothing is fetched.
        assert verb in ("leco demo", "leco data fetch", "leco reproduce") or any(
            f"{line} ".startswith(f"{written} ") for line in shown
        )
