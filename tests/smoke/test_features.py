"""The budget `features` on made-up files in the official layout: a sample of the cells of the tables, and a report."""

import hashlib
import pickle
import runpy
from pathlib import Path

import numpy as np
import pytest
import timm
import torch
from safetensors.torch import load_file, save_file
from tests.stores import make_stages, write_store

import leco
from leco import LecoError
from leco.data.benchmarks import cifar, load, recipe
from leco.data.benchmarks.cifar_4tp import KINGDOMS
from leco.data.shards import Shards
from leco.experiments.experiment import Experiment, experiment
from leco.experiments.grid import Graph, shared_periods
from leco.experiments.machine import Machine
from leco.experiments.run import run_stage
from leco.experiments.store import Store
from leco.reports.formats import to_markdown
from leco.reports.report import make_report
from leco.reports.stored import read_store

BACKBONE = "test_efficientnet"  # the smallest of timm's models for tests
SUPERCLASSES = sorted(name for groups in KINGDOMS.values() for members in groups.values() for name in members)
CELLS = [
    ("ce", "finetune", "label-new"),
    ("ce", "freeze", "label-new"),
    ("ce", "scratch", "relabel-old"),
    ("ce", "finetune", "all-fine"),
    ("joint+fixmatch", "finetune", "label-new"),
    ("lpl+st-hard/cond", "finetune", "label-new"),
    ("lpl", "finetune", "relabel-25"),
    ("lpl", "finetune", "all-fine"),
]


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Ten training and two test images of each of 100 classes, in files such as the official ones."""
    folder = tmp_path / "data" / "cifar-100-python"
    folder.mkdir(parents=True)
    generator = np.random.default_rng(0)
    colours = generator.integers(0, 256, (100, 3, 1))
    contents = {"meta": {b"fine_label_names": [f"class {n:02}".encode() for n in range(100)]}}
    contents["meta"][b"coarse_label_names"] = [name.encode() for name in SUPERCLASSES]
    for name, count in (("train", 10), ("test", 2)):
        fine = list(range(100)) * count
        images = (colours[fine] + generator.integers(-20, 20, (len(fine), 3, 1_024))).clip(0, 255).astype(np.uint8)
        contents[name] = {b"data": images.reshape(-1, 3_072), b"fine_labels": fine}
        contents[name][b"coarse_labels"] = [label // 5 for label in fine]
    for name, content in contents.items():
        raw = pickle.dumps(content, protocol=2).replace(b"numpy._core", b"numpy.core")  # as older versions wrote it
        (folder / name).write_bytes(raw)
        monkeypatch.setitem(cifar._MD5, name, hashlib.md5(raw, usedforsecurity=False).hexdigest())
    return folder.parent


@pytest.fixture
def settings(tmp_path: Path) -> dict[str, str]:
    """The budget's own settings, but for a small backbone with random weights and a few steps."""
    network = timm.create_model(BACKBONE, pretrained=False)
    path = tmp_path / "weights.safetensors"
    save_file({name: tensor.contiguous() for name, tensor in network.state_dict().items()}, path)
    changes = {"network.backbone": f"{BACKBONE}+mlp", "network.weights": str(path), "views.resize": "40"}
    changes |= {"batches.steps": "6", "batches.size": "32", "batches.evaluate_every": "3"}
    return {f"training.{name}": value for name, value in changes.items()}


def run(wanted: list[Experiment], root: Path, runs: Path) -> Store:
    graph, store = Graph.of(wanted, root), Store(runs)
    for name, stage in graph.stages.items():
        run_stage(stage, shared_periods(graph.needed_by[name], root), store, Machine("cpu"))
    return store


def test_a_sample_of_cells_runs_on_features_that_are_computed_once(root, settings, tmp_path):
    wanted = [
        experiment(
            "cifar-leco-1k",
            {"budget": "features", "size": 200, "method": m, "strategy": s, "annotation": a, "seed": seed},
            settings,
        )
        for m, s, a in CELLS
        for seed in (0, 1)
    ]
    runs = tmp_path / "runs"
    run(wanted, root, runs)
    (features,) = [path for path in (runs / "features").iterdir() if path.is_dir()]
    assert len(Shards.open(features).keys) == _used(root)
    (part,) = make_report(read_store(runs)).parts
    assert {(key.method, key.strategy, key.annotation) for key in part.section.cells if key.period} == set(CELLS)
    text = to_markdown(make_report(read_store(runs)))
    assert "start from the previous model, not from scratch" not in text  # label-new from scratch is not among them
    assert "| train the whole model, not only the head (section 4) |" in text
    assert text.count("**undecided**") == len(part.findings) > 3  # of two seeds, nothing follows
    assert "paper 33.53 ± 0.57" in text


