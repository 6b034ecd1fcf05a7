"""Heads and losses at many newest classes: a method against plain cross-entropy of the same head, forward and backward.

    .venv/bin/python benchmarks/many_classes.py                              # 10,000 and 100,000 classes
    .venv/bin/python benchmarks/many_classes.py --classes 1000 --profile     # and where the time goes
    .venv/bin/python benchmarks/many_classes.py --device cuda

Both sides see 64 new and 64 old samples with 512 features each. Cross-entropy gets a newest label of all of them. The
method has what it has in training: newest labels of the new samples, labels of the older version of the old ones, and a
teacher's head for these. `losses` leaves out the pass of the teacher's head, which cross-entropy has no counterpart of.
Sides take turns in one process; a ratio is the median of those of the turns. Processor time counts, so that other load
does not; on a GPU, the time until it is done. Peaks of memory are in addition to the weights, each in its own process.
"""

import argparse
import ctypes
import gc
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from leco import Ontology
from leco.data.batches import Batch, Step
from leco.methods import Method
from leco.methods.terms import combine, forward_once, terms
from leco.models import Network
from rows import row

HALF, FEATURES, SPLIT = 64, 512, 10


def ontology(classes: int) -> Ontology:
    """Every class of v1 is split into ten."""
    rows = [(f"old-{number // SPLIT}", f"new-{number}") for number in range(classes)]
    return Ontology.from_taxonomy("many", ["v1", "v2"], rows)


def sides(method: str, classes: int, device: str) -> dict[str, Callable[[], None]]:
    """One forward and backward pass of each side."""
    torch.manual_seed(0)
    history = ontology(classes)
    evidence = history.evidence()
    fine = torch.randint(classes, (2, HALF))
    coarse = fine // SPLIT
    none = torch.full((HALF,), -1)
    ids, nothing = torch.arange(HALF), torch.zeros(HALF, 0)
    new = Batch(ids, nothing, evidence.ids(fine[0], "v2"), {"v1": coarse[0], "v2": fine[0]})
    old = Batch(ids, nothing, evidence.ids(coarse[1], "v1"), {"v1": coarse[1], "v2": none}, complete=True)
    step, evidence = Step(new, old).moved(lambda tensor: tensor.to(device)), evidence.to(device)
    labels = fine.flatten().to(device)
    features = torch.randn(2, HALF, FEATURES, device=device)
    backbone = nn.Identity()
    backbone.num_features = FEATURES  # type: ignore[assignment]
    head, teacher = (Network(backbone, [history.newest]).to(device) for _ in range(2))
    summands = terms(Method.parse(method))
    views = {("new", "strong"): features[0], ("history", "strong"): features[1]}
    with torch.no_grad():
        answers = teacher(features[1])

    def theirs() -> None:
        F.cross_entropy(head(features.flatten(0, 1))["v2"], labels).backward()
        head.zero_grad(set_to_none=True)

    def step_of(guess: Callable[[Tensor], dict[str, Tensor]]) -> None:
        outputs = forward_once({"student": head, "teacher": guess}, views, summands)
        loss = combine({term.name: term.loss(outputs, step, evidence) for term in summands}).loss
        del outputs  # as in training
        loss.backward()
        head.zero_grad(set_to_none=True)

    return {"cross-entropy": theirs, "losses": lambda: step_of(lambda _: answers), "whole": lambda: step_of(teacher)}


def seconds(turn: Callable[[], None], device: str) -> float:
    """Time of one turn: of the processor, or until a GPU is done."""
    if device == "cpu":
        started = time.process_time()
        turn()
        return time.process_time() - started
    torch.cuda.synchronize()
    started = time.perf_counter()
    turn()
    torch.cuda.synchronize()
    return time.perf_counter() - started


def peak_mb(side: str, method: str, classes: int, device: str) -> float:
    """Peak memory of a turn, in MB; requires a fresh process."""
    turn = sides(method, classes, device)[side]
    if device == "cuda":
        turn()
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        turn()
        return (torch.cuda.max_memory_allocated() - before) / 1e6
    turn(), gc.collect(), ctypes.CDLL(None).malloc_trim(0)
    Path("/proc/self/clear_refs").write_text("5")  # forget the peak so far (Linux)
    before = status("VmRSS")
    turn()
    return (status("VmHWM") - before) / 1e3


def status(name: str) -> int:
    """A number of kB that Linux knows about this process."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(name))


def main() -> None:
    """Print times, peaks and ratios for each number of classes."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--classes", type=int, nargs="+", default=[10_000, 100_000])
    parser.add_argument("--method", default="lpl+st-soft/cond")
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    parser.add_argument("--profile", action="store_true")
    parser.add_argument("--peak-of", help=argparse.SUPPRESS)  # in the child process
    options = parser.parse_args()
    if options.device == "cpu":
        torch.set_num_threads(1)
    if options.peak_of:
        print(peak_mb(options.peak_of, options.method, options.classes[0], options.device))
        return
    print(f"{options.method}, {HALF} + {HALF} samples, {FEATURES} features, {options.device}")
    for classes in options.classes:
        turns = sides(options.method, classes, options.device)
        peaks = {}
        for side in turns:
            command = [sys.executable, __file__, "--classes", str(classes), "--method", options.method]
            command += ["--device", options.device, "--peak-of", side]
            peaks[side] = float(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
        for turn in turns.values():
            turn()
        found = [{side: seconds(turn, options.device) for side, turn in turns.items()} for _ in range(options.repeats)]
        print(f"{classes:,} classes")
        for side in turns:
            ratio = statistics.median(times[side] / times["cross-entropy"] for times in found)
            middle = statistics.median(times[side] for times in found)
            share = peaks[side] / peaks["cross-entropy"]
            print(
                f"  {side:13} {middle * 1e3:8.1f} ms, ratio {ratio:.2f}; peak {peaks[side]:8.1f} MB, ratio {share:.2f}"
            )
            if side != "cross-entropy":
                extra = " and a pass of the teacher's head" if side == "whole" else ""
                row(
                    "classes",
                    f"losses{extra} of `{options.method}` over cross-entropy of the same head, {classes:,} classes",
                    f"time {ratio:.2f} ({middle * 1e3:.0f} ms), peak memory {share:.2f}",
                    goal="" if extra else "1.3, 1.2",
                    limit="the head's three matrix products" + (" and the teacher's" if extra else ""),
                )
        if options.profile:
            with torch.profiler.profile() as profiler:
                turns["losses"]()
            print(profiler.key_averages().table(sort_by="self_cpu_time_total", row_limit=16, max_name_column_width=40))


if __name__ == "__main__":
    main()
