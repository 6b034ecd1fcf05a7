"""Time of a step as a function of the number of samples, periods, classes and processes.

    .venv/bin/python benchmarks/growth.py
    .venv/bin/python benchmarks/growth.py --device cuda --processes 1 2    # on two GPUs

The first three have a linear head on features of 512 dimensions, `lpl+st-soft/cond`, 64 + 64 samples per step and one
thread; a larger network would hide the cost measured here. All sizes of a row are timed in turns, so that other load
affects all of them. Processes share the cores, or have a GPU each, and share the batches of WRN-16-1, `lpl`.
"""

import argparse
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import replace

import torch

from leco.data.samples import Few, Samples
from leco.data.views.sets import feature_views
from leco.methods.method import Method
from leco.models import Network, build_backbone
from leco.ontology.ontology import Ontology
from leco.training.loop import Training
from made_up import ENDLESS, HALF, make_job, make_training, ontology, samples
from rows import line, row

DIMENSIONS, SHOWN = 512, 4_096
METHOD_NAME = "lpl+st-soft/cond"
METHOD = Method.parse(METHOD_NAME)


def features(tree: Ontology, count: int) -> Samples:
    """A few feature vectors, reused for all samples, and labels of each sample."""
    made = samples(tree, count, side=1)
    vectors = torch.randn(SHOWN, DIMENSIONS, generator=torch.Generator().manual_seed(1))
    return replace(made, inputs=Few(vectors, count))


def training(classes: int, periods: int, count: int, device: str) -> Training:
    """A run whose steps can be timed."""
    tree = ontology(classes, periods)
    student, teacher = (Network(build_backbone("linear", (DIMENSIONS,)), [tree.newest]) for _ in range(2))
    job = make_job(METHOD, features(tree, count), tree, teacher, ENDLESS, device=device)
    return Training(replace(job, views=feature_views(1.0), normalise=lambda x: x), student, None)


def timed(name: str, measured: str, limit: str, runs: Mapping[int, Training], options: argparse.Namespace) -> None:
    """Time some runs in turns, and add a row and a line of the time of a step."""
    steps = {size: run.run() for size, run in runs.items()}
    times: dict[int, list[float]] = {size: [] for size in runs}
    for _ in range(options.repeats + 1):
        for size, run in steps.items():
            started = time.perf_counter()
            for _ in range(options.steps):
                next(run)
            wait(options.device)
            times[size].append((time.perf_counter() - started) / options.steps)
    medians = {size: 1e3 * statistics.median(found[1:]) for size, found in times.items()}
    sizes, found = ", ".join(f"{size:,}" for size in medians), ", ".join(f"{time:,.1f}" for time in medians.values())
    row("growth", f"ms a step with {sizes} {measured}", found, limit=limit)
    line(f"growth-{name}", METHOD_NAME, medians)


def wait(device: str) -> None:
    """Wait until a GPU is done."""
    if device != "cpu":
        torch.accelerator.synchronize()


def images_per_second(processes: int, steps: int, device: str) -> float:
    """Speed of some processes together, which share the cores."""
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={processes}"]
    command += [__file__, "--steps", str(steps), "--device", device, "--process"]
    threads = max(1, (os.cpu_count() or 1) // processes)
    found = subprocess.run(
        command, check=True, capture_output=True, text=True, env=os.environ | {"OMP_NUM_THREADS": str(threads)}
    )
    return float(found.stdout.split()[-1])


def run_process(steps: int, device: str) -> None:
    """Train as one of several processes; the first prints the speed of all."""
    tree = ontology(100)
    run = make_training(Method.parse("lpl"), "wrn-16-1", samples(tree, 2_000), tree, device=device)
    going, fabric = run.run(), run.job.fabric
    next(going)
    fabric.barrier()
    started = time.perf_counter()
    for _ in range(steps):
        next(going)
    wait(device)
    fabric.barrier()
    if fabric.is_global_zero:
        print(2 * HALF * steps / (time.perf_counter() - started), flush=True)


def main() -> None:
    """Add a row and a figure for each quantity."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--steps", type=int, default=4, help="of a turn")
    parser.add_argument("--samples", type=int, nargs="+", default=[1, 2_000, 20_000, 200_000, 2_000_000])
    parser.add_argument("--periods", type=int, nargs="+", default=[2, 3, 4, 5, 6])
    parser.add_argument("--classes", type=int, nargs="+", default=[10, 100, 1_000, 10_000, 100_000])
    parser.add_argument("--processes", type=int, nargs="+", default=[1, 2, 4])
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--process", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.process:
        run_process(options.steps, options.device)
        return
    torch.set_num_threads(1)
    device = options.device
    past = {count: training(100, 2, 2 * count, device) for count in options.samples}
    timed("samples", "past samples, and as many new ones", "overhead of small operations", past, options)
    del past
    periods = {number: training(3_125, number, 20_000, device) for number in options.periods}
    timed("periods", "periods, 3,125 classes", "one coarse loss for each older period", periods, options)
    classes = {number: training(number, 2, 20_000, device) for number in options.classes}
    timed("classes", "classes", "the head's matrix products and its optimiser: memory bandwidth", classes, options)
    del classes
    speeds = {number: images_per_second(number, 5 * options.steps, device) for number in options.processes}
    numbers, found = ", ".join(map(str, speeds)), ", ".join(f"{speed:,.0f}" for speed in speeds.values())
    cores = os.cpu_count() or 1
    on_cpu = device == "cpu"
    shared = "sums of BatchNorm's statistics, which processes wait for"
    limit = shared if on_cpu else "sums of gradients and statistics over all GPUs"
    row(
        "growth", f"images/s of {numbers} processes, {f'{cores} cores' if on_cpu else 'a GPU each'}", found, limit=limit
    )
    line("growth-processes", "WRN-16-1, lpl", speeds)


if __name__ == "__main__":
    main()
