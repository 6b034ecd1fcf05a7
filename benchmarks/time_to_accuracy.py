"""Seconds of training until a score on validation: ours, and a loop in the manner of the released code.

    .venv/bin/python benchmarks/time_to_accuracy.py                       # CIFAR-LECO's small budget, and own images
    .venv/bin/python benchmarks/time_to_accuracy.py --sets cifar --steps 3200      # the whole budget

Both sides train the same network in the second period, from the same start, by the same recipe; `released.py` says what
the other loop does. On own images, both crop and mirror at random; ours decodes each file once, the other for every
view. The recipe is that of `leco run`, with fewer steps: `lpl+st-hard/cond` on CIFAR, and the trial of `auto` that
fine-tunes a pretrained network with old labels on photographs of clothes. The score, mean per-class accuracy, has to be
95 % of the final one (of the side whose final score is lower), and is evaluated every twentieth of the steps. The time
of evaluations does not count. Sides run one after the other, each in its own process. Data are in LECO_DATA.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path

import torch
from torchvision.transforms import Compose, Normalize, RandomHorizontalFlip, RandomResizedCrop, ToTensor

import leco
from against_users import DATA, SETS, _raw_cifar
from leco import Dataset
from leco.devices import keep_memory
from leco.evaluation.evaluate import Judge
from leco.experiments.experiment import AUTO, Procedure, defaults_for
from leco.experiments.machine import Machine
from leco.experiments.run import make_training, run_stage
from leco.experiments.stages import WITH_OLD
from leco.experiments.store import Store
from leco.experiments.train import Run
from leco.training.loop import Training
from released import STRONG, WEAK, Plain, Transforms, plain
from rows import row

STEPS = {"cifar": 800, "own": 40}
TIMES = 20  # evaluations
SHARE = 0.95
NAMES = {"cifar": "`cifar-leco-1k`, small budget", "own": "photographs of clothes, pretrained network"}
Curve = list[tuple[float, float]]  # seconds and score


def prepare(name: str, steps: int, folder: Path) -> Run:
    """Plan the stages of a set."""
    batches = {"steps": steps, "evaluate_every": max(1, steps // TIMES)}
    if name == "cifar":
        data: Dataset = leco.benchmark("cifar-leco-1k", root=_raw_cifar(folder))
        given = {"method": "lpl+st-hard/cond", "training": defaults_for(data, {"batches": batches}, budget="small")}
    else:
        data = SETS["clothing-20"](0, folder).dataset(None)
        given = {"method": AUTO, "training": defaults_for(data, {"batches": batches})}
    return Run.prepare(Procedure.model_validate({"seed": 0, **given}), data, Store(folder / "store"))


def training_of(run: Run) -> Training:
    """Prepare the last stage; those that it starts from must be complete."""
    stage = run.plan.trials[WITH_OLD] if run.plan.trials else run.plan.stages[-1]
    periods = replace(run.periods, views=run.periods.views.changed(stage.training.views))
    held_out = periods.annotated(stage.period, stage.annotation).validation
    judge = Judge(periods, stage.period, held_out, Machine("cpu").fabric("32-true"))
    return make_training(stage, run.store, Machine("cpu"), judge)[0]


def ours(training: Training) -> Curve:
    """Train as `leco run` does."""
    keep_memory()
    return [(training.step_seconds, report.score) for report in training.run() if report.score is not None]


def theirs(training: Training, workers: int) -> Curve:
    """Train with the plain loop."""
    loop = plain_loop(training, workers)
    every, total = training.job.settings.batches.evaluate_every, len(training.job.steps)
    curve, seconds = [], 0.0
    assert training.validate is not None
    for step in range(1, total + 1):
        started = time.perf_counter()
        loop.step()
        seconds += time.perf_counter() - started
        if step % every == 0 or step == total:
            curve.append((seconds, training.validate(training.average.model)))
    return curve


def plain_loop(training: Training, workers: int) -> Plain:
    """The loop of the released code on the samples of a training, which are files or in memory."""
    pool, views = training.job.steps.samples, training.job.settings.views
    if pool.files is None:
        images = pool.inputs.read(torch.arange(len(pool))).permute(0, 2, 3, 1).contiguous().numpy()
        return plain(training, list(images), (WEAK, STRONG), workers, keep=False)
    normalise = training.job.normalise
    finish = [ToTensor(), Normalize(normalise.mean.tolist(), normalise.std.tolist())]  # type: ignore[attr-defined]
    cropped = Compose([RandomResizedCrop(views.size, scale=(views.crop, 1)), RandomHorizontalFlip(), *finish])
    transforms: Transforms = (cropped, cropped)
    return plain(training, list(pool.files), transforms, workers, keep=False)


def seconds_until(curve: Curve, score: float) -> float:
    """Seconds until a score was reached for the first time."""
    return next(seconds for seconds, found in curve if found >= score)


def main() -> None:
    """Train both sides, and add a row for each set."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sets", nargs="+", choices=STEPS, default=list(STEPS))
    parser.add_argument("--steps", type=int, help="of each training; by default fewer than those of the recipe")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads(), help="torch threads, and workers")
    parser.add_argument("--folder", type=Path, help="for data and stages; by default a temporary one")
    parser.add_argument("--side", nargs=2, metavar=("SIDE", "SET"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    if options.side:
        print(json.dumps(one_side(*options.side, options)))
        return
    if not DATA.is_dir():
        print(f"nothing to train on: {DATA} is missing; set LECO_DATA")
        return
    with tempfile.TemporaryDirectory() as temporary:
        folder = options.folder or Path(temporary)
        for name in options.sets:
            steps = options.steps or STEPS[name]
            curves = {}
            for side in ("before", "ours", "theirs"):
                command = [sys.executable, __file__, "--side", side, name, "--folder", str(folder)]
                command += ["--steps", str(steps), "--threads", str(options.threads)]
                found = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
                curves[side] = json.loads(found.splitlines()[-1])
            add_row(name, steps, curves["ours"], curves["theirs"])


def one_side(side: str, name: str, options: argparse.Namespace) -> Curve:
    """Train the earlier stages, or one of the sides."""
    options.folder.mkdir(parents=True, exist_ok=True)
    run = prepare(name, options.steps, options.folder)
    if side == "before":
        for stage in run.plan.stages[:-1] if not run.plan.trials else ():
            run_stage(stage, run.periods, run.store, Machine("cpu"))
        return []
    training = training_of(run)
    return ours(training) if side == "ours" else theirs(training, options.threads)


def add_row(name: str, steps: int, mine: Curve, other: Curve) -> None:
    """Compare two curves."""
    finals = [curve[-1][1] for curve in (mine, other)]
    target = SHARE * min(finals)
    first, second = (seconds_until(curve, target) for curve in (mine, other))
    whole = [curve[-1][0] for curve in (mine, other)]
    row(
        "accuracy",
        f"seconds until {100 * target:.1f} % mAcc, 95 % of the final score: {NAMES[name]}, {steps:,} steps",
        f"{first:.1f} and {second:.1f}, factor {second / first:.2f}; all steps {whole[0]:.0f} and {whole[1]:.0f} s; "
        f"final {100 * finals[0]:.1f} and {100 * finals[1]:.1f} %",
        limit="convolutions" if name == "cifar" else "depthwise convolutions; decoding and views of the other loop",
    )


if __name__ == "__main__":
    main()
