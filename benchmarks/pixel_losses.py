"""Time and peak memory of `label_nll` on pixels, compared with `F.cross_entropy`, forward and backward.

    .venv/bin/python benchmarks/pixel_losses.py                          # 8 x 116 x 720 x 720: 8 GB, a few minutes
    .venv/bin/python benchmarks/pixel_losses.py --shape 2 116 200 200    # seconds
    .venv/bin/python benchmarks/pixel_losses.py --device cuda

Labels differ from pixel to pixel, the worst case for caches. They are of the newest version; of one with 66 classes,
ten of which were split into six each, as in Mapillary Vistas; of both, with a tenth of the pixels void; or of classes
that were all redrawn (`shares`). Cross-entropy always gets newest labels. Times are medians of alternating turns, so
that other load affects both; peaks are in addition to the imports, logits included, each in a separate process.
"""

import argparse
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

from leco import Evidence, Ontology
from leco.methods import label_nll
from rows import row

CASES = ("newest", "coarse", "mixed", "shares")
Loss = Callable[[Tensor], Tensor]


def street(classes: int, shares: bool) -> Evidence:
    """Evidence where ten classes of v1 were each split into six, or where all classes were redrawn."""
    newest = [f"new-{number}" for number in range(classes)]
    if shares:
        v1 = [f"old-{number}" for number in range(6)]
        v2 = {c: {"from": {v1[i % 6]: 0.6, v1[(i + 1) % 6]: 0.3, v1[(i + 3) % 6]: 0.1}} for i, c in enumerate(newest)}
    else:
        split = min(10, classes // 6)
        parents = [i // 6 if i < 6 * split else i - 5 * split for i in range(classes)]
        v1 = [f"old-{number}" for number in range(parents[-1] + 1)]
        v2 = {c: {"from": v1[parent]} for c, parent in zip(newest, parents, strict=True)}
    versions = [{"name": "v1", "classes": v1}, {"name": "v2", "classes": v2}]
    return Ontology.from_dict({"name": "street", "versions": versions}).evidence()


def losses(case: str, shape: tuple[int, ...], device: str) -> tuple[Loss, Loss]:
    """Return their loss and ours."""
    evidence = street(shape[1], shares=case == "shares").to(device)
    pixels = (shape[0], *shape[2:])
    fine, coarse = (torch.randint(len(evidence.ontology[v]), pixels, device=device) for v in ("v2", "v1"))
    kind = torch.rand(pixels, device=device)  # decides the version of the label
    rows = evidence.ids(coarse, "v1")
    if case == "newest":
        rows = evidence.ids(fine, "v2")
    if case == "mixed":
        fine[kind < 0.1] = -1
        rows = torch.where(kind < 0.55, evidence.ids(fine, "v2"), rows)
    return (
        lambda logits: F.cross_entropy(logits, fine, ignore_index=-1),
        lambda logits: label_nll(logits, rows, evidence, reduction="mean"),
    )


def turn(loss: Loss, logits: Tensor) -> float:
    """Seconds of one forward and backward pass."""
    logits.grad = None
    wait = torch.cuda.synchronize if logits.is_cuda else lambda: None
    wait()
    start = time.perf_counter()
    loss(logits).backward()
    wait()
    return time.perf_counter() - start


def peak_mb(device: str) -> float:
    """Peak memory so far, in MB."""
    if device == "cuda":
        return torch.cuda.max_memory_allocated() / 1e6
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / (1e6 if sys.platform == "darwin" else 1e3)


def measure_peak(case: str, ours: bool, shape: tuple[int, ...], device: str) -> float:
    """Peak memory of one forward and backward pass, in MB; requires a fresh process."""
    turn(
        losses(case, (1, *shape[1:2], 8, 8), device)[ours],
        torch.randn(1, shape[1], 8, 8, device=device).requires_grad_(),
    )
    loss = losses(case, shape, device)[ours]
    before = peak_mb(device)
    turn(loss, torch.randn(shape, device=device).requires_grad_())
    return peak_mb(device) - before


def main() -> None:
    """Measure memory, then time, for each case."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shape", type=int, nargs=4, default=(8, 116, 720, 720), metavar=("N", "C", "H", "W"))
    parser.add_argument("--cases", nargs="+", default=CASES, choices=CASES)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    parser.add_argument("--peak-of", choices=["theirs", "ours"], help=argparse.SUPPRESS)  # in the child process
    options = parser.parse_args()
    shape, device = tuple(options.shape), options.device
    if options.peak_of:
        print(measure_peak(options.cases[0], options.peak_of == "ours", shape, device))
        return
    print(f"{' x '.join(map(str, shape))} float32 logits on {device}, {torch.get_num_threads()} threads")
    sizes = ["--shape", *map(str, shape), "--device", device]
    peaks = {}
    for case in options.cases:  # first, while this process is small, since children inherit its peak
        for side in ("theirs", "ours"):
            command = [sys.executable, __file__, *sizes, "--cases", case, "--peak-of", side]
            peaks[case, side] = float(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    logits = torch.randn(shape, device=device).requires_grad_()
    times, memory = [], []
    for case in options.cases:
        theirs, ours = losses(case, shape, device)
        turn(theirs, logits), turn(ours, logits)  # warm-up
        turns = [(turn(theirs, logits), turn(ours, logits)) for _ in range(options.repeats)]
        ratios = [b / a for a, b in turns]
        seconds = [statistics.median(side) for side in zip(*turns, strict=True)]
        print(
            f"{case:>7}: cross_entropy {seconds[0]:.3f} s, {peaks[case, 'theirs']:,.0f} MB; "
            f"label_nll {seconds[1]:.3f} s, {peaks[case, 'ours']:,.0f} MB; "
            f"ratio of times {statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f}), "
            f"of peaks {peaks[case, 'ours'] / peaks[case, 'theirs']:.2f}"
        )
        times.append(statistics.median(ratios))
        memory.append(peaks[case, "ours"] / peaks[case, "theirs"])
    row(
        "classes",
        f"pixel losses relative to `F.cross_entropy`, {' × '.join(map(str, shape))}, {len(times)} kinds of labels",
        f"time {min(times):.2f} to {max(times):.2f}, peak memory {min(memory):.2f} to {max(memory):.2f}",
        goal="1.5, 1.25",
        limit="memory bandwidth",
    )


if __name__ == "__main__":
    main()
