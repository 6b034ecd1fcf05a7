"""Soft pseudo-labels of pixels: a teacher on every crop, or the five likeliest classes of each pixel from a file.

    .venv/bin/python benchmarks/teacher_targets.py      # a small network and small images
    .venv/bin/python benchmarks/teacher_targets.py --model hrnet_w48 --crop 720 --image 1650 2200 --classes 116 \
        --batch 1 --repeats 1                           # the paper's shapes

One step has a batch of new and one of old images. A stored target is read from a file of the size of the image, scaled
and cropped like the image, since crops are random, and its probabilities are scattered over the classes. Times are
medians of alternating turns in one process; the file is in the page cache, which makes reading look fast.
"""

import argparse
import statistics
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from leco import Ontology
from leco.models.dense.network import build_segmenter

if TYPE_CHECKING:
    from collections.abc import Callable

KEPT = 5  # classes of each pixel


def main() -> None:
    """Time one step, a teacher, and the reading of stored targets."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="tiny")
    parser.add_argument("--crop", type=int, default=160)
    parser.add_argument("--image", type=int, nargs=2, default=(180, 240), metavar=("HEIGHT", "WIDTH"))
    parser.add_argument("--classes", type=int, default=31)
    parser.add_argument("--batch", type=int, default=8, help="new images per step, and number of old ones")
    parser.add_argument("--repeats", type=int, default=5)
    options = parser.parse_args()
    street = Ontology.from_taxonomy("street", ["v1", "v2"], [("all", f"class-{n}") for n in range(options.classes)])
    newest = street.versions[1:]
    student, teacher = (build_segmenter(options.model, newest) for _ in range(2))
    teacher.eval()
    crops = torch.randn(2 * options.batch, 3, options.crop, options.crop)
    labels = torch.randint(options.classes, (2 * options.batch, options.crop, options.crop))

    def step() -> None:
        for crop, label in zip(crops.split(options.batch), labels.split(options.batch), strict=True):
            F.cross_entropy(student(crop)["v2"], label).backward()

    def run_teacher() -> Tensor:
        with torch.no_grad():
            probs: Tensor = teacher(crops[: options.batch])["v2"].softmax(dim=1)
            return probs

    height, width = options.image
    with tempfile.TemporaryDirectory() as folder:
        paths = [Path(folder) / f"{n}.npz" for n in range(options.batch)]
        for path in paths:
            keep(path, options.classes, height, width)

        def read_targets() -> Tensor:
            return torch.stack([read(path, options.classes, options.crop) for path in paths])

        actions: list[Callable[[], object]] = [step, run_teacher, read_targets]
        seconds: list[list[float]] = [[] for _ in actions]
        for _ in range(options.repeats + 1):  # the first turn warms up
            for action, times in zip(actions, seconds, strict=True):
                started = time.perf_counter()
                action()
                times.append(time.perf_counter() - started)
        size = paths[0].stat().st_size
    own, running, reading = (statistics.median(times[1:]) for times in seconds)
    print(f"{options.model}, {options.batch} + {options.batch} crops of {options.crop}, {options.classes} classes")
    print(f"step of the student {own:.2f} s, teacher on the fly {running:.2f} s: {running / own:.0%} more")
    print(f"top {KEPT} from a file {reading:.2f} s: {reading / own:.0%} more; {size / 1e6:.1f} MB per image")


def keep(path: Path, classes: int, height: int, width: int) -> None:
    """Write the likeliest classes of each pixel, and their probabilities in 255ths."""
    generator = np.random.default_rng(0)
    likeliest = generator.integers(0, classes, (KEPT, height, width), dtype=np.uint8)
    np.savez(path, likeliest=likeliest, probs=generator.integers(0, 50, likeliest.shape, dtype=np.uint8))


def read(path: Path, classes: int, crop: int) -> Tensor:
    """Targets (c, crop, crop) of a random crop at a random scale, by the nearest pixel, like labels."""
    with np.load(path) as kept:
        likeliest, probs = (torch.from_numpy(kept[name]) for name in ("likeliest", "probs"))
    side = int(crop / (0.75 + 0.75 * torch.rand(()).item()))
    top, left = (int(torch.randint(max(1, length - side + 1), ())) for length in likeliest.shape[1:])
    part = (slice(None), slice(top, top + side), slice(left, left + side))
    scaled = [F.interpolate(kept[part][None].float(), (crop, crop), mode="nearest")[0] for kept in (likeliest, probs)]
    return torch.zeros(classes, crop, crop).scatter_add_(0, scaled[0].long(), scaled[1] / 255)


if __name__ == "__main__":
    main()
