"""Closed-form heads on features of CIFAR-100 against the paper's best combination, and write a page with the results.

    .venv/bin/python benchmarks/cifar_beyond.py --data DIR --runs STORE -o PAGE.md

For each size: new labels alone (`ce`), new and old labels, and new labels of all samples (all-fine), with the budget
`features` of the paper's cells and with each head on square roots of the same features. The command can be stopped at
any time; the same one continues. The page is written after each seed, from what is in the store.
"""

import argparse
import statistics
from pathlib import Path
from typing import Any

import torch

from conclusions import train
from leco.experiments.experiment import Experiment, experiment
from leco.experiments.grid import shared_periods
from leco.experiments.pools import cores
from leco.experiments.stages import plan
from leco.experiments.store import Store
from leco.io import write_text
from leco.text import with_spread

SIZES = {"cifar-leco-1k": 1_000, "cifar-leco-2k": 2_000, "cifar-leco-10k": 10_000}
HEADS = ("gaussian", "linear", "linear+gaussian")
PAPER = "trained, `lpl+st-hard/cond` (the paper's)"
ROOTS = {"training.network.backbone": "tf_efficientnet_lite0+roots", "training.batches.steps": "1"}
INTRODUCTION = """\
How much of the gap between new labels alone (`ce`) and new labels of all samples (all-fine) do old labels close? All
rows use the same features: those of a small network that was trained on ImageNet, unlike the paper's, for images
enlarged to 128 pixels. The first row trains a hidden layer and a head as the paper does, with its best combination; the
others fit a head to square roots of the features (`training.finish.head`), with old labels as evidence. Mean per-class
accuracy on the test set in %, ± standard deviation over seeds. *Closes* is the share of the row's own gap that old
labels close; *gain* is the difference to the paper's combination, paired by seed, ± standard error.

The [log](../log.md) has what was tried, on the validation samples of other seeds."""


def main() -> None:
    """Fit, and write the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=Path("data"))
    parser.add_argument("--runs", type=Path, default=Path("runs-beyond"))
    parser.add_argument("--benchmarks", nargs="+", choices=SIZES, default=list(SIZES))
    parser.add_argument("--heads", nargs="+", choices=HEADS, default=list(HEADS))
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--jobs", type=int, default=cores())
    parser.add_argument("-o", "--output", type=Path, default=Path("cifar-beyond.md"))
    options = parser.parse_args()
    for name in options.benchmarks:
        for seed in range(options.seeds):
            rows = {row: triple for row, triple in cells(name, seed).items() if row in (PAPER, *options.heads)}
            train([cell for triple in rows.values() for cell in triple], options.data, options.runs, options.jobs)
            write_text(options.output, page(options.data, Store(options.runs), options.seeds))


def cells(name: str, seed: int) -> dict[str, tuple[Experiment, ...]]:
    """For each row of the table: new labels alone, with old labels, all-fine."""

    def triple(method: str, strategy: str, settings: dict[str, str]) -> tuple[Experiment, ...]:
        common = {"budget": "features", "strategy": strategy, "seed": seed}
        choices: list[dict[str, Any]] = [
            {"method": "ce"},
            {"method": method},
            {"method": "ce", "annotation": "all-fine"},
        ]
        return tuple(experiment(name, common | choice, settings) for choice in choices)

    heads = {head: triple("lpl", "scratch", {**ROOTS, "training.finish.head": head}) for head in HEADS}
    return {PAPER: triple("lpl+st-hard/cond", "finetune", {})} | heads


def page(root: Path, store: Store, seeds: int) -> str:
    """The page: what was done, and a table for each size."""
    command = "benchmarks/cifar_beyond.py --data DIR --runs STORE -o cifar-beyond.md"
    parts = ["# Beyond the paper, on features of CIFAR-100", INTRODUCTION, "Written by"]
    parts.append(f"```\n.venv/bin/python {command}\n```")
    for name, size in SIZES.items():
        found = {seed: scores(name, seed, root, store) for seed in range(seeds)}
        if any(found.values()):
            parts += [f"## {size:,} labels a period", table(found)]
    parts.append(f"Two cores, shared with other work; torch {torch.__version__}, on a CPU.")
    return "\n\n".join(parts) + "\n"


def scores(name: str, seed: int, root: Path, store: Store) -> dict[str, list[float]]:
    """Test scores of the complete rows, in %."""
    found = {}
    for row, triple in cells(name, seed).items():
        stages = [plan(cell, shared_periods(cell, root)).stages[-1] for cell in triple]
        results = [store.result(stage.fingerprint) for stage in stages]
        if all(results):
            found[row] = [100 * (result.score("test") or 0.0) for result in results if result]
    return found


def table(found: dict[int, dict[str, list[float]]]) -> str:
    """Rows over the seeds that have them."""
    lines = ["| head | n | `ce` | with old labels | all-fine | closes | gain |", "|---|---:|---:|---:|---:|---:|---:|"]
    for row in (PAPER, *HEADS):
        seeds = [seed for seed, rows in found.items() if row in rows]
        if not seeds:
            continue
        new, old, fine = ([found[seed][row][column] for seed in seeds] for column in range(3))
        closes = sum(a - b for a, b in zip(old, new, strict=True)) / sum(a - b for a, b in zip(fine, new, strict=True))
        gains = [found[seed][row][1] - found[seed][PAPER][1] for seed in seeds if PAPER in found[seed]]
        error = statistics.stdev(gains) / len(gains) ** 0.5 if len(gains) > 1 else None
        gain = "" if row == PAPER or not gains else with_spread(f"{statistics.mean(gains):+.1f}", error)
        cells = [in_percent(new), in_percent(old), in_percent(fine), f"{100 * closes:.0f} %", gain]
        lines.append(f"| {row} | {len(seeds)} | {' | '.join(cells)} |")
    return "\n".join(lines)


def in_percent(values: list[float]) -> str:
    """Mean ± standard deviation."""
    return with_spread(f"{statistics.mean(values):.1f}", statistics.stdev(values) if len(values) > 1 else None)


if __name__ == "__main__":
    main()
