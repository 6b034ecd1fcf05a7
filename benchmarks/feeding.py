"""How fast a device is fed: decoding, threads that read ahead, copies, and the network that waits for them.

    .venv/bin/python benchmarks/feeding.py                    # on CPUs
    .venv/bin/python benchmarks/feeding.py --device cuda      # also nvJPEG, and copies from page-locked memory

Eight photographs of `--pixels` are made up, stored as JPEG, and read again and again as squares of `--side`, as `leco`
reads own images: decoded by Pillow at the smallest of a JPEG's own scales that suffices. torchvision's decoder has no
such scales; on a GPU, it is nvJPEG. `leco` trains on images that do not fit into memory as in the last row: threads
decode the next batches during a step. ResNet-18, batches of 64.
"""

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path

import numpy as np
import timm
import torch
from PIL import Image
from torch import Tensor, nn
from torchvision.io import ImageReadMode, decode_jpeg, read_file
from torchvision.transforms.v2.functional import center_crop, resize

from leco.data.ahead import THREADS, read_ahead
from leco.data.images import middle_square
from leco.data.samples import Files
from leco.devices import place, resolve_device
from leco.placement import send, sent_ahead
from rows import row

BATCH, FILES = 64, 8


def photographs(folder: Path, count: int, pixels: tuple[int, int]) -> list[Path]:
    """Write JPEG files: smooth random colours with some noise, which compress like photographs."""
    random, paths = np.random.default_rng(0), []
    for number in range(count):
        coarse = Image.fromarray(random.integers(0, 256, (12, 16, 3), dtype=np.uint8))
        smooth = np.asarray(coarse.resize(pixels, Image.Resampling.BICUBIC)).astype(np.int16)
        noisy = (smooth + random.integers(-12, 13, smooth.shape)).clip(0, 255).astype(np.uint8)
        paths.append(folder / f"{number}.jpg")
        Image.fromarray(noisy).save(paths[-1], quality=90)
    return paths


def seconds(action: Callable[[], object], device: torch.device, repeats: int) -> float:
    """Median of the times of an action, without the first, until the device is done."""
    times = []
    for _ in range(repeats + 1):
        started = time.perf_counter()
        action()
        if device.type != "cpu":
            torch.accelerator.synchronize()
        times.append(time.perf_counter() - started)
    return statistics.median(times[1:])


def torchvision_square(path: Path, side: int, device: torch.device) -> Tensor:
    """Decode the whole image on a device, scale its shorter side and crop the centre."""
    image = decode_jpeg(read_file(str(path)), ImageReadMode.RGB, device=device)
    square: Tensor = center_crop(resize(image, [side], antialias=True), [side, side])
    return square


def trained(batches: Iterable[Tensor], network: nn.Module, device: torch.device) -> None:
    """Forward and backward passes of some batches, which are copied to the device ahead."""
    for batch in sent_ahead(batches, device, lambda batch, send: send(batch)):
        network(batch.float().div_(255)).sum().backward()
        network.zero_grad(set_to_none=True)


def main() -> None:
    """Add a row for each way to read, and for training on what is read."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--images", type=int, default=4 * BATCH)
    parser.add_argument("--pixels", type=int, nargs=2, default=(1_600, 1_200), metavar=("WIDTH", "HEIGHT"))
    parser.add_argument("--side", type=int, default=224)
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args()
    device, side = resolve_device(options.device), options.side
    width, height = options.pixels
    with tempfile.TemporaryDirectory() as folder:
        paths = photographs(Path(folder), FILES, (width, height)) * (options.images // FILES)
        images = Files(paths, partial(middle_square, side=side))
        parts = torch.arange(len(paths)).split(BATCH)  # type: ignore[no-untyped-call]
        few = paths[: max(1, BATCH // 4)]

        def speed(action: Callable[[], object], count: int) -> float:
            return count / seconds(action, device, options.repeats)

        def add(what: str, found: float, limit: str) -> None:
            row("feeding", what, f"{found:,.0f} images/s", limit=limit)

        source = f"JPEG of {width:,} × {height:,} pixels to {side} × {side}"
        found = speed(lambda: [middle_square(path, side) for path in few], len(few))
        add(f"{source}, Pillow with the scales of JPEG, one thread", found, "decompression")
        found = speed(lambda: [torchvision_square(path, side, torch.device("cpu")) for path in few], len(few))
        add("the same, torchvision, without them", found, "decompression of all pixels")
        if device.type == "cuda":
            found = speed(lambda: [torchvision_square(path, side, device) for path in few], len(few))
            add("the same, nvJPEG", found, "the GPU")
        found = speed(lambda: list(read_ahead(images.read, parts)), len(paths))
        add(f"the same, Pillow, {THREADS} threads that read ahead", found, "cores")
        batch = images.read(parts[0])
        if device.type != "cpu":
            add("copies to the device", speed(lambda: send(batch, device), BATCH), "the bus")
        network = place(timm.create_model("resnet18", num_classes=10), device).train()
        if device.type != "cpu":
            there = send(batch, device)
            found = speed(lambda: trained([there] * len(parts), network, device), BATCH * len(parts))
            add("training of ResNet-18 on a batch on the device", found, "convolutions")
        found = speed(lambda: trained([batch] * len(parts), network, device), BATCH * len(parts))
        add("training of ResNet-18 on a batch in memory", found, "convolutions")
        found = speed(lambda: trained(map(images.read, parts), network, device), len(paths))
        add("the same, each batch read before its step", found, "decoding, then convolutions")
        found = speed(lambda: trained(read_ahead(images.read, parts), network, device), len(paths))
        add("the same, batches read ahead", found, "the slower of both; here they share the cores")


if __name__ == "__main__":
    main()
