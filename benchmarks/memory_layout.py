"""How much faster timm's convolutional networks are channels-last, the layout that `leco` builds them in, on CPU.

    .venv/bin/python benchmarks/memory_layout.py

Prints images/s of forward passes, and of forward and backward passes, in both layouts, and their ratio. The layouts
take turns in one process, and the best of three turns counts.
"""

import time
from collections.abc import Callable

import timm
import torch
from torch import nn

NETWORKS = {"tf_efficientnet_lite0": 160, "mobilenetv3_small_100": 128, "resnet18": 64, "resnet50": 128}
LAYOUTS = {"contiguous": torch.contiguous_format, "channels-last": torch.channels_last}
TURNS, BATCH = 3, 32


def rate(work: Callable[[nn.Module, torch.Tensor], None], network: nn.Module, images: torch.Tensor) -> float:
    """Images per second of one pass."""
    started = time.perf_counter()
    work(network, images)
    return BATCH / (time.perf_counter() - started)


def forward(network: nn.Module, images: torch.Tensor) -> None:
    """Compute features as in an evaluation."""
    with torch.no_grad():
        network.eval()(images)


def both_ways(network: nn.Module, images: torch.Tensor) -> None:
    """Compute features and the gradients of all weights."""
    network.train()(images).square().mean().backward()


def main() -> None:
    """Print a table."""
    print(f"{torch.get_num_threads()} threads, batches of {BATCH}, torch {torch.__version__}\n")
    print("| network | side | pass | contiguous | channels-last | ratio |\n|---|---:|---|---:|---:|---:|")
    for name, side in NETWORKS.items():
        networks = {key: timm.create_model(name, num_classes=0).to(memory_format=kept) for key, kept in LAYOUTS.items()}
        images = torch.rand(BATCH, 3, side, side)
        for work in (forward, both_ways):
            best = dict.fromkeys(LAYOUTS, 0.0)
            for turn in range(TURNS + 1):  # the first is a warm-up
                for key, network in networks.items():
                    found = rate(work, network, images)
                    best[key] = max(best[key], found) if turn else 0.0
            cells = [*(f"{value:.0f}" for value in best.values()), f"{best['channels-last'] / best['contiguous']:.2f}"]
            print(f"| {name} | {side} | {work.__name__.replace('_', ' ')} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
