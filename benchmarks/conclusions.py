"""Train all cells of the paper's tables on features of a pretrained backbone, and write a page with the results.

    .venv/bin/python benchmarks/conclusions.py cifar-leco-1k cifar-leco-2k cifar-leco-10k --data DIR -o PAGE.md
    .venv/bin/python benchmarks/conclusions.py cifar-4tp-leco cub-4tp-leco --data DIR -o PAGE.md

All 39 methods with finetune, and cross-entropy with every strategy and annotation strategy. The command can be stopped
at any time; the same one continues. The page is written after each seed, from what is in the store.
"""

import argparse
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import get_args

from leco.data.benchmarks import recipe
from leco.data.periods import Annotation
from leco.errors import LecoError
from leco.experiments.experiment import Experiment, experiment
from leco.experiments.grid import Graph, cores, run_locally
from leco.io import write_text
from leco.methods.method import ALL_METHODS
from leco.paper.formats import as_markdown
from leco.reports.formats import to_markdown
from leco.reports.report import make_report
from leco.reports.stored import read_store

STRATEGIES = ("finetune", "freeze", "scratch")
PAPER = ("baseline-4tp", "losses-4tp")
INTRODUCTION = """\
**The pretraining is not the paper's.** The paper trains networks on CIFAR-100 from random weights, and on iNaturalist
from ImageNet's. Here the features are those of a small network that was trained on ImageNet, which shows many of
CIFAR's classes and of CUB's birds, and that stays as it is; what is trained on top of them is a hidden layer of 512
units and heads (CIFAR-100), or heads alone (CUB). So accuracies do not compare with the paper's, which stand beside
ours; differences between methods do.

With a hidden layer, FreezePrev (`freeze`) keeps that of the previous period, FinetunePrev (`finetune`) starts from it,
and TrainScratch (`scratch`) from a random one, all on the same features. With heads alone, the three are one.

Settings were chosen on validation of a seed that is not among these ([log](../log.md)), test images were read once, at
the end of each training, and conclusions are tested together
([decision 21](../../explanation/decisions/0021-tests-of-conclusions.md))."""
FOUR_PERIODS = """\
The levels are described [with the benchmarks](../../reference/benchmarks.md#benchmarks). The paper has four periods on
iNaturalist alone (iNat-4TP); its tables are at the end of the page."""


def main() -> None:
    """Train, and write the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("benchmarks", nargs="+")
    parser.add_argument("--data", type=Path, default=Path("data"))
    parser.add_argument("--runs", type=Path, default=Path("runs-conclusions"))
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--jobs", type=int, default=cores())
    parser.add_argument("-o", "--output", type=Path, default=Path("conclusions.md"))
    options = parser.parse_args()
    for name in options.benchmarks:
        for seed in range(options.seeds):  # so that whole seeds are complete if the command is stopped
            train(list(cells(name, [seed])), options.data, options.runs, options.jobs)
            write_text(options.output, page(options.benchmarks, options.runs, options.output.name))


def budget_of(name: str) -> str:
    """Return the budget on features; `small` where the samples are features themselves."""
    return "features" if "features" in recipe(name).settings else "small"


def cells(name: str, seeds: list[int]) -> Iterator[Experiment]:
    """All cells of the tables, the baselines first."""
    baselines = [("ce", strategy, annotation) for strategy in STRATEGIES for annotation in get_args(Annotation)]
    # A linear head has no layers below it to freeze or to keep.
    if not recipe(name).settings[budget_of(name)]["network"]["backbone"].endswith("+mlp"):
        baselines = [cell for cell in baselines if cell[1] == "finetune"]
    methods = [(str(method), "finetune", "label-new") for method in ALL_METHODS]
    for method, strategy, annotation in dict.fromkeys([*baselines, *methods]):
        for seed in seeds:
            choices = {"method": method, "strategy": strategy, "annotation": annotation, "seed": seed}
            yield experiment(name, {"budget": budget_of(name), **choices}, {})


def train(wanted: list[Experiment], root: Path, runs: Path, jobs: int) -> None:
    """Train what is missing, and print a line for each tenth of it."""
    graph = Graph.of(wanted, root)
    total = len(graph.missing(runs))
    for progress in run_locally(graph, root, runs, jobs, "cpu"):
        done = len(progress.done)
        if total and done and done % max(1, total // 10) == 0:
            print(f"{wanted[0].benchmark} seed {wanted[0].seed}: {done} of {total} trainings", flush=True)
        if progress.failed:
            name, problem = next(iter(progress.failed.items()))
            raise LecoError(f"{graph.stages[name]}: {problem}")


def page(names: list[str], runs: Path, output: str) -> str:
    """The page: what was done, the report on the benchmarks, and the paper's tables over four periods."""
    stored = read_store(runs)
    records = tuple(record for record in stored.records if record.benchmark in names)
    report = replace(make_report(replace(stored, records=records)), runs=Path(runs.name))
    several = any(len(recipe(name).classes) > 2 for name in names)
    _, _, tables = to_markdown(report).partition("\n\n")
    parts = [
        "# The paper's conclusions on features of a pretrained backbone",
        INTRODUCTION,
        *([FOUR_PERIODS] if several else []),
        "Written by",
        f"```\n.venv/bin/python benchmarks/conclusions.py {' '.join(names)} --data DIR -o {output}\n```",
        tables.rstrip(),
        *(["## The paper, on iNat-4TP", *map(as_markdown, PAPER)] if several else []),
    ]
    return "\n\n".join(parts) + "\n"


if __name__ == "__main__":
    main()
