"""Time of a training step beside other busy processes, by how the threads of OpenMP wait for each other.

    .venv/bin/python benchmarks/busy.py

ResNet-18, a batch of 32 images of 64 pixels, in one process for each way to wait: the default (threads spin), the
policy PASSIVE, and a spin count of zero, which is the same for libgomp: their difference is noise. The processes take
turns, alone and beside as many endless loops as there are cores; medians, and their range. Other load is part of the
figures: load averages are printed. The fastest turn is the least disturbed one.
"""

import argparse
import multiprocessing
import os
import statistics
import time
from multiprocessing.connection import Connection

from rows import row

WAYS = {
    "default": {},
    "OMP_WAIT_POLICY=PASSIVE": {"OMP_WAIT_POLICY": "PASSIVE"},
    "GOMP_SPINCOUNT=0": {"GOMP_SPINCOUNT": "0"},
}
NAMES = ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT")
SPAWN = multiprocessing.get_context("spawn")


class Side:
    """A process that was started with some environment variables, and makes steps when asked to."""

    def __init__(self, variables: dict[str, str], threads: int) -> None:
        before = {name: os.environ.pop(name, None) for name in NAMES}
        os.environ.update(variables)  # the child reads them when it loads OpenMP
        self.line, theirs = SPAWN.Pipe()
        self.process = SPAWN.Process(target=answer, args=(theirs, threads))
        self.process.start()
        for name in NAMES:
            os.environ.pop(name, None)
        os.environ.update({name: value for name, value in before.items() if value is not None})

    def seconds(self, steps: int) -> float:
        """Return the duration of a step, the mean of some."""
        self.line.send(steps)
        taken: float = self.line.recv()
        return taken / steps

    def end(self) -> None:
        """End the process."""
        self.line.send(0)
        self.process.join()


def answer(line: Connection, threads: int) -> None:
    """Make the requested number of steps, send their duration, and repeat until zero are requested."""
    import timm
    import torch

    torch.set_num_threads(threads)
    network = timm.create_model("resnet18", num_classes=10).train()
    optimiser = torch.optim.SGD(network.parameters(), lr=0.01)
    images, labels = torch.randn(32, 3, 64, 64), torch.randint(10, (32,))
    while count := line.recv():
        started = time.perf_counter()
        for _ in range(count):
            torch.nn.functional.cross_entropy(network(images), labels).backward()
            optimiser.step()
            optimiser.zero_grad()
        line.send(time.perf_counter() - started)


def spin() -> None:
    """Use a core."""
    while True:
        pass


def main() -> None:
    """Time all ways in turns, and add a row for each."""
    cores = os.cpu_count() or 1
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=cores, help="torch threads")
    parser.add_argument("--loops", type=int, default=cores, help="busy processes")
    parser.add_argument("--repeats", type=int, default=5, help="turns alone and beside busy processes, each")
    parser.add_argument("--steps", type=int, default=5, help="of a turn alone; beside busy processes, two")
    options = parser.parse_args()
    print(f"load average {os.getloadavg()[0]:.1f}, {cores} cores, {options.threads} threads", flush=True)
    sides = {name: Side(variables, options.threads) for name, variables in WAYS.items()}
    for side in sides.values():
        side.seconds(3)  # warm-up
    alone: dict[str, list[float]] = {name: [] for name in WAYS}
    beside: dict[str, list[float]] = {name: [] for name in WAYS}
    for repeat in range(options.repeats):
        order = list(sides.items())[repeat % len(sides) :] + list(sides.items())[: repeat % len(sides)]
        for name, side in order:
            alone[name].append(side.seconds(options.steps))
        loops = [SPAWN.Process(target=spin, daemon=True) for _ in range(options.loops)]
        for loop in loops:
            loop.start()
        time.sleep(1)  # until they are imported
        for name, side in order:
            beside[name].append(side.seconds(2))
        for loop in loops:
            loop.terminate()
            loop.join()
    for side in sides.values():
        side.end()
    print(f"load average at the end {os.getloadavg()[0]:.1f}")
    for name in WAYS:
        mine, busy = statistics.median(alone[name]), statistics.median(beside[name])
        fastest, extremes = min(alone[name]), f"{min(beside[name]):.2f} to {max(beside[name]):.2f}"
        row(
            "waiting",
            f"seconds of a step; threads wait: `{name}`",
            f"alone {mine:.3f} (fastest {fastest:.3f}), beside {options.loops} busy loops {busy:.2f} ({extremes})",
            limit="threads that wait for one that does not run",
        )
    for name in list(WAYS)[1:]:
        ratios = [mine / usual for mine, usual in zip(alone[name], alone["default"], strict=True)]
        least, middle = min(alone[name]) / min(alone["default"]), statistics.median(ratios)
        print(f"{name}, alone: {middle:.3f} times the default (median of ratios), fastest turns {least:.3f}")


if __name__ == "__main__":
    main()
