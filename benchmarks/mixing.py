"""Mixup and CutMix with labels of any version, against neither: the trial "the network, with old labels" of `auto`.

    .venv/bin/python benchmarks/mixing.py --seeds 0,1,2 --steps 100

The set is `clothing-20` of `against_users.py`. New samples are mixed with new ones, old with old ones; the loss is the
mean of the losses of both labels, weighted by their shares of the image, so that each label keeps its own evidence row.
Validation is not read. Prints mean per-class accuracy on test.
"""

import argparse
import statistics
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from against_users import clothing, spread
from leco.data.batches import Step
from leco.experiments.experiment import Procedure, defaults_for
from leco.experiments.machine import Machine
from leco.experiments.run import run_stage
from leco.experiments.stages import WITH_OLD
from leco.experiments.store import Store
from leco.experiments.train import Run
from leco.methods.terms import Loss, Mean
from leco.training import loop

BETA = {"mixup": 0.2, "cutmix": 1.0}  # of the distribution of shares, as timm and torchvision have them
make_views, all_losses = loop.make_views, loop.all_losses


def mixed(kind: str, share: float, one: Tensor, other: Tensor) -> Tensor:
    """Images of which a share is of `one`: blended, or with a rectangle of `other`."""
    if kind == "mixup":
        return torch.lerp(other, one, share)
    height, width = one.shape[-2:]
    tall, wide = round(height * (1 - share) ** 0.5), round(width * (1 - share) ** 0.5)
    top, left = (int(torch.randint(whole - part + 1, ())) for whole, part in ((height, tall), (width, wide)))
    result = one.clone()
    result[..., top : top + tall, left : left + wide] = other[..., top : top + tall, left : left + wide]
    return result


def mix_training(kind: str) -> None:
    """Make the training loop mix each part of every batch with itself in reverse order."""
    share = 1.0
    beta = torch.distributions.Beta(BETA[kind], BETA[kind])

    def views(*given: Any) -> dict[tuple[str, str], Tensor]:
        nonlocal share
        share = float(beta.sample())
        return {name: mixed(kind, share, view, view.flip(0)) for name, view in make_views(*given).items()}

    def losses(terms: Any, outputs: Any, batch: Step, evidence: Any) -> dict[str, Loss]:
        found = all_losses(terms, outputs, batch, evidence)
        other = all_losses(terms, outputs, reversed_step(batch), evidence)
        return {name: Loss([_weighted(share, *pair) for pair in zip(found[name].means, other[name].means, strict=True)])
                for name in found}  # fmt: skip

    loop.make_views, loop.all_losses = views, losses


def _weighted(share: float, one: Mean, other: Mean) -> Mean:
    return Mean(share * one.total + (1 - share) * other.total, one.count)


def reversed_step(step: Step) -> Step:
    """The labels of a step in reverse order."""

    def reverse(part: Any) -> Any:
        labels = {version: values.flip(0) for version, values in part.labels.items()}
        return replace(part, rows=part.rows.flip(0), labels=labels)

    return replace(step, new=reverse(step.new), history=None if step.history is None else reverse(step.history))


def score(kind: str, seed: int, steps: int) -> float:
    """Train the trial, and return its mean per-class accuracy on test at the newest version."""
    torch.manual_seed(seed)
    loop.make_views, loop.all_losses = make_views, all_losses
    if kind != "neither":
        mix_training(kind)
    with tempfile.TemporaryDirectory() as folder:
        task = clothing(seed, Path(folder), 20)
        data, store = task.dataset(), Store(Path(folder) / "runs")
        settings = defaults_for(data, {"batches": {"steps": steps}})
        run = Run.prepare(Procedure.model_validate({"method": "auto", "seed": seed, "training": settings}), data, store)
        result = run_stage(run.plan.trials[WITH_OLD], run.periods, store, Machine())
    return result.score("test") or 0.0


def main() -> None:
    """Train and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", default="0,1,2")
    parser.add_argument("--steps", type=int, default=100)
    options = parser.parse_args()
    scores: dict[str, list[float]] = {"neither": [], "mixup": [], "cutmix": []}
    for seed in map(int, options.seeds.split(",")):
        for kind, found in scores.items():
            started = time.process_time()
            found.append(100 * score(kind, seed, options.steps))
            print(f"seed {seed}, {kind}: {found[-1]:.1f} ({time.process_time() - started:.0f} CPU s)", flush=True)
    for kind, found in scores.items():
        gains = [mine - plain for mine, plain in zip(found, scores["neither"], strict=True)]
        print(f"{kind}: {spread(found)}; gain {statistics.mean(gains):+.1f} (n = {len(found)})")


if __name__ == "__main__":
    main()
