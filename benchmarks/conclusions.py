"""Train all cells of the paper's tables on features of a pretrained backbone, and write a page with the results.

    .venv/bin/python benchmarks/conclusions.py cifar-leco-1k cifar-leco-2k cifar-leco-10k --data DIR -o PAGE.md
    .venv/bin/python benchmarks/conclusions.py cifar-4tp-leco cub-4tp-leco --data DIR -o PAGE.md
    .venv/bin/python benchmarks/conclusions.py cifar-leco-1k --unfrozen --data DIR -o PAGE.md

All 39 methods with finetune, and cross-entropy with every strategy and annotation strategy of the paper; with two
periods also what is beyond it: mixtures of new and relabelled samples, all-fine that learns the older classes, too, and
unlabelled samples of no period. With `--unfrozen`, the last blocks of the backbone are trained, with cross-entropy
alone. The command can be stopped at any time; the same one continues. The page is written after each seed, from what
is in the store.
"""

import argparse
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from leco.data.benchmarks import recipe
from leco.errors import LecoError
from leco.experiments.experiment import Experiment, experiment
from leco.experiments.grid import Graph, run_locally
from leco.experiments.pools import cores
from leco.io import write_text
from leco.methods.method import ALL_METHODS
from leco.paper.formats import as_markdown
from leco.reports.formats import to_markdown
from leco.reports.report import make_report
from leco.reports.stored import read_store

PAPER_ANNOTATIONS = ("label-new", "relabel-old", "all-fine")
STRATEGIES = ("finetune", "freeze", "scratch")
PAPER = ("baseline-4tp", "losses-4tp")
BEYOND = [
    *(("ce", annotation) for annotation in ("relabel-25", "relabel-50", "relabel-75")),
    *(("lpl", annotation) for annotation in ("relabel-25", "relabel-50", "relabel-75")),
    *((method, "all-fine") for method in ("joint", "lpl")),
    *((method, "with-unlabelled") for method in ("ce+st-soft", "lpl+st-hard/cond")),
]
UNFROZEN = {
    **{"network.backbone": "tf_efficientnet_lite0", "network.frozen_layers": "0.9", "network.frozen_norm": "true"},
    **{"optimiser.name": "adamw", "optimiser.learning_rate": "0.001", "optimiser.weight_decay": "0.01"},
    **{"optimiser.head_factor": "10", "optimiser.schedule": "half-cosine", "optimiser.warm_up": "0.1"},
    **{"average.decay": "0", "batches.steps": "100", "batches.size": "64", "batches.evaluate_every": "100"},
    **{"views.resize": "96"},
}
INTRODUCTION = """\
**The pretraining is not the paper's.** The paper trains networks on CIFAR-100 from random weights, and on iNaturalist
from ImageNet's. Here the features are those of a small, frozen network that was trained on ImageNet, which shows many
of CIFAR's classes and of CUB's birds; what is trained on top of them is a hidden layer of 512 units and heads
(CIFAR-100), or heads alone (CUB). So accuracies are not comparable with the paper's, which are shown beside ours;
differences between methods are.

With a hidden layer, FreezePrev (`freeze`) keeps that of the previous period, FinetunePrev (`finetune`) starts from it,
and TrainScratch (`scratch`) from a random one, all on the same features. With heads alone, all three are the same.

Settings were chosen on the validation samples of a seed that is not among these ([log](../log.md)), test images were
read once, at the end of each training, and conclusions are tested together
([decision 21](../../explanation/decisions/0021-tests-of-conclusions.md))."""
LAST_BLOCKS = """\
**The pretraining is not the paper's, and the training is short.** A small network that was trained on ImageNet is
fine-tuned on CIFAR-100, enlarged to 96 pixels, for 100 steps. The first nine tenths of its layers are frozen, so their
output for each image is computed once, and views are noise and dropout on that. TrainScratch (`scratch`)
starts from the pretrained weights, as it does in the paper's experiments on iNaturalist; FinetunePrev (`finetune`)
starts from the network of the period before, and FreezePrev (`freeze`) trains heads on it. So accuracies are not
comparable with the paper's, which are shown beside ours; differences between strategies are.

Settings were chosen on the validation samples of a seed that is not among these ([log](../log.md)), test images were
read once, at the end of each training, and conclusions are tested together
([decision 21](../../explanation/decisions/0021-tests-of-conclusions.md))."""
FOUR_PERIODS = """\
The levels are described [with the benchmarks](../../reference/benchmarks.md#benchmarks). The paper has four periods on
iNaturalist only (iNat-4TP); its tables are at the end of the page."""


