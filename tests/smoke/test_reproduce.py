"""`leco reproduce`: every table of the paper, on made-up data in the official layouts."""

import csv
import re
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
import timm
import torch
from safetensors.torch import save_file
from tests.commands import assert_refused, leco
from tests.pages import ROOT, blocks
from tests.trees import made_up_cifar, made_up_inat, made_up_vistas, taxa, write_annotation

from leco import LecoError
from leco.data.ahead import read_ahead
from leco.data.benchmarks import BENCHMARKS, cifar
from leco.experiments import cost
from leco.experiments.memory import StepMemory
from leco.experiments.stages import Stage
from leco.experiments.timing import Pace
from leco.paper import TABLES, cells
from leco.paper.trainings import trainings

PAGE = ROOT / "docs" / "how-to" / "reproducing.md"
COMMANDS = [line for block in blocks(PAGE) for line in block.commands if line.startswith("leco reproduce")]
COLUMNS = ("benchmark", "period", "method", "strategy", "annotation")
RANDOM = "training.network.weights=random"  # nothing is downloaded


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """CIFAR-100, Semi-iNat and Mapillary Vistas, made up."""
    root = tmp_path_factory.mktemp("data")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cifar, "_MD5", made_up_cifar(root))
        made_up_inat(root / "semi-inat-2021", {"l_train": 1, "u_train_in": 1, "val": 1})
        write_annotation(root / "semi-inat-2021", taxa())
        made_up_vistas(root / "mapillary-vistas", images=80)
        yield root


def test_every_table_of_results_has_a_command_in_the_documentation():
    numbers = {str(table.number) for table in TABLES.values() if table.number}
    assert {re.search(r"table-(\d+)", line)[1] for line in COMMANDS} == numbers
    plain = [line for line in COMMANDS if re.fullmatch(r"leco reproduce table-\d+ --data DIR", line)]
    assert len(plain) == len(numbers) == 11


@pytest.mark.parametrize("command", COMMANDS)
def test_a_dry_run_of_each_command_counts_stages_and_estimates_their_cost(command, data, tmp_path, monkeypatch):
    monkeypatch.setattr(cost, "measure", lambda *_: Pace(step=0.01, scored=0.001))
    called = command.replace("DIR", str(data)).split()[1:]
    result = leco(*called, "--size", 40, "--set", RANDOM, "--seeds", "0", "--dry-run", "--device", "cpu", cwd=tmp_path)
    assert result.returncode == 0, result.stderr
    number = re.search(r"table-(\d+)", command)[1]
    assert result.stdout.startswith(f"Table {number}: ")
    count, done, missing = map(int, re.search(r"(\d+) stages, (\d+) done, (\d+) to train", result.stdout).groups())
    assert count == missing > done == 0
    lines = [line.split() for line in result.stdout.splitlines()]
    shown = {words[0]: words for words in lines if words and re.fullmatch(r"[a-z0-9]+-(4tp-)?leco[-.0-9k]*", words[0])}
    benchmarks = (
        {cell.benchmark for cell in cells(number)} if "--only" not in command else {called[called.index("--only") + 1]}
    )
    assert set(shown) == benchmarks
    assert sum(int(line[1]) for line in shown.values()) == count
    assert "hours on one CPU like this one" in result.stdout
    copies = (
        r", [\d.]+ [MG]B for scaled-down images" if any(name.startswith("mapillary") for name in benchmarks) else ""
    )
    assert re.search(rf"disk: [\d.]+ [MG]B for weights{copies}, and up to [\d.]+ [MG]B of checkpoints", result.stdout)
    assert re.search(r"memory: [\d.]+ [MG]B for the measured steps", result.stdout)
    assert not (tmp_path / "runs").exists()


def test_a_dry_run_on_a_gpu_says_what_a_step_of_a_whole_batch_takes(data, tmp_path, monkeypatch):
    gpu = SimpleNamespace(device=torch.device("cuda"))
    for place in ("leco.devices", "leco.experiments.cost"):
        monkeypatch.setattr(f"{place}.make_fabric", lambda *_: gpu)
    monkeypatch.setattr(cost, "measure", lambda *_: Pace(step=0.01, scored=0.001))

    def estimated(stage: Stage, *_: object) -> StepMemory:
        sample = (2 if stage.teacher else 1) * 10**6  # the stage that takes the most counts
        return StepMemory(weights=0, sample=sample, size=stage.training.batches.size, available=24 * 10**9)

    monkeypatch.setattr(cost, "step_memory", estimated)
    call = ["reproduce", "table-4", "--only", "cifar-leco-10k", "--size", 40, "--seeds", 0, "--data", data, "--dry-run"]
    result = leco(*call, cwd=tmp_path)
    assert result.returncode == 0, result.stderr
    assert "hours on one GPU like this one" in result.stdout
    assert "GPU memory: 358 MB for a step" in result.stdout  # 1.4 × 128 × 2 MB


