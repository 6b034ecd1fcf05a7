"""Adjust the logits of stored segmentation models of the last period, at several strengths.

    python examples/adjusted_scores.py runs camvid-leco --data DIR

As `training.finish.adjust` does it, but after training: frames are predicted once for all strengths. For each model,
the strength that is best on validation is tested. Prints one line per model, then means over seeds.
"""

import statistics
from collections.abc import Iterator

import torch
from stored_models import arguments, stored_models
from torch import Tensor, nn

from leco.data.samples import Samples
from leco.evaluation import confusion, scores
from leco.evaluation.evaluate import Judge
from leco.experiments.run import newest_counts
from leco.training.finish import log_frequencies

STRENGTHS = (0, 0.1, 0.2, 0.3, 0.4, 0.5)
METRICS = ("miou", "macc")
Scored = dict[tuple[float, str], float]  # (strength, metric) -> percent


@torch.no_grad()
def main() -> None:
    """Find the stages, predict with each, and print the scores."""
    options = arguments(__doc__).parse_args()
    gains: dict[tuple[str, str], list[float]] = {}
    for name, stage, judge, network in stored_models(options):
        periods = judge.periods
        counts = newest_counts(stage, periods)
        validation = score(judge, network, periods.pool, judge.held_out.indices, counts)
        test = score(judge, network, periods.test, periods.tested(stage.period), counts)
        for metric, strength, before, after in chosen(validation, test):
            print(f"seed {stage.seed} {name}: test {metric} {before:.1f}, with {strength} {after:.1f}", flush=True)
            gains.setdefault((name, metric), []).append(after - before)
    for (name, metric), values in gains.items():
        error = statistics.stdev(values) / len(values) ** 0.5 if len(values) > 1 else 0.0
        print(f"{name}: {metric} {statistics.mean(values):+.1f} ± {error:.1f} (standard error, n = {len(values)})")


def score(judge: Judge, network: nn.Module, samples: Samples, indices: Tensor, counts: Tensor) -> Scored:
    """The scores of a model at every strength."""
    newest = judge.periods.until(judge.period).newest
    frequencies = log_frequencies(counts)[:, None, None]
    matrices = {strength: torch.zeros(len(newest), len(newest) + 1).long() for strength in STRENGTHS}
    for ids in indices.split(8):  # type: ignore[no-untyped-call]
        log_probs = judge.predict(network, samples.inputs.read(ids), ids, samples).log()
        true = samples.labels[newest.name].read(ids).long()
        for strength, matrix in matrices.items():
            matrix += confusion((log_probs - strength * frequencies).argmax(dim=1), true, len(newest))
    found: Scored = {}
    for strength, matrix in matrices.items():
        s = scores(matrix, newest.handles).of(judge.periods.evaluated)
        found |= {(strength, "miou"): 100 * s.miou, (strength, "macc"): 100 * s.macc}
    return found


def chosen(validation: Scored, test: Scored) -> Iterator[tuple[str, float, float, float]]:
    """For each metric, the strength that is best on validation, and the test scores without and with it."""
    for metric in METRICS:
        best = max(STRENGTHS, key=lambda strength: validation[strength, metric])
        yield metric, best, test[0, metric], test[best, metric]


if __name__ == "__main__":
    main()
