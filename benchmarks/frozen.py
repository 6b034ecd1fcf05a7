"""FreezePrev with cached features, compared with forwarding the frozen backbone at every step.

    .venv/bin/python benchmarks/frozen.py                        # WRN-28-2, the paper's 64 + 64 images per step

A run has two costs: the bank of features, once, and the steps. Printed are the time of a step of each kind, measured in
turns; the time of the bank, extrapolated from two views; and from these the speed-up of a run of `--steps` steps.
"""

import argparse
import statistics
import time
from dataclasses import replace

import torch

from leco.methods.method import Method
from leco.settings import TransferSettings
from leco.training.frozen import drawn_in, make_bank, number_of_views, on_features
from leco.training.loop import Training
from made_up import make_job, network, ontology, samples
from rows import row

CLASSES, SAMPLES = 100, 2_000
TIMED = 200  # steps of the run that is timed


def main() -> None:
    """Time both sides in turns."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="wrn-28-2")
    parser.add_argument("--method", default="lpl+st-hard/cond")
    parser.add_argument("--steps", type=int, nargs="+", default=[600, 160_000], help="of the whole run")
    parser.add_argument("--draws-per-view", type=int, default=4, help="as training.transfer.draws_per_view")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    tree, method = ontology(CLASSES), Method.parse(options.method)
    pool = samples(tree, SAMPLES)
    for steps in options.steps:
        net = network(options.model, tree, method.coarse)
        job = replace(make_job(method, pool, tree, net if method.needs_teacher else None, steps), strategy="freeze")
        transfer = TransferSettings(draws_per_view=options.draws_per_view)
        views, _ = number_of_views(job, net.heads[0].in_features, transfer)  # type: ignore[arg-type]
        banked = on_features(replace(job, steps=make_job(method, pool, tree, None, TIMED).steps), net, transfer)
        assert banked is not None
        started = time.perf_counter()
        for kind, indices in drawn_in(job).items():
            make_bank(job, net.backbone, kind, indices, 2).enter(0)
        bank = (time.perf_counter() - started) / 2 * views
        fast, slow = Training(*banked, None).run(), Training(job, net, None).run()
        quick, plain = [], []
        for _ in range(options.repeats + 1):
            quick.append(_seconds(fast, 20))
            plain.append(_seconds(slow, 1))
        one, other = statistics.median(quick[1:]), statistics.median(plain[1:])
        if steps == options.steps[0]:
            row(
                "freezing",
                f"factor of a step on a bank of features; {options.model}, `{method}`, {SAMPLES:,} samples",
                f"{other / one:.0f} ({one * 1e3:.1f} and {other * 1e3:.0f} ms)",
                goal="10",
                limit="overhead of small operations",
            )
        row(
            "freezing",
            f"factor of a whole run of {steps:,} steps, {views} views a sample",
            f"{other * steps / (bank + one * steps):.1f} (bank {bank:.0f} s)",
            goal="10",
            limit="passes that fill the bank",
        )


def _seconds(steps: object, count: int) -> float:
    started = time.perf_counter()
    for _ in range(count):
        next(steps)  # type: ignore[call-overload]
    return (time.perf_counter() - started) / count


if __name__ == "__main__":
    main()
