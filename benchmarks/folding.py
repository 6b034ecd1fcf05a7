"""Speed of networks that only predict, with BatchNorm folded into their convolutions.

    .venv/bin/python benchmarks/folding.py tf_efficientnet_lite0 resnet18 mobilenetv3_small_100

Images per second at 224 pixels, with random weights, as trained and folded, and the seconds that folding takes.
"""

import argparse
import time

import timm
import torch
from torch import nn

from leco.devices import place
from leco.models.folding import folded


def main() -> None:
    """Print a line for each network."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("networks", nargs="+", help="names of timm models")
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args()
    images = torch.rand(options.batch, 3, 224, 224)
    for name in options.networks:
        network = place(timm.create_model(name, num_classes=0), torch.device("cpu")).eval()
        started = time.perf_counter()
        faster = folded(network, images[:1])
        took = time.perf_counter() - started
        plain, quick = (speed(model, images, options.repeats) for model in (network, faster))
        print(f"{name}: {plain:.0f} and {quick:.0f} images/s, {quick / plain:.2f} times; folded in {took:.2f} s")


@torch.inference_mode()
def speed(network: nn.Module, images: torch.Tensor, repeats: int) -> float:
    """Images per second of the fastest of some passes."""
    seconds = []
    for _ in range(repeats + 1):
        started = time.perf_counter()
        network(images)
        seconds.append(time.perf_counter() - started)
    return len(images) / min(seconds[1:])


if __name__ == "__main__":
    main()
