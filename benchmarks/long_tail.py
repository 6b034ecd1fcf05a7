"""Gain of logit adjustment (`training.finish.adjust`) on imbalanced classes: CUB with a long tail.

    .venv/bin/python benchmarks/long_tail.py --data DIR --work FOLDER

The new labels of `cub-leco` are subsampled, from 8 of the most frequent species to one of the rarest; history and its
old labels are unchanged. They are written as own data, and `leco grid` trains on them. Tested on the validation samples
of all periods: the test set is never read. Mean per-class accuracy in %, mean and standard deviation over seeds.
"""

import argparse
import csv
import json
import statistics
import subprocess
import sys
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from leco.data.benchmarks import load
from leco.data.benchmarks.benchmark import Benchmark

METHODS = ("ce", "lpl", "lpl+st-hard/cond", "lpl+st-soft/cond")
STRENGTHS = (0, 0.5, 1)


def main() -> None:
    """Write a project for each seed, train it, and print one line per method."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=Path("data"))
    parser.add_argument("--work", type=Path, required=True, help="an empty folder")
    parser.add_argument("--seeds", type=int, nargs="+", default=range(20, 23), help="at least two")
    options = parser.parse_args()
    cub = load("cub-leco", options.data)
    found: dict[tuple[str, float], dict[int, float]] = {}
    for seed in options.seeds:
        project = options.work / str(seed)
        write_project(cub, seed, project)
        for strength in STRENGTHS:
            runs = project / f"runs-{strength}"
            given = [
                "--methods",
                ",".join(METHODS),
                "--seeds",
                str(seed),
                "--set",
                f"training.finish.adjust={strength}",
            ]
            command = [Path(sys.executable).with_name("leco"), "grid", "experiment.yaml", *given, "--runs", runs.name]
            subprocess.run(command, cwd=project, check=True)
            for path in runs.glob("stages/*/result.json"):
                config, result = (
                    json.loads(path.with_name(f"{name}.json").read_text()) for name in ("config", "result")
                )
                if config["version"] == "species":
                    found.setdefault((config["method"], strength), {})[seed] = 100 * result["test"]["species"]["macc"]
    print(f"mAcc, n = {len(options.seeds)}   " + "  ".join(f"adjust {strength:<6}" for strength in STRENGTHS))
    for method in METHODS:
        cells = [list(found[method, strength].values()) for strength in STRENGTHS]
        print(f"{method:18} " + "  ".join(f"{statistics.mean(c):5.1f} ± {statistics.stdev(c):.1f}   " for c in cells))


def write_project(cub: Benchmark, seed: int, folder: Path) -> None:
    """Write ontology, manifest, features and experiment."""
    (folder / "features").mkdir(parents=True)
    (folder / "ontology.json").write_text(json.dumps(cub.ontology.to_dict()))
    data = "{manifest: labels.csv, ontology: ontology.json}"
    (folder / "experiment.yaml").write_text(
        f"data: {data}\ntraining: {{batches: {{steps: 250}}}}\n"
    )  # as cub-leco's small budget
    split, newest = cub.split(seed), cub.ontology.newest.name
    learned = {vector(cub, index).tobytes() for period in split.periods for index in period.train.tolist()}
    with (folder / "labels.csv").open("w", newline="") as file:
        table = csv.writer(file)
        table.writerow(["features", "version", "label", "split"])
        for period in split.periods:
            kept = thinned(period.train, cub.strata, seed) if period.version == newest else period.train
            version = cub.ontology[period.version]
            for part, indices, of in (("train", kept, version), ("test", period.validation, cub.ontology.newest)):
                labels = cub.ontology.translate(cub.strata[indices], newest, of.name)
                for index, label in zip(indices.tolist(), labels.tolist(), strict=True):
                    if part == "test" and vector(cub, index).tobytes() in learned:
                        continue  # a few pictures are duplicates, and training samples must not be tested on
                    np.save(folder / "features" / f"{index}.npy", vector(cub, index))
                    table.writerow([f"features/{index}.npy", of.name, of.handles[label], part])


def vector(cub: Benchmark, index: int) -> NDArray[np.float32]:
    """Features of a sample."""
    features: NDArray[np.float32] = cub.pool.inputs.read(torch.tensor([index]))[0].numpy()
    return features


def thinned(indices: Tensor, species: Tensor, seed: int) -> Tensor:
    """Keep from 8 samples of the first species, in a random order, to one of the last."""
    draws = torch.Generator().manual_seed(seed)
    shuffled = indices[torch.randperm(len(indices), generator=draws)]
    rank = torch.randperm(int(species.max()) + 1, generator=draws) / species.max()
    most = (8 * 0.125**rank).round().long()
    return torch.cat([shuffled[species[shuffled] == one][:number] for one, number in enumerate(most.tolist())])


if __name__ == "__main__":
    main()
