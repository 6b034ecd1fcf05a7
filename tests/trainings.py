"""Trainings that take a second, and the bundles that come of them."""

from pathlib import Path
from typing import Any

import pytest
import torch

from leco.experiments.bundles import bundle_stage
from leco.experiments.experiment import Experiment, experiment
from leco.experiments.machine import Machine
from leco.experiments.run import run_stage
from leco.experiments.stages import plan
from leco.experiments.store import Store
from leco.experiments.train import periods_of
from leco.model.bundle import Bundle, read_bundle
from leco.model.model import Model
from leco.model.onnx import export_onnx
from leco.records import Notes, Saved, Spent
from leco.training.checkpoint import Checkpoint

SETTINGS = {"training.batches.steps": "60", "training.batches.evaluate_every": "60"}


class Trained:
    """An experiment that was trained in a folder, and a bundle of each of its periods."""

    def __init__(self, wanted: Experiment, folder: Path) -> None:
        self.periods = periods_of(wanted, folder)
        self.stages = plan(wanted, self.periods)
        self.store = Store(folder / "runs")
        for stage in self.stages.stages:
            run_stage(stage, self.periods, self.store, Machine("cpu"))
        self.folders = [folder / f"bundle-{stage.version}" for (stage,) in self.stages.periods]
        for (stage,), target in zip(self.stages.periods, self.folders, strict=True):
            bundle_stage(self.store, stage.fingerprint, target)

    def result(self, period: int) -> dict[str, Any]:
        """What a period's stage found."""
        result = self.store.require(self.stages.periods[period][0].fingerprint)
        return result.model_dump(mode="json", by_alias=True)


def train_digits(folder: Path, settings: dict[str, str] = SETTINGS, **changes: object) -> Trained:
    """Train digits-leco, 100 samples a period."""
    return Trained(experiment("digits-leco", {"method": "lpl", "size": 100, **changes}, settings), folder)


def train_file(file: Path) -> tuple[Bundle, dict[str, Any]]:
    """Train what an experiment.yaml says; the bundle of the last period, and its result."""
    trained = Trained(experiment(str(file), {}, {}), file.parent)
    return read_bundle(trained.folders[-1]), trained.result(-1)


def model_of(bundle: Bundle) -> Model:
    """A bundle at work, on the CPU."""
    return Model(bundle.description, bundle.ontology, bundle.metrics, bundle=bundle, device="cpu")


def exported(bundle: Bundle) -> tuple[bytes, float]:
    """A bundle as ONNX, and its difference from torch."""
    return export_onnx(bundle.network(), bundle.description, bundle.ontology, str(bundle))


def assert_consistent(scores: dict[str, Any], metric: str = "macc") -> None:
    """The mean of a stored result is that of its classes, each of which was tested, and something was right."""
    column = {"macc": "accuracy", "miou": "iou"}[metric]
    tested = [row[column] for row in scores["per_class"] if row["support"]]
    assert scores[metric] == pytest.approx(sum(tested) / len(tested))
    assert [row["class"] for row in scores["per_class"] if not row["support"]] == scores["absent"]
    assert any(tested)


def some_checkpoint(step: int) -> Checkpoint:
    return Checkpoint(
        step,
        {"network/x": torch.full((3,), float(step))},
        Notes(
            **{"best_score": None, "best_step": 0, "sums": {}, "means": {}, "optimiser": {}},
            time=Spent(seconds=0.0, step_seconds=0.0, images=0),
            thrift=Saved(parts=1, recomputes=False),
        ),
    )