def test_a_table_some_of_whose_data_are_missing_names_them_and_how_to_go_on_without(data, tmp_path):
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "cifar-100-python").symlink_to(data / "cifar-100-python")
    call = ["reproduce", "table-2", "--data", tmp_path / "data", "--size", 40, "--set", RANDOM, "--dry-run"]
    refused = leco(*call, cwd=tmp_path)
    assert refused.returncode == 2
    assert refused.stderr.startswith("error: inat-leco needs Semi-iNat 2021, but ")
    assert refused.stderr.rstrip().endswith("; to go on without it: --only cifar-leco-10k")
    nothing = leco(*call, "--data", tmp_path, cwd=tmp_path)
    assert nothing.stderr.startswith("error: cifar-leco-10k needs CIFAR-100")
    assert "--only" not in nothing.stderr


def test_an_unknown_network_is_refused_before_anything_is_trained(data, tmp_path):
    call = ["reproduce", "table-2", "--only", "cifar-leco-10k", "--size", 40, "--data", data, "--seeds", 0]
    refused = leco(*call, "--set", "training.network.backbone=wrn-28", cwd=tmp_path)
    assert (refused.returncode, refused.stdout) == (2, "")
    assert refused.stderr == "error: 'wrn-28' is not a backbone; did you mean 'wrn-28-2'?\n"


class Here:
    """An executor in this process, which knows the sums of made-up files."""

    def shutdown(self) -> None:
        pass

    def submit(self, function: Callable[..., None], *arguments: object) -> "Future[None]":
        done: Future[None] = Future()
        try:
            done.set_result(function(*arguments))
        except LecoError as error:
            done.set_exception(error)
        return done


def test_a_table_is_trained_resumed_and_reported(data, tmp_path, monkeypatch):
    monkeypatch.setattr("leco.experiments.pools.processes", lambda *_: Here())
    small = ["--set", "training.network.backbone=wrn-10-1", "--set", "training.batches.steps=2"]
    small += ["--set", "training.batches.evaluate_every=2", "--set", "training.optimiser.learning_rate=0.1"]
    small += ["--only", "cifar-leco-10k", "--set", "training.batches.size=8", "--size", "40", "--seeds", "0"]
    call = ["reproduce", "table-2", *small, "--data", data, "--jobs", 1, "--device", "cpu"]
    estimated = leco(*call, "--dry-run", cwd=tmp_path)
    assert "9 experiments: 10 stages, 0 done, 10 to train" in estimated.stdout, estimated.stderr
    trained = leco(*call, cwd=tmp_path)
    assert "10 trainings in" in trained.stdout, trained.stderr
    assert trained.stdout.endswith("`leco report runs` shows the table beside the paper's\n")
    again = leco(*call, "--dry-run", cwd=tmp_path)
    assert "10 stages, 10 done, 0 to train" in again.stdout
    report = leco("report", "runs", "--output", "report.md", cwd=tmp_path)
    assert report.returncode == 0, report.stderr
    assert "65.83" in (tmp_path / "report.md").read_text()  # the paper's figure, beside ours


TINY = {
    "cifar": {"network.backbone": "wrn-10-1"},
    "inat": {"network.backbone": "test_resnet"},
    "mapillary": {
        **{"network.backbone": "test_resnet", "network.weights": "DATA/weights.safetensors"},
        **{"segmentation.crop": 32, "segmentation.base_size": 64, "segmentation.window": 64},
    },
}


