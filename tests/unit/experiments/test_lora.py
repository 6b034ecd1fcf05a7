"""Training of low-rank adapters, from given weights to a model."""

import json
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import timm
import torch
from PIL import Image
from safetensors.torch import load_file, save_file

import leco
from leco import LecoError
from leco.experiments import train as driver
from leco.experiments.experiment import experiment
from leco.experiments.machine import Stopped
from leco.experiments.stages import plan
from leco.experiments.train import periods_of

ONTOLOGY = {
    "versions": [
        {"name": "v1", "classes": ["red", "blue"]},
        {"name": "v2", "classes": {"pink": {"from": "red"}, "rose": {"from": "red"}, "sky": {"from": "blue"}}},
    ]
}
COLOURS = {"red": (200, 0, 0), "blue": (0, 0, 200), "pink": (250, 120, 120), "rose": (150, 0, 60), "sky": (90, 90, 250)}
SHORT = {"steps": 4, "size": 4, "evaluate_every": 2}
LAYERS = ("qkv.weight", "proj.weight", "fc1.weight", "fc2.weight")


@pytest.fixture
def photographs(tmp_path: Path) -> leco.Dataset:
    generator, rows = np.random.default_rng(0), []
    for version, labels in (("v1", ("red", "blue")), ("v2", ("pink", "rose", "sky"))):
        for label in labels:
            for number in range(7):
                name = f"{version}-{label}-{number}.png"
                pixels = generator.integers(0, 40, (160, 160, 3)) + np.array(COLOURS[label]) * 0.8
                Image.fromarray(pixels.astype(np.uint8)).save(tmp_path / name)
                rows.append((name, label, version, "test" if version == "v2" and number > 4 else "train"))
    columns = dict(zip(("image", "label", "version", "split"), map(list, zip(*rows, strict=True)), strict=True))
    return leco.Dataset.from_table(columns, leco.Ontology.from_dict(ONTOLOGY), root=tmp_path, image_size=160)


@pytest.fixture
def weights(tmp_path: Path) -> Path:
    torch.manual_seed(0)
    path = tmp_path / "vit.safetensors"
    save_file(timm.create_model("test_vit", num_classes=0).state_dict(), path)
    return path


def train(data: leco.Dataset, store: Path, weights: Path, **more: object) -> leco.Model:
    network = {"backbone": "test_vit", "weights": str(weights), "lora": 2} | more.pop("network", {})  # type: ignore[operator]
    options = {"method": "lpl+st-hard/cond", "optimiser": {"name": "adamw", "learning_rate": 0.01}} | more
    return leco.train(data, batches=SHORT, network=network, store=store, progress=False, device="cpu", **options)


def stages(store: Path) -> dict[str, dict[str, torch.Tensor]]:
    return {path.parent.name: load_file(path) for path in sorted(store.glob("stages/*/model.safetensors"))}


def periods(store: Path) -> dict[str, dict[str, torch.Tensor]]:
    """Weights of each period's stage with history, by version."""
    found = {}
    for name, tensors in stages(store).items():
        config = json.loads((store / "stages" / name / "config.json").read_text())
        if config["method"] != "ce" or config["period"] == 0:
            found[config["version"]] = tensors
    return found


def test_only_low_rank_changes_are_trained_and_the_model_is_an_ordinary_network(photographs, weights, tmp_path):
    model = train(photographs, tmp_path / "runs", weights)
    found, start = periods(tmp_path / "runs"), load_file(weights)
    assert found.keys() == {"v1", "v2"}
    for before, after in ((start, _backbone(found["v1"])), (_backbone(found["v1"]), _backbone(found["v2"]))):
        assert before.keys() == after.keys()
        for name, tensor in before.items():
            adapted = name.endswith(LAYERS) and not name.startswith("patch_embed")
            change = after[name] - tensor
            assert 1 <= torch.linalg.matrix_rank(change, tol=1e-5) <= 2 if adapted else not change.any(), name
    assert not any("lora" in name for name in model.network.state_dict())
    again = leco.load(model.save(tmp_path / "copy")).predict_proba([str(tmp_path / "v2-sky-6.png")])
    assert np.array_equal(again, model.predict_proba([str(tmp_path / "v2-sky-6.png")]))


