"""How long `leco` takes before it does anything: the help, and a training run of one step.

    .venv/bin/python benchmarks/start_up.py

Each is a process of its own, started several times; medians, of wall-clock and of CPU time, which other jobs on the
machine do not lengthen.
"""

import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

LECO = Path(sys.executable).with_name("leco")
REPEATS = 5


def started(*command: str) -> tuple[float, float]:
    """Seconds of wall-clock and of CPU time of a process."""
    before, begun = os.times(), time.perf_counter()
    subprocess.run([LECO, *command], check=True, capture_output=True)
    wall, after = time.perf_counter() - begun, os.times()
    return wall, after.children_user + after.children_system - before.children_user - before.children_system


def main() -> None:
    """Print a line for each command."""
    for name, command in (
        ("leco --help", ["--help"]),
        ("leco run --help", ["run", "--help"]),
        ("a training run of one step", ["run", "digits-leco", "--method", "ce", "--set", "training.batches.steps=1"]),
    ):
        found = []
        for _ in range(REPEATS):
            with tempfile.TemporaryDirectory() as folder:
                found.append(
                    started(*command, *(["--runs", folder] if command[0] == "run" and len(command) > 2 else []))
                )
        wall, cpu = (statistics.median(times) for times in zip(*found, strict=True))
        print(f"{name}: {wall:.2f} s, {cpu:.2f} s of CPU (median of {REPEATS})", flush=True)


if __name__ == "__main__":
    main()
