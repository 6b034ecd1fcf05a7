"""Some experiments, run in whatever process this is started in: one of several of `torchrun`, or one to be killed.

python -m tests.processes RUNS VISTAS CASE...
"""

import sys
from dataclasses import replace
from pathlib import Path

import torch

from leco.data.benchmarks import BENCHMARKS
from leco.experiments.experiment import experiment
from leco.experiments.machine import Machine
from leco.experiments.run import run_stage
from leco.experiments.stages import plan
from leco.experiments.store import Store
from leco.experiments.train import periods_of

SHORT = {
    **{
        "training.batches.steps": "3",
        "training.average.decay": "0",
        "training.network.backbone": "wrn-10-1",
        "training.network.norm_momentum": "0.05",
    },
    "training.optimiser.learning_rate": "0.005",  # steps of a larger one make much of how numbers are rounded
}
PIXELS = {
    **{
        "training.network.backbone": "tiny",
        "training.network.weights": "random",
        "training.batches.evaluate_every": "2",
    },
    **{
        "training.batches.size": "4",
        "training.segmentation.crop": "32",
        "training.segmentation.base_size": "40",
        "training.segmentation.window": "32",
    },
}
# BatchNorm over two numbers would blow up rounding, and so would large steps: a ReLU that is rounded to the other side
# of zero changes a gradient by a hundredth.
MANY = {"training.batches.size": "16", "training.segmentation.crop": "64"}
SLOWLY = {"training.optimiser.learning_rate": "0.001", "training.optimiser.finetune_learning_rate": "0.001"}
CASES = {
    "soft": ("digits-leco", {"method": "lpl+st-soft/cond"}, SHORT),
    "freeze": (
        *("digits-leco", {"method": "joint+fixmatch/filter", "strategy": "freeze"}),
        SHORT | {"training.batches.steps": "8"},  # enough for a bank of views
    ),
    "lp-ft": ("digits-leco", {"method": "lpl", "strategy": "lp-ft"}, SHORT | {"training.transfer.head_steps": "2"}),
    "pixels": (
        "mapillary-leco-2.5k",
        {"method": "lpl+st-soft/cond"},
        PIXELS | MANY | SLOWLY | {"training.batches.steps": "3"},
    ),
    "shard": (
        *("digits-leco", {"method": "lpl+fixmatch/cond"}),
        SHORT | {"training.network.shard": "true", "training.average.decay": "0.5", "training.optimiser.clip": "1"},
    ),
    "recompute": ("digits-leco", {"method": "lpl"}, SHORT | {"training.network.recompute": "true"}),
    "parts": (  # of a whole batch or of a process's share, so BatchNorm must not look at them
        *("digits-leco", {"method": "joint+fixmatch/cond"}),
        SHORT | {"training.batches.parts": "3", "training.network.frozen_norm": "true"},
    ),
    "more shards": (
        *("digits-leco", {"method": "joint+st-soft"}),
        SHORT
        | {"training.network.shard": "true", "training.optimiser.name": "adamw", "training.batches.steps": "40"}
        | {"training.batches.evaluate_every": "15"},
    ),
    "more pixels": ("mapillary-leco-2.5k", {"method": "joint+st-hard"}, PIXELS | {"training.batches.steps": "30"}),
}


def shrink_vistas() -> None:
    """Take the made-up tree of the tests for the benchmark."""
    small = replace(BENCHMARKS["mapillary-leco-2.5k"], classes=(4, 6), size=10, image_size=40, evaluated=5)
    BENCHMARKS._entries[small.name] = small


def run(case: str, runs: Path, vistas: Path) -> None:
    """Train all stages of a case."""
    benchmark, changes, settings = CASES[case]
    wanted = experiment(benchmark, changes, settings)
    periods = periods_of(wanted, vistas)
    for stage in plan(wanted, periods).stages:
        run_stage(stage, periods, Store(runs), Machine("cpu"))


if __name__ == "__main__":
    torch.set_num_threads(1)
    shrink_vistas()
    for name in sys.argv[3:]:
        run(name, Path(sys.argv[1]), Path(sys.argv[2]))
