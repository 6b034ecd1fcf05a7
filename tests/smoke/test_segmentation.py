"""Segmentation through the same stages as classification: a synthetic Mapillary tree, and CamVid if available."""

from dataclasses import replace
from io import BytesIO
from pathlib import Path

import pytest
import torch
from PIL import Image
from tests.trainings import assert_consistent

from leco import LecoError
from leco.data.batches import Steps, without_contradictions
from leco.data.benchmarks import BENCHMARKS
from leco.data.rng import Draws
from leco.data.views.segmentation import JointCrop, photometric
from leco.experiments.experiment import experiment
from leco.experiments.machine import Machine
from leco.experiments.masking import masks
from leco.experiments.run import run_stage
from leco.experiments.stages import plan
from leco.experiments.store import Store
from leco.experiments.train import periods_of

SMALL = {
    **{
        "training.network.backbone": "tiny",
        "training.network.weights": "random",
        "training.batches.steps": "2",
        "training.batches.evaluate_every": "1",
    },
    **{
        "training.batches.size": "4",
        "training.segmentation.crop": "32",
        "training.segmentation.base_size": "40",
        "training.segmentation.window": "32",
    },
}


@pytest.fixture
def vistas(vistas_root: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The synthetic tree under the benchmark's own name."""
    small = replace(BENCHMARKS["mapillary-leco-2.5k"], classes=(4, 6), size=10, image_size=40, evaluated=5)
    monkeypatch.setitem(BENCHMARKS._entries, small.name, small)
    return vistas_root


def run(root: Path, runs: Path, settings: dict[str, str] | None = None, **changes: object) -> dict:
    wanted = experiment("mapillary-leco-2.5k", {"budget": "paper", **changes}, SMALL | (settings or {}))
    periods, store = periods_of(wanted, root), Store(runs)
    stages = plan(wanted, periods)
    for stage in stages.stages:
        run_stage(stage, periods, store, Machine("cpu"))
    return store.require(stages.periods[-1][0].fingerprint).model_dump(mode="json", by_alias=True) | {
        "folder": store.stages / stages.periods[-1][0].fingerprint
    }


METHODS = [
    "ce",
    "joint",
    "lpl",
    "lpl+st-hard/filter",
    "joint+st-hard/cond",
    "lpl+st-soft/cond",
    "ce+pl",
    "lpl+fixmatch/cond",
]


@pytest.mark.parametrize("method", METHODS)
def test_every_kind_of_method_segments(method, vistas, tmp_path):
    result = run(vistas, tmp_path / "runs", method=method)
    assert set(result["test"]) == {"v1.2", "v2.0"}
    assert_consistent(result["test"]["v2.0"], "miou")
    classes = [row["class"] for row in result["test"]["v2.0"]["per_class"]]
    assert classes == ["road", "lane", "vehicle", "cone", "void"]  # `ego` is not evaluated
    assert result["validation_score"] is None  # the paper keeps no validation set here
    sheet = Image.open(BytesIO((result["folder"] / "overlays.png").read_bytes()))
    assert sheet.width > 4 * 40


@pytest.mark.slow
def test_hrnet_with_its_auxiliary_heads_is_trained(vistas, tmp_path):
    result = run(
        vistas, tmp_path / "runs", {"training.network.backbone": "hrnet_w18_small"}, method="joint", strategy="scratch"
    )
    means = (result["folder"] / "metrics.jsonl").read_text()
    assert all(f'"{name}"' in means for name in ("ce", "joint", "auxiliary ce", "auxiliary joint"))


def test_a_soft_transition_models_what_was_merged(vistas, tmp_path):
    kinds = {}
    for kind in ("tree", "soft"):
        wanted = experiment("mapillary-leco-2.5k", {"budget": "paper", "transition": kind}, SMALL)
        kinds[kind] = periods_of(wanted, vistas)
    rows = {kind: periods.ontology.evidence().rows(["truck"], "v1.2")[0] for kind, periods in kinds.items()}
    vehicle = kinds["soft"].ontology["v2.0"].classes.index("vehicle")
    assert rows["tree"].tolist() == [0.0] * 6  # says nothing
    assert rows["soft"].argmax() == vehicle
    assert kinds["tree"].fingerprint != kinds["soft"].fingerprint
    assert run(vistas, tmp_path / "runs", method="lpl", transition="soft")["test"]["v2.0"]["miou"] >= 0


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ({"training.pseudo_labels.balance": "true"}, "balance: is for classification, not segmentation"),
        ({"training.finish.head": "gaussian"}, "gaussian heads are for classification, not segmentation"),
    ],
)
def test_settings_for_one_label_per_sample_are_refused_before_anything_is_trained(vistas, setting, message):
    wanted = experiment("mapillary-leco-2.5k", {"budget": "paper"}, SMALL | setting)
    periods = periods_of(wanted, vistas)
    with pytest.raises(LecoError, match=message):
        plan(wanted, periods)


