"""What logit adjustment makes of stored segmentation models of the last period, at several strengths.

    .venv/bin/python benchmarks/adjust.py runs camvid-leco --data DIR

As `training.adjust` does it, but after the fact: nothing is trained, and frames are predicted once for all strengths.
For each model, the strength that is best on validation is tested. One line a model, then means over seeds.
"""

import argparse
import json
import statistics
from collections.abc import Iterator
from pathlib import Path

import torch
from safetensors.torch import load_file
from torch import Tensor, nn

from leco.data.samples import Samples
from leco.evaluation import confusion, scores
from leco.experiments.config import experiment
from leco.experiments.judging import Judge
from leco.experiments.material import make_material
from leco.experiments.networks import build_network
from leco.experiments.stages import plan
from leco.training.adjusted import class_counts
from leco.training.devices import make_fabric

STRENGTHS = (0, 0.1, 0.2, 0.3, 0.4, 0.5)
METRICS = ("miou", "macc")
Scored = dict[tuple[float, str], float]  # (strength, metric) -> percent


@torch.no_grad()
def main() -> None:
    """Find the stages, predict with each, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", type=Path)
    parser.add_argument("benchmark")
    parser.add_argument("--data", type=Path, default=Path("data"))
    parser.add_argument("--budget", default="small")
    options = parser.parse_args()
    gains: dict[tuple[str, str], list[float]] = {}
    for path in sorted((options.runs / "stages").glob("*/config.json")):
        config = json.loads(path.read_text())
        if not config["period"] or not config["material"].startswith(f"{options.benchmark} "):
            continue
        changes = {name: config[name] for name in ("method", "strategy", "annotation", "head_start", "seed")}
        wanted = experiment(options.benchmark, changes | {"budget": options.budget}, {})
        material = make_material(wanted, options.data)
        stage = plan(wanted, material).periods[-1][0]
        annotated = material.annotated(stage.period, stage.annotation)
        judge = Judge(material, stage.period, annotated.validation, make_fabric("cpu"), stage.training.window)
        network = build_network(stage, material, pretrained=False)
        network.load_state_dict(load_file(path.with_name("model.safetensors")))
        newest = material.until(stage.period).newest
        counts = class_counts(material.pool.labels[newest.name], annotated.newest.indices, len(newest))
        found = [
            score(judge, network.eval(), samples, indices, counts)
            for samples, indices in (
                (material.pool, annotated.validation.indices),
                (material.test, material.tested(stage.period)),
            )
        ]
        name = stage.annotation if stage.annotation != "label-new" else str(stage.method)
        for metric, strength, before, after in chosen(*found):
            print(f"seed {stage.seed} {name}: test {metric} {before:.1f}, with {strength} {after:.1f}", flush=True)
            gains.setdefault((name, metric), []).append(after - before)
    for (name, metric), values in gains.items():
        error = statistics.stdev(values) / len(values) ** 0.5 if len(values) > 1 else 0.0
        print(f"{name}: {metric} {statistics.mean(values):+.1f} ± {error:.1f} (standard error, n = {len(values)})")


def score(judge: Judge, network: nn.Module, samples: Samples, indices: Tensor, counts: Tensor) -> Scored:
    """The scores of a model at every strength."""
    newest = judge.material.until(judge.period).newest
    log_frequency = counts.clamp(min=int(counts[counts > 0].min())).log()[:, None, None]
    matrices = {strength: torch.zeros(len(newest), len(newest) + 1).long() for strength in STRENGTHS}
    for ids in indices.split(8):  # type: ignore[no-untyped-call]
        log_probs = judge.predict(network, samples.inputs.read(ids), ids, samples).log()
        true = samples.labels[newest.name].read(ids).long()
        for strength, matrix in matrices.items():
            matrix += confusion((log_probs - strength * log_frequency).argmax(dim=1), true, len(newest))
    found: Scored = {}
    for strength, matrix in matrices.items():
        s = scores(matrix, newest.handles).of(judge.material.evaluated)
        found |= {(strength, "miou"): 100 * s.miou, (strength, "macc"): 100 * s.macc}
    return found


def chosen(validation: Scored, test: Scored) -> Iterator[tuple[str, float, float, float]]:
    """For each metric, the strength that is best on validation, and what is tested without and with it."""
    for metric in METRICS:
        best = max(STRENGTHS, key=lambda strength: validation[strength, metric])
        yield metric, best, test[0, metric], test[best, metric]


if __name__ == "__main__":
    main()
