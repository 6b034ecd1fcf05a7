"""Old and new labels as people give them (CIFAR-100N): evidence that believes them, against evidence with a noise rate.

    .venv/bin/python benchmarks/noisy_labels.py --data DIR --labels human_labels.npz --runs STORE -o PAGE.md

A Gaussian head on square roots of the features of `cifar-leco-1k` and `-2k`. Old labels are evidence rows. With a noise
rate e, a row is log(1 - e) for the classes of its superclass and log(e / 19) for all others; the rate comes from the
data: a head fitted to the new labels agrees with superclasses of held-out new samples in a share a, and with old labels
in a share b = a (1 - e) + (1 - a) e / 19. Mean per-class accuracy on the clean test labels in %, mean and standard
deviation over seeds; differences are paired by seed, with their standard error.
"""

import argparse
import statistics
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from cifar_beyond import ROOTS
from leco.experiments.experiment import experiment
from leco.experiments.machine import Machine
from leco.experiments.run import embed_stage
from leco.experiments.stages import plan
from leco.experiments.store import Store
from leco.experiments.train import periods_of
from leco.io import write_text
from leco.methods.folds import FOLDS, stratified_folds
from leco.methods.gaussian import gaussian_head
from leco.text import with_spread

Labels = dict[str, Tensor]  # by version, of all training images
INTRODUCTION = """\
CIFAR-100N has a label of one person for each training image: 40.2 % of the classes and 26.4 % of the superclasses are
wrong. A Gaussian head on square roots of the features of [cifar-beyond.md](cifar-beyond.md) is fitted to new labels
alone, with old labels as they are, and with old labels whose evidence holds a noise rate; labels of people take the
place of old ones, new ones, or both. Mean per-class accuracy on the clean test labels in %, ± standard deviation over
seeds; the gain is paired by seed, ± standard error.

The rate e comes from the data: a head of the new labels names the superclass of held-out new samples rightly in a share
a, and agrees with old labels in a share b = a (1 - e) + (1 - a) e / 19.

Written by

```
.venv/bin/python benchmarks/noisy_labels.py --data DIR --labels human_labels.npz --runs STORE -o cifar-noise.md
```"""