def test_old_labels_that_contradict_new_ones_are_dropped(vistas):
    wanted = experiment("mapillary-leco-2.5k", {"budget": "paper"}, SMALL)
    periods = periods_of(wanted, vistas)
    evidence = periods.ontology.evidence()
    annotated = periods.annotated(1, "label-new")
    plain, masked = (
        Steps(periods.pool, annotated, evidence, 4, 0, steps=1, masks=m)[0] for m in ((), (without_contradictions,))
    )
    newest = periods.pool.labels["v2.0"].read(plain.history.ids)
    parents = periods.ontology.translate(newest, "v2.0", "v1.2")
    given = plain.history.labels["v1.2"]
    wrong = (given >= 0) & (parents >= 0) & (given != parents)
    assert wrong.any()
    assert (masked.history.labels["v1.2"][wrong] == -1).all()
    assert (masked.history.rows[wrong] == 0).all()
    assert torch.equal(masked.history.labels["v1.2"][~wrong], given[~wrong])
    assert torch.equal(masked.history.rows[~wrong], plain.history.rows[~wrong])


def test_pseudo_labels_of_contradicting_pixels_may_stay(vistas):
    wanted = experiment("mapillary-leco-2.5k", {"budget": "paper", "method": "lpl+st-hard/cond"}, SMALL)
    periods = periods_of(wanted, vistas)
    annotated, evidence = periods.annotated(1, "label-new"), periods.ontology.evidence()
    found = {}
    for guess in (False, True):
        settings = SMALL | {"training.history.guess_contradictions": str(guess)}
        stage = plan(
            wanted.model_copy(update={"training": experiment("mapillary-leco-2.5k", {}, settings).training}), periods
        )
        found[guess] = Steps(
            periods.pool, annotated, evidence, 4, 0, steps=1, masks=masks(stage.periods[1][0], periods)
        )[0]
    plain = Steps(periods.pool, annotated, evidence, 4, 0, steps=1)[0].history
    dropped, kept = found[False].history, found[True].history
    assert torch.equal(dropped.labels["v1.2"], kept.labels["v1.2"])  # for joint and lpl, either way
    assert not torch.equal(dropped.labels["v1.2"], plain.labels["v1.2"])
    assert torch.equal(kept.rows, plain.rows)
    assert not torch.equal(dropped.rows, plain.rows)


def test_classes_that_are_not_evaluated_may_be_left_out_of_training(vistas):
    found = []
    for trained in (True, False):
        settings = SMALL | {"training.segmentation.unevaluated": str(trained)}
        wanted = experiment("mapillary-leco-2.5k", {"budget": "paper", "method": "lpl"}, settings)
        periods = periods_of(wanted, vistas)
        stages = plan(wanted, periods).periods
        assert masks(stages[0][0], periods)[1:] == []  # TP0 has other classes
        steps = Steps(
            *(periods.pool, periods.annotated(1, "label-new"), periods.ontology.evidence(), 4, 0),
            steps=1,
            masks=masks(stages[1][0], periods),
        )
        found.append(steps[0].new)
    every, some = found
    ego = periods.ontology["v2.0"].classes.index("ego")
    assert set(periods.evaluated) == set(periods.ontology["v2.0"].classes) - {"ego"}
    left_out = every.labels["v2.0"] == ego
    assert left_out.any()
    assert torch.equal(some.labels["v2.0"] == -1, left_out | (every.labels["v2.0"] == -1))
    assert torch.equal(some.rows == 0, left_out | (every.rows == 0))
    assert torch.equal(some.labels["v2.0"][~left_out], every.labels["v2.0"][~left_out])
    assert torch.equal(some.labels["v1.2"], every.labels["v1.2"])