def _backbone(tensors: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    return {n.removeprefix("backbone."): tensor for n, tensor in tensors.items() if n.startswith("backbone.")}


@pytest.mark.parametrize("strategy", ["finetune", "lp-ft"])
def test_a_run_that_is_stopped_in_every_stage_ends_in_the_same_bits(
    strategy, photographs, weights, tmp_path, monkeypatch
):
    torch.set_num_threads(1)
    options = {"strategy": strategy, "network": {"frozen_layers": 0.3}, "average": {"decay": 0.9}}
    train(photographs, tmp_path / "whole", weights, **options)
    original, asked = driver.run_stage, Counter()

    def stop_at_the_second_step(stage):
        asked[stage.fingerprint] += 1
        return asked[stage.fingerprint] == 2

    def run_stage(stage, periods, store, machine, *more, **options):
        stopping = replace(machine, stop=lambda: stop_at_the_second_step(stage))
        return original(stage, periods, store, stopping, *more, **options)

    monkeypatch.setattr(driver, "run_stage", run_stage)
    for _ in range(3):  # stages of four steps each, all of which are stopped once
        with pytest.raises(Stopped):
            train(photographs, tmp_path / "stopped", weights, **options)
    train(photographs, tmp_path / "stopped", weights, **options)
    whole, stopped = stages(tmp_path / "whole"), stages(tmp_path / "stopped")
    assert whole.keys() == stopped.keys()
    assert len(whole) == 3
    for name, tensors in whole.items():
        assert all(torch.equal(tensor, stopped[name][key]) for key, tensor in tensors.items())


@pytest.mark.parametrize("method", ["ce", "auto"])
def test_a_convolutional_backbone_is_refused_before_any_work(method, photographs, weights, tmp_path):
    network = {"backbone": "resnet18", "weights": "random"}
    with pytest.raises(LecoError, match=r"training\.network\.lora: 2, but ResNet has no linear layers"):
        train(photographs, tmp_path / "runs", weights, method=method, network=network)
    assert not list((tmp_path / "runs").glob("*/*"))


def test_auto_adapts_the_network_that_it_tries(photographs, weights, tmp_path):
    model = train(photographs, tmp_path / "runs", weights, method="auto")
    assert [trial.name for trial in model.description.trials][-1] == "the network, with old labels"
    configs = [json.loads(path.read_text()) for path in (tmp_path / "runs").glob("stages/*/config.json")]
    assert {(config["strategy"], config["training"]["network"]["lora"]) for config in configs} == {
        ("scratch", 0),
        ("scratch", 2),
    }


def test_a_frozen_backbone_has_no_adapters():
    wanted = experiment("digits-leco", {"strategy": "freeze", "method": "ce"}, {"training.network.lora": "4"})
    stages = plan(wanted, periods_of(wanted, Path())).periods
    assert [stage.training.network.lora for (stage,) in stages] == [4, 0]


def test_adapters_of_a_backbone_that_is_only_embedded_are_refused(photographs, weights, tmp_path):
    with pytest.raises(
        LecoError, match=r"network\.lora: 2 would train the backbone, which `embed` keeps as it is; set it to 0"
    ):
        train(photographs, tmp_path / "runs", weights, network={"embed": True})
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize("method", ["auto", "ce"])
def test_crops_that_a_network_cannot_take_are_refused_before_anything_is_trained(
    method, photographs, weights, tmp_path
):
    with pytest.raises(
        LecoError, match=r"^training\.views\.size: 100, but the backbone cannot take it \(.*16.*\); choose"
    ):
        train(photographs, tmp_path / "runs", weights, method=method, views={"crop": 0.5, "size": 100})
    assert not (tmp_path / "runs").exists()
