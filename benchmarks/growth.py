"""Time of a step as a function of the number of past samples, of past periods, and of classes.

    .venv/bin/python benchmarks/growth.py

A linear head on features of 512 dimensions, `lpl+st-soft/cond`, 64 + 64 samples per step; a larger network would hide
the cost measured here. All sizes of a row are timed in turns, so that other load affects all of them.
"""

import argparse
import statistics
import time
from collections.abc import Sequence
from dataclasses import replace

import torch

from leco.data.samples import Few, Samples
from leco.data.views.sets import feature_views
from leco.methods.method import Method
from leco.models import Network, build_backbone
from leco.ontology.ontology import Ontology
from leco.training.loop import Training
from made_up import ENDLESS, make_job, ontology, samples

DIMENSIONS, SHOWN = 512, 4_096
METHOD = Method.parse("lpl+st-soft/cond")


def features(tree: Ontology, count: int) -> Samples:
    """A few feature vectors, reused for all samples, and a label for each sample."""
    made = samples(tree, count, side=1)
    vectors = torch.randn(SHOWN, DIMENSIONS, generator=torch.Generator().manual_seed(1))
    return replace(made, inputs=Few(vectors, count))


def training(classes: int, periods: int, count: int) -> Training:
    """A run whose steps can be timed."""
    tree = ontology(classes, periods)
    student, teacher = (Network(build_backbone("linear", (DIMENSIONS,)), [tree.newest]) for _ in range(2))
    job = make_job(METHOD, features(tree, count), tree, teacher, ENDLESS)
    return Training(replace(job, views=feature_views(1.0), normalise=lambda x: x), student, None)


def row(name: str, sizes: Sequence[int], runs: Sequence[Training], repeats: int) -> None:
    """Time some runs in turns, and print the time of a step."""
    steps = [run.run() for run in runs]
    times: list[list[float]] = [[] for _ in runs]
    for _ in range(repeats + 1):
        for number, run in enumerate(steps):
            started = time.perf_counter()
            for _ in range(5):
                next(run)
            times[number].append((time.perf_counter() - started) / 5)
    medians = [statistics.median(found[1:]) for found in times]
    summary = ", ".join(f"{size:,}: {found * 1e3:.1f} ms" for size, found in zip(sizes, medians, strict=True))
    print(f"{name}: {summary}; last over first {medians[-1] / medians[0]:.2f}", flush=True)


def main() -> None:
    """Print a row for each quantity."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=9)
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    counts, periods, classes = (2_000, 20_000, 200_000, 2_000_000), (2, 3, 4, 5, 6), (100, 316, 1_000, 3_162, 10_000)
    row("samples", counts, [training(100, 2, count) for count in counts], options.repeats)
    row("periods", periods, [training(3_125, number, 20_000) for number in periods], options.repeats)
    row("classes", classes, [training(number, 2, 20_000) for number in classes], options.repeats)


if __name__ == "__main__":
    main()