def main() -> None:
    """Measure each size, and write the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=Path("data"))
    parser.add_argument(
        "--labels", type=Path, required=True, help="CIFAR-100N, with clean labels beside the noisy ones"
    )
    parser.add_argument("--runs", type=Path, default=Path("runs-beyond"), help="store with the features")
    parser.add_argument("--benchmarks", nargs="+", default=["cifar-leco-1k", "cifar-leco-2k"])
    parser.add_argument("--seeds", type=int, nargs="+", default=range(5))
    parser.add_argument("-o", "--output", type=Path, default=Path("cifar-noise.md"))
    options = parser.parse_args()
    parts = ["# Labels as people give them", INTRODUCTION]
    for name in options.benchmarks:
        found = [measure(name, seed, options) for seed in options.seeds]
        parts.append(f"## {name}, n = {len(found)}\n\n{table(found)}")
        write_text(options.output, "\n\n".join(parts) + "\n")


def table(found: list[dict[str, tuple[float, ...]]]) -> str:
    """A row for each kind of labels."""
    lines = [
        "| labels of people | new alone | old believed | old with a noise rate | its gain | rate, estimated (true) |",
        "|---|---:|---:|---:|---:|---:|",
    ]
    for labels in found[0]:
        ce, believed, aware, rate, true = zip(*(one[labels] for one in found), strict=True)
        gain = [a - b for a, b in zip(aware, believed, strict=True)]
        error = statistics.stdev(gain) / len(gain) ** 0.5
        cells = [in_percent(ce), in_percent(believed), in_percent(aware), f"{statistics.mean(gain):+.2f} ± {error:.2f}"]
        lines.append(f"| {labels} | {' | '.join(cells)} | {statistics.mean(rate):.2f} ({statistics.mean(true):.2f}) |")
    return "\n".join(lines)


def measure(name: str, seed: int, options: argparse.Namespace) -> dict[str, tuple[float, ...]]:
    """For each kind of labels: three accuracies, the estimated and the true rate of wrong old labels."""
    cell = experiment(name, {"budget": "features", "strategy": "scratch", "method": "lpl", "seed": seed}, ROOTS)
    periods = periods_of(cell, options.data)
    seen = embed_stage(plan(cell, periods).stages[-1], periods, Store(options.runs), Machine("cpu", 0))
    old_version, newest = periods.versions
    part = periods.annotated(1, "label-new")
    new, old = part.newest.indices, torch.cat([each.indices for each in part.history])
    every = torch.arange(len(periods.pool))
    clean = {version: column.read(every).long() for version, column in periods.pool.labels.items()}
    people = read_people(options.labels, clean, (old_version, newest))
    x_new, x_old = (seen.pool.inputs.read(indices).sqrt() for indices in (new, old))
    tests = torch.arange(len(seen.test))
    x, y = seen.test.inputs.read(tests).sqrt(), seen.test.labels[newest].read(tests).long()
    parent = torch.zeros(100, dtype=torch.int64)
    parent[clean[newest]] = clean[old_version]
    found = {}
    for kind, fine, coarse in (
        ("none", clean, clean),
        ("old", clean, people),
        ("new", people, clean),
        ("old and new", people, people),
    ):
        y_new, y_old = fine[newest][new], coarse[old_version][old]
        certain, inside = rows(y_new, torch.eye(100)), (parent == torch.arange(20).unsqueeze(1)).float()
        alone = gaussian_head(x_new, certain)
        rate = estimated_rate(x_new, y_new, x_old, y_old, parent)
        features = torch.cat([x_new, x_old])
        believed, aware = (
            gaussian_head(features, torch.cat([certain, rows(y_old, inside * (1 - e) + (1 - inside) * e / 19)]))
            for e in (0.0, rate)
        )
        true = float((y_old != clean[old_version][old]).double().mean())
        found[kind] = (*(accuracy(head, x, y) for head in (alone, believed, aware)), rate, true)
    return found


def read_people(path: Path, clean: Labels, versions: tuple[str, str]) -> Labels:
    """The labels of people, in the numbers that the benchmark has."""
    content = np.load(path)
    found = {}
    for version, name in zip(versions, ("coarse_label", "label"), strict=True):
        theirs, given = (torch.from_numpy(content[f"{kind}_{name}"]).long() for kind in ("clean", "noisy"))
        number = torch.zeros(int(theirs.max()) + 1, dtype=torch.int64)
        number[theirs] = clean[version]
        assert torch.equal(number[theirs], clean[version])  # both in the official order
        found[version] = number[given]
    return found


def rows(labels: Tensor, likelihoods: Tensor) -> Tensor:
    """Evidence of labels, given the likelihood (labels, classes) of each label under each class."""
    return likelihoods[labels].log()


def estimated_rate(x_new: Tensor, y_new: Tensor, x_old: Tensor, y_old: Tensor, parent: Tensor) -> float:
    """Share of wrong old labels, from what a head of the new labels says of them and of held-out new samples."""
    fold, right = stratified_folds(y_new), torch.zeros(len(y_new))
    for number in range(FOLDS):
        held_out = fold == number
        answers = predict(gaussian_head(x_new[~held_out], rows(y_new[~held_out], torch.eye(100))), x_new[held_out])
        right[held_out] = (parent[answers] == parent[y_new[held_out]]).float()
    a = float(right.mean())
    b = float((parent[predict(gaussian_head(x_new, rows(y_new, torch.eye(100))), x_old)] == y_old).float().mean())
    return min(0.9, max(0.0, (a - b) / (a - (1 - a) / 19)))


def predict(head: tuple[Tensor, Tensor], x: Tensor) -> Tensor:
    """The likeliest classes."""
    return (x @ head[0].T + head[1]).argmax(dim=1)


def accuracy(head: tuple[Tensor, Tensor], x: Tensor, labels: Tensor) -> float:
    """Mean per-class accuracy in %."""
    right = (predict(head, x) == labels).double()
    return 100 * float(torch.stack([right[labels == label].mean() for label in labels.unique()]).mean())


def in_percent(values: tuple[float, ...]) -> str:
    """Mean ± standard deviation."""
    return with_spread(f"{statistics.mean(values):.1f}", statistics.stdev(values))


if __name__ == "__main__":
    main()
