"""How long `leco` takes before it does anything: its import, the help, and a training run of one step.

    .venv/bin/python benchmarks/start_up.py

Each is a process of its own, started several times; medians, of wall-clock and of CPU time, which other jobs on the
machine do not lengthen. `tests/smoke/test_start_up.py` checks what is imported.
"""

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time

from rows import row

TRAINING = ["run", "digits-leco", "--method", "ce", "--set", "training.batches.steps=1"]
CASES = {
    "python": ["-c", "pass"],
    "import leco": ["-c", "import leco"],
    "from leco import Method": ["-c", "from leco import Method"],
    "from leco import Settings": ["-c", "from leco import Settings"],
    "leco --help": ["-m", "leco", "--help"],
    "leco run --help": ["-m", "leco", "run", "--help"],
    "a training run of one step: digits, two periods, evaluation, bundle": ["-m", "leco", *TRAINING],
}
LIMITS = {  # goals, and what limits the time
    "python": ("", "the interpreter"),
    "leco --help": ("0.5 s", "the interpreter and the help's formatting"),
    "a training run of one step: digits, two periods, evaluation, bundle": ("6 s", "importing torch"),
}
PLAIN = [name for name in CASES if not name.startswith("a ")]


def started(*words: str) -> tuple[float, float]:
    """Seconds of wall-clock and of CPU time of a process."""
    with tempfile.TemporaryDirectory() as folder:
        before, begun = os.times(), time.perf_counter()
        subprocess.run([sys.executable, *words], check=True, capture_output=True, cwd=folder)
        wall, after = time.perf_counter() - begun, os.times()
    return wall, after.children_user + after.children_system - before.children_user - before.children_system


def main() -> None:
    """Add a row for each case."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=5)
    options = parser.parse_args()
    for name, words in CASES.items():
        times = [started(*words) for _ in range(options.repeats)]
        wall, cpu = (statistics.median(column) for column in zip(*times, strict=True))
        goal, limit = LIMITS.get(name, ("", "imports"))
        row(
            "start-up",
            f"`{name}`" if name in PLAIN else name,
            f"{wall:.2f} s, {cpu:.2f} s of CPU",
            goal=goal,
            limit=limit,
        )


if __name__ == "__main__":
    main()