def test_crops_move_images_and_all_labels_together(vistas):
    """The synthetic images encode their labels: 40 times the class."""
    wanted = experiment("mapillary-leco-2.5k", {"budget": "paper"}, SMALL)
    periods = periods_of(wanted, vistas)
    evidence = periods.ontology.evidence()
    crop = JointCrop(base_size=40, crop=24, scale=(1.0, 1.0))
    step = Steps(periods.pool, periods.annotated(1, "label-new"), evidence, 4, 0, steps=1, crop=crop)[0]
    assert step.new.inputs.shape == (4, 3, 24, 24)
    assert step.new.labels["v2.0"].shape == step.new.rows.shape == (4, 24, 24)
    shown = step.new.inputs.float().mean(dim=1) / 40
    inside = step.new.labels["v2.0"] >= 0
    close = (shown - step.new.labels["v2.0"])[inside].abs() < 0.7  # JPEG
    assert close.float().mean() > 0.6
    first = evidence.offsets["v2.0"]
    assert torch.equal(step.new.rows[inside] - first, step.new.labels["v2.0"][inside].int())


def test_photometric_views_leave_pixels_in_place():
    images = (torch.arange(64).view(1, 1, 8, 8).expand(3, 3, 8, 8) * 3).byte().contiguous()
    seen = photometric(images, Draws(0, 0, torch.arange(3)))
    assert not torch.equal(seen, images)
    for before, after in zip(images.flatten(2).unbind(), seen.flatten(2).unbind(), strict=True):
        assert (after.float().diff(dim=1) >= 0).all()  # as bright pixels stay brighter
        assert before.shape == after.shape
    assert not torch.equal(seen[0], seen[1])


def test_the_recipe_is_the_appendixs():
    paper = experiment("mapillary-leco-2.5k", {}, {}).training
    network, optimiser, batches, crops = paper.network, paper.optimiser, paper.batches, paper.segmentation
    assert (network.backbone, network.weights) == ("hrnet_w48", "download")
    assert (optimiser.learning_rate, optimiser.finetune_learning_rate) == ((0.03,), (0.003,))
    assert (optimiser.schedule, optimiser.weight_decay, batches.size) == ("poly", 5e-4, 16)
    assert (crops.crop, crops.base_size, crops.scale, crops.window) == (720, 2_200, (0.5, 2.1), 720)
    assert batches.steps == 1_600 * 2_500 // 16 == 800 * 5_000 // 16
    assert not paper.history.coarse_on_new
    assert experiment("mapillary-leco-9k", {}, {}).training.batches.steps == 1_600 * 9_000 // 16


@pytest.mark.data
def test_camvid_is_trained_with_a_separate_finetuning_rate(data_root, tmp_path):
    wanted = experiment(
        "camvid-leco",
        {"method": "lpl", "budget": "small"},
        {"training.batches.steps": "2", "training.batches.evaluate_every": "2", "training.batches.size": "4"},
    )
    periods, store = periods_of(wanted, data_root), Store(tmp_path)
    stages = plan(wanted, periods)
    assert [stage.training.learning_rate for stage in stages.stages] == [0.05, 0.02]
    for stage in stages.stages:
        run_stage(stage, periods, store, Machine("cpu"))
    result = store.require(stages.periods[-1][0].fingerprint).model_dump(mode="json", by_alias=True)
    assert result["validation_score"] == result["validation"]["classes"]["miou"]
    assert "Tunnel" in result["test"]["classes"]["absent"]