def _used(root: Path) -> int:
    """Number of different images that the two seeds train, validate and test on."""
    benchmark = load("cifar-leco-1k", root, size=200)
    parts = [
        part
        for seed in (0, 1)
        for period in benchmark.split(seed).periods
        for part in (period.train, period.validation)
    ]
    trained = benchmark.pool.inputs.read(torch.cat(parts).unique())
    tested = benchmark.test.inputs.read(torch.arange(len(benchmark.test)))
    return len({image.numpy().tobytes() for image in torch.cat([trained, tested])})


def test_four_periods_run_through(root, settings, tmp_path):
    wanted = experiment(
        "cifar-4tp-leco", {"budget": "features", "size": 200, "method": "lpl+st-hard/cond", "seed": 0}, settings
    )
    store = run([wanted], root, tmp_path / "runs")
    ((*_, last),) = Graph.of([wanted], root).plans[0].periods[-1:]
    result = store.require(last.fingerprint).model_dump(mode="json", by_alias=True)
    assert list(result["test"]) == ["kingdoms", "groups", "superclasses", "classes"]
    assert result["test"]["kingdoms"]["macc"] > result["test"]["classes"]["macc"]


def test_every_superclass_has_one_place_among_the_kingdoms(root):
    assert len(SUPERCLASSES) == len(set(SUPERCLASSES)) == 20
    ontology = load("cifar-4tp-leco", root, size=200).ontology
    assert [len(version) for version in ontology.versions] == [3, 9, 20, 100]
    assert ontology.translate(["trees", "people"], "superclasses", "groups") == ["plants", "people"]
    assert ontology.translate(["vehicles_2"], "superclasses", "kingdoms") == ["man-made"]


@pytest.mark.parametrize("name", ["cifar-leco-1k", "cifar-leco-2k", "cifar-leco-10k", "cifar-4tp-leco"])
def test_the_budget_freezes_a_pretrained_backbone(name):
    found = recipe(name).settings["features"]
    assert found["network"]["embed"]
    assert found["network"]["weights"] == "pretrained"
    assert found["views"]["resize"] > 32


def test_a_model_of_enlarged_images_is_evaluated_on_enlarged_images(root, settings, tmp_path):
    given = {name.removeprefix("training."): value for name, value in settings.items()}
    model = leco.train(
        leco.benchmark("cifar-leco-1k", root, size=200),
        method="lpl",
        budget="features",
        network={"backbone": given["network.backbone"], "weights": given["network.weights"]},
        batches={"steps": 6, "size": 32, "evaluate_every": 3},
        views={"resize": 40},
        store=tmp_path / "runs",
        progress=False,
    )
    again = model.evaluate(leco.benchmark("cifar-leco-1k", root, size=200))
    for version in ("superclasses", "classes"):
        assert again[version].macc == pytest.approx(model.scores["test"][version].macc, abs=1e-6)


@pytest.fixture
def last_blocks(settings) -> dict[str, str]:
    """Settings that train the upper layers of the backbone on stored feature maps."""
    changes = {"network.backbone": BACKBONE, "network.frozen_layers": "0.6", "network.frozen_norm": "true"}
    return settings | {f"training.{name}": value for name, value in changes.items()}


@pytest.mark.parametrize("strategy", ["finetune", "freeze", "scratch"])
def test_the_last_blocks_are_trained_on_stored_maps_from_the_pretrained_weights(strategy, root, last_blocks, tmp_path):
    choices = {"budget": "features", "size": 200, "method": "ce", "strategy": strategy, "seed": 0}
    wanted = experiment("cifar-leco-1k", choices, last_blocks)
    store = run([wanted], root, tmp_path / "runs")
    first, last = Graph.of([wanted], root).plans[0].stages
    pretrained = load_file(last_blocks["training.network.weights"])
    before, after = (load_file(store.weights(stage.fingerprint)) for stage in (first, last))
    name = "backbone.conv_head.weight"
    assert name in after
    assert "backbone.conv_stem.weight" not in after
    start = pretrained["conv_head.weight"] if strategy == "scratch" else before[name]
    moved = (after[name] - start).abs().max() / start.abs().max()
    assert moved == 0 if strategy == "freeze" else 0 < moved < 0.1
    assert (before[name] - pretrained["conv_head.weight"]).abs().max() > 0  # the first period has trained it


