"""Time reports on a store of 3,000 stages in the format of real ones: 100 classes, three sizes, all methods, 22 seeds.

    .venv/bin/python benchmarks/reports.py

Prints seconds of CPU and wall time of each command, with the start of Python.
"""

import os
import runpy
import subprocess
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory

from leco.methods.method import ALL_METHODS
from rows import row

STORES = runpy.run_path(str(Path(__file__).parents[1] / "tests" / "stores.py"))
SIZES = {"cifar-leco-1k": 1_000, "cifar-leco-2k": 2_000, "cifar-leco-10k": 10_000}
CLASSES = {"v1": ["a|b", "other"], "v2": [f"class {number}" for number in range(100)]}
CELLS = [(strategy, "label-new", 0.3) for strategy in ("scratch", "freeze")]
CELLS += [("finetune", annotation, 0.4) for annotation in ("relabel-50", "relabel-old", "all-fine")]
COMMANDS = (
    *(["write", "-o", f"report{suffix}"] for suffix in (".html", ".md", ".tex", ".csv")),
    *([verb] for verb in ("costs", "gaps", "classes")),
)


def main() -> None:
    """Write the store, and time every command."""
    with TemporaryDirectory() as folder:
        for number, (name, size) in enumerate(SIZES.items()):
            scores = {str(method): 0.3 + (number + place) / 100 for place, method in enumerate(ALL_METHODS)}
            stages = STORES["make_stages"](range(22), scores, benchmark=name, cells=CELLS)
            STORES["write_store"](Path(folder, "runs"), stages, classes=CLASSES, data=name, samples=size)
        count = len(list(Path(folder, "runs", "stages").iterdir()))
        found: list[tuple[str, float]] = []
        for verb, *options in COMMANDS:
            before, started = os.times(), time.perf_counter()
            call = [sys.executable, "-m", "leco", "report", verb, "runs", *options]
            subprocess.run(call, cwd=folder, check=True, stdout=subprocess.DEVNULL)
            after, took = os.times(), time.perf_counter() - started
            spent = after.children_user + after.children_system - before.children_user - before.children_system
            found.append((" ".join([verb, *options]), spent))
            print(f"leco report {found[-1][0]}: {spent:.1f} s of CPU time, {took:.1f} s", flush=True)
        names, seconds = ", ".join(name for name, _ in found), ", ".join(f"{spent:.1f}" for _, spent in found)
        measured = f"seconds of CPU of `leco report` on a store of {count:,} stages: {names}"
        row("start-up", measured, seconds, limit="reading the stages' results, and tests of conclusions")


if __name__ == "__main__":
    main()
