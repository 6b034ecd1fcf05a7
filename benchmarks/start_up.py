"""How long `leco` takes before it does anything: its import, the help, and a training run of one step.

    .venv/bin/python benchmarks/start_up.py

Each is a process of its own, started several times; medians, of wall-clock and of CPU time, which other jobs on the
machine do not lengthen. `tests/smoke/test_start_up.py` checks what is imported.
"""

import os
import statistics
import subprocess
import sys
import tempfile
import time

REPEATS = 5
TRAINING = ["run", "digits-leco", "--method", "ce", "--set", "training.batches.steps=1"]
CASES = {
    "python": ["-c", "pass"],
    "import leco": ["-c", "import leco"],
    "from leco import Method": ["-c", "from leco import Method"],
    "from leco import Settings": ["-c", "from leco import Settings"],
    "leco --help": ["-m", "leco", "--help"],
    "leco run --help": ["-m", "leco", "run", "--help"],
    "a training run of one step": ["-m", "leco", *TRAINING],
}


def started(*words: str) -> tuple[float, float]:
    """Seconds of wall-clock and of CPU time of a process."""
    with tempfile.TemporaryDirectory() as folder:
        before, begun = os.times(), time.perf_counter()
        subprocess.run([sys.executable, *words], check=True, capture_output=True, cwd=folder)
        wall, after = time.perf_counter() - begun, os.times()
    return wall, after.children_user + after.children_system - before.children_user - before.children_system


def main() -> None:
    """Print a line for each case."""
    for name, words in CASES.items():
        wall, cpu = (statistics.median(times) for times in zip(*(started(*words) for _ in range(REPEATS)), strict=True))
        print(f"{name}: {wall:.2f} s, {cpu:.2f} s of CPU (median of {REPEATS})", flush=True)


if __name__ == "__main__":
    main()