def test_the_last_blocks_and_the_frozen_ones_make_a_model_of_images(root, last_blocks, tmp_path):
    given = {name.removeprefix("training.network."): value for name, value in last_blocks.items() if "network" in name}
    model = leco.train(
        leco.benchmark("cifar-leco-1k", root, size=200),
        method="lpl",
        budget="features",
        network=given,
        batches={"steps": 6, "size": 32, "evaluate_every": 3},
        views={"resize": 40},
        store=tmp_path / "runs",
        progress=False,
    )
    again = model.evaluate(leco.benchmark("cifar-leco-1k", root, size=200))
    for version in ("superclasses", "classes"):
        assert again[version].macc == pytest.approx(model.scores["test"][version].macc, abs=1e-6)
    with pytest.raises(LecoError, match=r"training\.network\.frozen_layers: 0.6 would train layers below the top"):
        experiment("cifar-leco-1k", {"budget": "features"}, {"training.network.frozen_layers": "0.6"})


CONCLUSIONS = runpy.run_path(str(Path(__file__).parents[2] / "benchmarks" / "conclusions.py"))


@pytest.mark.parametrize(
    ("name", "count"), [("cifar-leco-2k", 39 + 8 + 10), ("cifar-4tp-leco", 39 + 8), ("cub-4tp-leco", 41)]
)
def test_one_command_trains_every_cell_of_the_tables(name, count):
    found = {(made.method, made.strategy, made.annotation) for made in CONCLUSIONS["cells"](name, [3])}
    assert len(found) == count
    assert ("lpl+fixmatch/cond", "finetune", "label-new") in found
    assert ("ce", "freeze", "all-fine") in found or name.startswith("cub")


def test_unlabelled_samples_of_no_period_are_embedded_when_they_are_needed(root, settings, tmp_path):
    choices = {"budget": "features", "size": 200, "method": "ce+st-soft", "seed": 0}
    runs = tmp_path / "runs"
    wanted = experiment("cifar-leco-1k", choices, settings)
    run([wanted], root, runs)
    (features,) = [path for path in (runs / "features").iterdir() if path.is_dir()]
    benchmark = load("cifar-leco-1k", root, size=200)
    assert len(Shards.open(features).keys) < len(benchmark.pool)
    more = experiment("cifar-leco-1k", choices | {"annotation": "with-unlabelled"}, settings)
    store = run([more], root, runs)
    assert len(Shards.open(features).keys) == len(benchmark.pool) + len(benchmark.test)
    ((*_, last),) = Graph.of([more], root).plans[0].periods[-1:]
    assert store.require(last.fingerprint).samples == 200


def test_the_last_blocks_are_trained_with_cross_entropy_alone():
    made = list(CONCLUSIONS["cells"]("cifar-leco-1k", [0], True))
    assert {(cell.method, cell.strategy) for cell in made} == {("ce", s) for s in ("finetune", "freeze", "scratch")}
    assert len(made) == 9
    for cell in made:
        network = cell.training.network
        assert network.weights == "pretrained"
        assert 0 < network.frozen_layers < 1


def test_the_page_says_how_it_was_made_and_that_the_pretraining_differs(tmp_path):
    runs = write_store(tmp_path / "runs", make_stages(range(5)))
    write_store(runs, make_stages([0], benchmark="cub-leco"))
    text = CONCLUSIONS["page"](["cifar-leco-1k"], runs, "page.md")
    assert "**The pretraining is not the paper's.**" in text
    assert "benchmarks/conclusions.py cifar-leco-1k --data DIR -o page.md" in text
    assert "paper 33.53 ± 0.57" in text
    assert "cub-leco" not in text
    assert "iNat-4TP" not in text
    assert "## The paper, on iNat-4TP" in CONCLUSIONS["page"](["cub-leco"], runs, "page.md")
