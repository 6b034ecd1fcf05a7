"""Which part of the gap on CUB old labels close: mistakes between families, or within them.

    .venv/bin/python benchmarks/cub_gap.py --data DIR

Linear heads trained on new labels only (`ce`), on new and old labels (`lpl`), and on the species of all samples
(all-fine), scored on the validation samples of all periods; test samples are never read. Accuracy of species, of
families, and of species given the family, in %, mean and standard deviation over seeds.
"""

import argparse
import statistics
from pathlib import Path

import numpy as np
import torch

from leco import LecoClassifier
from leco.data.benchmarks import load
from leco.data.benchmarks.benchmark import Benchmark


def main() -> None:
    """Measure each seed, and print one line per head."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=Path("data"))
    parser.add_argument("--seeds", type=int, nargs="+", default=range(20, 25))
    options = parser.parse_args()
    cub = load("cub-leco", options.data)
    found = [measure(cub, seed) for seed in options.seeds]
    print(f"{'':10} {'species':>12} {'family':>12} {'given family':>12}   n = {len(found)}")
    for name in found[0]:
        columns = zip(*(one[name] for one in found), strict=True)
        print(f"{name:10} " + " ".join(f"{in_percent(column):>12}" for column in columns))


def measure(cub: Benchmark, seed: int) -> dict[str, tuple[float, float, float]]:
    """Three accuracies of each head, for one seed."""
    split, newest, species = cub.split(seed), cub.ontology.newest.name, cub.strata
    learned = torch.cat([period.train for period in split.periods])
    x, sizes = cub.pool.inputs.read(learned).numpy(), [len(period.train) for period in split.periods]
    given = np.repeat([period.version for period in split.periods], sizes)
    old = np.concatenate([cub.ontology.translate(species[p.train], newest, p.version).numpy() for p in split.periods])
    held_out = torch.cat([period.validation for period in split.periods])
    inputs, true = cub.pool.inputs.read(held_out).numpy(), species[held_out]
    family_of = cub.ontology.translate(torch.arange(len(cub.ontology.newest)), newest, "family")
    found = {}
    for name, method, labels, versions in (
        ("ce", "ce", old, given),
        ("lpl", "lpl", old, given),
        ("all-fine", "ce", species[learned].numpy(), newest),
    ):
        head = LecoClassifier(cub.ontology, method=method, standardise=False, random_state=seed)
        probs = torch.from_numpy(head.fit(x, labels, versions).predict_proba(inputs))
        families = torch.from_numpy(head.predict(inputs, "family"))
        inside = probs * (family_of == family_of[true][:, None])
        answers = (probs.argmax(dim=1) == true, families == family_of[true], inside.argmax(dim=1) == true)
        found[name] = tuple(right.float().mean().item() for right in answers)
    return found


def in_percent(values: tuple[float, ...]) -> str:
    """Format the mean and, if there are several values, the standard deviation."""
    spread = f" ± {100 * statistics.stdev(values):.1f}" if len(values) > 1 else ""
    return f"{100 * statistics.mean(values):.1f}{spread}"


if __name__ == "__main__":
    main()
