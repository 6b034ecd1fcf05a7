"""Overhead of a step over the forward and backward passes that its method needs.

    .venv/bin/python benchmarks/step_overhead.py                          # all 39 methods, WRN-28-2, 64 + 64 images
    .venv/bin/python benchmarks/step_overhead.py --methods ce,lpl+fixmatch/cond --model wrn-16-1
    .venv/bin/python benchmarks/step_overhead.py --device cuda

The bare side makes the same forward and backward passes on prepared tensors: of the new images and, if the method uses
them, of the old ones, and the passes without gradient of a teacher or of the weak view. Ours also draws the samples,
makes their views, computes all losses, and updates and averages the weights. Both are timed in turns, so that other
load affects both; the ratio is that of the medians.
"""

import argparse
import statistics
import time

import torch
from torch import nn

from leco.methods.method import ALL_METHODS, Method
from leco.methods.terms import HISTORY, NEW, Request
from leco.training.loop import Training
from made_up import HALF, make_training, ontology, samples
from rows import row

CLASSES, SAMPLES = 100, 2_000


class Bare:
    """The passes of a step, and nothing else."""

    def __init__(self, training: Training) -> None:
        wanted = dict.fromkeys(request for term in training.job.terms for request in term.needs)
        self.requests = list(wanted)
        self.networks: dict[str, nn.Module] = {"student": training.network}
        if training.job.teacher is not None:
            self.networks["teacher"] = training.job.teacher
        self.count = HALF if any(request.part == "history" for request in wanted) else 2 * HALF
        self.images = torch.randn(self.count, 3, 32, 32, device=training.job.fabric.device)

    def step(self) -> None:
        """Forward everything, and backward where there is a gradient."""
        total = torch.zeros((), device=self.images.device)
        for request in self.requests:
            total = total + self._forward(request)
        total.backward()  # type: ignore[no-untyped-call]
        self.networks["student"].zero_grad(set_to_none=True)

    def _forward(self, request: Request) -> torch.Tensor:
        with torch.set_grad_enabled(request in (NEW, HISTORY)):
            outputs = self.networks[request.network](self.images)
            return torch.stack([logits.mean() for logits in outputs.values()]).sum()


def ratio(method: Method, model: str, device: str, repeats: int) -> tuple[float, float]:
    """Median time of our step and of the bare one, in seconds."""
    tree = ontology(CLASSES)
    training = make_training(method, model, samples(tree, SAMPLES), tree, device=device)
    bare, steps = Bare(training), training.run()
    wait = torch.accelerator.synchronize if training.job.fabric.device.type != "cpu" else lambda: None
    ours, theirs = [], []
    for _ in range(repeats + 1):
        started = time.perf_counter()
        next(steps)
        wait()
        middle = time.perf_counter()
        bare.step()
        wait()
        ours.append(middle - started)
        theirs.append(time.perf_counter() - middle)
    return statistics.median(ours[1:]), statistics.median(theirs[1:])


def main() -> None:
    """Print one line per method."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--methods", help="such as ce,lpl; all 39 by default")
    parser.add_argument("--model", default="wrn-28-2")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    methods = [Method.parse(name) for name in options.methods.split(",")] if options.methods else ALL_METHODS
    print(f"{options.model}, {HALF} + {HALF} images, {CLASSES} classes, {options.device}, {options.threads} thread(s)")
    found, steps = [], {}
    for method in methods:
        ours, bare = ratio(method, options.model, options.device, options.repeats)
        found.append(ours / bare)
        steps[str(method)] = ours
        print(
            f"  {method!s:22} {ours * 1e3:8.0f} ms per step, bare {bare * 1e3:8.0f} ms, ratio {ours / bare:.3f}",
            flush=True,
        )
    row(
        "steps",
        f"time of a step over the bare passes that its method needs; {options.model}, {len(found)} methods",
        f"at most {max(found):.2f}, median {statistics.median(found):.2f}",
        goal="1.10",
        limit="draws, views, losses, SGD and averaging",
    )
    with_pass = {"teacher": "lpl+st-hard/cond", "weak view": "lpl+fixmatch/cond"}
    for what, name in with_pass.items():
        if {name, "lpl"} <= steps.keys():
            row(
                "steps",
                f"share of a step of `{name}` for its {what}",
                f"{1 - steps['lpl'] / steps[name]:.0%}",
                limit="a pass without gradient; views are new in every step",
            )


if __name__ == "__main__":
    main()