@pytest.fixture(scope="module")
def small_data(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The same data, with fewer images, those of Mapillary scaled to fewer pixels; a stage takes less than a second."""
    root = tmp_path_factory.mktemp("small")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cifar, "_MD5", made_up_cifar(root, samples=200))
        made_up_inat(root / "semi-inat-2021", {"l_train": 1})
        made_up_inat(root / "semi-inat-2021", {"u_train_in": 1, "val": 1}, classes=12)
        write_annotation(root / "semi-inat-2021", taxa())
        made_up_vistas(root / "mapillary-vistas", images=16)
        for name in ("mapillary-leco-2.5k", "mapillary-leco-9k"):
            patch.setitem(BENCHMARKS._entries, name, replace(BENCHMARKS[name], image_size=64))
        save_file(timm.create_model("test_resnet").state_dict(), root / "weights.safetensors")
        yield root


@pytest.fixture(scope="module")
def all_runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store for all tables, which share stages."""
    return tmp_path_factory.mktemp("all") / "runs"


@pytest.mark.parametrize("number", sorted({table.number for table in TABLES.values() if table.number}))
def test_each_table_is_trained_with_two_steps_a_stage_and_reported(number, small_data, all_runs, tmp_path, monkeypatch):
    monkeypatch.setattr("leco.experiments.pools.processes", lambda *_: Here())
    common = {"network.weights": "random", "optimiser.learning_rate": 0.01, "batches.steps": 2, "batches.size": 4}
    for benchmark in {cell.benchmark for cell in cells(str(number))}:
        changed = common | TINY[benchmark.split("-")[0]]
        settings = [word for name, value in changed.items() for word in ("--set", f"training.{name}={value}")]
        settings = [word.replace("DATA", str(small_data)) for word in settings]
        call = ["reproduce", f"table-{number}", "--only", benchmark, *settings, "--size", 8, "--seeds", 0]
        result = leco(*call, "--data", small_data, "--runs", all_runs, "--jobs", 1, "--device", "cpu")
        assert result.returncode == 0, result.stderr
    report = leco("report", all_runs, "--output", "report.csv", cwd=tmp_path)
    assert report.returncode == 0, report.stderr
    rows = list(csv.DictReader((tmp_path / "report.csv").read_text().splitlines()))
    shown = {tuple(row[name] for name in COLUMNS): row for row in rows}
    for cell in cells(str(number)):
        row = shown[cell.benchmark, str(cell.period), *cell.key[1:]]
        assert 0 <= float(row["mean"]) <= 100
        assert row["paper"]


TINY_INAT = ["network.backbone=test_resnet", "network.weights=random", "optimiser.learning_rate=0.01"]
TINY_INAT += ["batches.steps=2", "batches.size=4", "batches.evaluate_every=1"]


@pytest.mark.parametrize(
    "command",
    [
        ["run", "inat-leco", "--method", "ce"],
        ["grid", "inat-leco", "--methods", "ce", "--seeds", 0, "--jobs", 1],
        ["reproduce", "table-2", "--only", "inat-leco", "--seeds", 0, "--jobs", 1],
    ],
    ids=lambda words: words[0],
)
def test_workers_read_ahead_for_training_validation_and_test(command, small_data, tmp_path, monkeypatch):
    read: dict[str, set[int]] = {}

    def processes(function, items, workers):
        name = getattr(getattr(function, "func", function), "__name__", "")
        read.setdefault(name, set()).add(workers)
        return read_ahead(function, items)

    monkeypatch.setattr("leco.data.ahead._in_processes", processes)
    monkeypatch.setattr("leco.experiments.pools.processes", lambda *_: Here())
    monkeypatch.setattr("leco.paper.trainings.cells", lambda name: [c for c in cells(name) if c.strategy == "finetune"])
    settings = [word for value in TINY_INAT for word in ("--set", f"training.{value}")]
    call = [*command, *settings, "--size", 8, "--data", small_data, "--workers", 3, "--device", "cpu"]
    result = leco(*call, cwd=tmp_path)
    assert result.returncode == 0, result.stderr
    assert read == {"__getitem__": {3}, "read_part": {3}}  # of steps, and of what is evaluated


def test_mapillary_is_trained_once_and_the_others_with_five_seeds():
    runs = {training.benchmark: training.runs for training in trainings("table-9".removeprefix("table-"))}
    assert {name: count for name, count in runs.items() if "mapillary" in name} == {
        **{"mapillary-leco-2.5k": 1, "mapillary-leco-9k": 1}
    }
    assert {count for name, count in runs.items() if "mapillary" not in name} == {5}


@pytest.mark.parametrize("name", [name for name, table in TABLES.items() if table.number])
def test_the_trainings_of_a_table_fill_its_cells_and_no_others(name):
    wanted = {(t.benchmark, t.method, t.strategy, t.annotation) for t in trainings(name)}
    later = [cell for cell in cells(name) if cell.period]
    assert wanted == {(cell.benchmark, cell.method, cell.strategy, cell.annotation) for cell in later}
    assert {cell.benchmark for cell in cells(name)} == {training[0] for training in wanted}  # TP0 is part of them


def test_figures_in_the_text_are_no_table():
    with pytest.raises(LecoError, match="quotes results of the tables"):
        trainings("text")


BAD = {
    "no table of results": (["table-7"], "'table-7' is not a table of results in the paper; valid: table-2, table-3"),
    "no benchmark of it": (["table-5", "--only", "inat-leco"], "--only inat-leco: is not a benchmark of this table"),
    "no number": (
        ["table-2", "--set", "training.optimiser.weight_decay=x"],
        "training.optimiser.weight_decay: Input should be a valid number, unable to parse string as a number, not 'x'",
    ),
    "no engine": (["table-2", "--engine", "rai"], "'rai' is not an engine"),
    "no seeds": (["table-2", "--seeds", "x"], "'x' is not a seed"),
    "no data": (["table-2", "--data", "nowhere"], "does not exist"),
}


@pytest.mark.parametrize("case", BAD)
def test_a_wrong_call_is_refused(case, tmp_path):
    arguments, message = BAD[case]
    assert_refused(["reproduce", *arguments], message, tmp_path)