def main() -> None:
    """Train, and write the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("benchmarks", nargs="+")
    parser.add_argument("--unfrozen", action="store_true", help="train the last blocks of the backbone")
    parser.add_argument("--data", type=Path, default=Path("data"))
    parser.add_argument("--runs", type=Path, default=Path("runs-conclusions"))
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--jobs", type=int, default=cores())
    parser.add_argument("-o", "--output", type=Path, default=Path("conclusions.md"))
    options = parser.parse_args()
    for name in options.benchmarks:
        for seed in range(options.seeds):  # so that whole seeds are complete if the command is stopped
            train(list(cells(name, [seed], options.unfrozen)), options.data, options.runs, options.jobs)
            write_text(options.output, page(options.benchmarks, options.runs, options.output.name, options.unfrozen))


def budget_of(name: str) -> str:
    """Return the budget on features; `small` where the samples are features themselves."""
    return "features" if "features" in recipe(name).settings else "small"


def cells(name: str, seeds: list[int], unfrozen: bool = False) -> Iterator[Experiment]:
    """All cells of the tables, the baselines first."""
    settings = {f"training.{key}": value for key, value in UNFROZEN.items()} if unfrozen else {}
    baselines = [("ce", strategy, annotation) for strategy in STRATEGIES for annotation in PAPER_ANNOTATIONS]
    # A linear head has no layers below it to freeze or to keep.
    if not (unfrozen or recipe(name).settings[budget_of(name)]["network"]["backbone"].endswith("+mlp")):
        baselines = [cell for cell in baselines if cell[1] == "finetune"]
    methods = [] if unfrozen else [(str(method), "finetune", "label-new") for method in ALL_METHODS]
    if not unfrozen and len(recipe(name).classes) == 2:
        methods += [(method, "finetune", annotation) for method, annotation in BEYOND]
    for method, strategy, annotation in dict.fromkeys([*baselines, *methods]):
        for seed in seeds:
            choices = {"method": method, "strategy": strategy, "annotation": annotation, "seed": seed}
            yield experiment(name, {"budget": budget_of(name), **choices}, settings)


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


def page(names: list[str], runs: Path, output: str, unfrozen: bool = False) -> str:
    """The page: what was done, the report on the benchmarks, and the paper's tables over four periods."""
    stored = read_store(runs)
    records = tuple(
        record
        for record in stored.records
        if record.benchmark in names and (record.training.get("network.frozen_layers", 0) > 0) == unfrozen
    )
    report = replace(make_report(replace(stored, records=records)), runs=Path(runs.name))
    arguments = " ".join([*names, "--unfrozen"] if unfrozen else names)
    several = any(len(recipe(name).classes) > 2 for name in names)
    _, _, tables = to_markdown(report).partition("\n\n")
    parts = [
        "# The paper's conclusions "
        + ("with the last blocks trained" if unfrozen else "on features of a pretrained backbone"),
        LAST_BLOCKS if unfrozen else INTRODUCTION,
        *([FOUR_PERIODS] if several else []),
        "Written by",
        f"```\n.venv/bin/python benchmarks/conclusions.py {arguments} --data DIR -o {output}\n```",
        tables.rstrip(),
        *(["## The paper, on iNat-4TP", *map(as_markdown, PAPER)] if several else []),
    ]
    return "\n\n".join(parts) + "\n"


if __name__ == "__main__":
    main()
