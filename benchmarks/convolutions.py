"""Speed of the convolutions of WRN-28-2 on this machine, compared with the product of large matrices.

    .venv/bin/python benchmarks/convolutions.py

Billions of operations per second (a multiplication and an addition are two), of the forward pass and of both gradients,
in the memory formats `channels_last` and torch's default; 64 images. A rate close to that of matrices leaves little
room for improvement outside the kernel.
"""

import argparse
import statistics
import time
from collections.abc import Callable

import torch
import torch.nn.functional as F

from rows import row

IMAGES, MATRIX = 64, 2_048
STAGES = ((32, 32), (64, 16), (128, 8))  # channels, and side of the maps


def main() -> None:
    """Print a line for matrices, and one for each stage of the network and layout."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=20, help="at least one")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    matrix = torch.randn(MATRIX, MATRIX)
    print(f"{options.threads} thread(s), median of {options.repeats}, billions of operations per second")
    product, unit = rate(lambda: matrix @ matrix, 2 * MATRIX**3, options.repeats), "billions of operations a second"
    for layout in (torch.channels_last, torch.contiguous_format):
        all_rates = []
        for channels, side in STAGES:
            found = rates(channels, side, layout, options.repeats)
            all_rates += found.values()
            print(
                f"{channels} channels, {side} x {side}: {', '.join(f'{n} {value:.0f}' for n, value in found.items())}"
            )
        named = str(layout).removeprefix("torch.").replace("contiguous_format", "torch's default layout")
        row(
            "kernels",
            f"{unit} in the convolutions of WRN-28-2, `{named}`" if "_" in named else f"the same, {named}",
            f"{min(all_rates):.0f} to {max(all_rates):.0f}; large matrices {product:.0f}",
            limit="the processor, if as fast as matrices",
        )


def rates(channels: int, side: int, layout: torch.memory_format, repeats: int) -> dict[str, float]:
    """Rates of a 3 x 3 convolution."""
    x = torch.randn(IMAGES, channels, side, side).to(memory_format=layout)
    weights = torch.randn(channels, channels, 3, 3).to(memory_format=layout)
    gradient = torch.randn_like(x)

    def backward(*wanted: bool) -> Callable[[], object]:
        geometry = [1, 1], [1, 1], [1, 1], False, [0, 0], 1
        return lambda: torch.ops.aten.convolution_backward(gradient, x, weights, None, *geometry, [*wanted, False])

    jobs: dict[str, Callable[[], object]] = {
        "forward": lambda: F.conv2d(x, weights, padding=1),
        "gradient of inputs": backward(True, False),
        "of weights": backward(False, True),
    }
    taps = (3 * side - 2) ** 2  # per map, without those that fall on padding
    operations = 2 * IMAGES * channels**2 * taps
    return {name: rate(job, operations, repeats) for name, job in jobs.items()}


def rate(job: Callable[[], object], operations: int, repeats: int) -> float:
    """Billions of operations per second."""
    seconds = []
    for _ in range(repeats + 2):
        started = time.perf_counter()
        job()
        seconds.append(time.perf_counter() - started)
    return operations / statistics.median(seconds[2:]) / 1e9


if __name__ == "__main__":
    main()
