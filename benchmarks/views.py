"""Strong views (flip, shift, RandAugment, cutout) of 128 CIFAR-sized images: ours on batches, PIL's on single images.

    .venv/bin/python benchmarks/views.py                    # random crops of scikit-learn's photographs
    .venv/bin/python benchmarks/views.py --cifar ROOT       # ROOT/cifar-100-python

Both sides make float tensors from uint8 arrays, with the same distribution of operations. They are timed on one core
(one torch thread, one process) and on all (one torch thread per core; one process per core, in a warm pool that has the
images), in turns of a few batches, so that other load affects both; medians are printed. Run it on an idle machine:
with other load, torch's threads wait for each other.
"""

import argparse
import random
import statistics
import time
from collections.abc import Callable
from multiprocessing import get_context
from multiprocessing.pool import Pool
from pathlib import Path

import numpy as np
import torch
from PIL import Image, ImageDraw, ImageEnhance, ImageOps
from sklearn.datasets import load_sample_images
from torchvision.transforms import Compose, RandomCrop, RandomHorizontalFlip, ToTensor

from leco.data.benchmarks import load
from leco.data.rng import Draws
from leco.data.views.randaugment import strong
from rows import row

N, SIDE = 128, 32
BATCHES = 5  # per turn: a core that was idle is slow at first
Picture = Image.Image


def turned(image: Picture, matrix: tuple[float, float, float, float, float, float]) -> Picture:
    """Apply an affine transform, to the nearest pixel."""
    return image.transform(image.size, Image.Transform.AFFINE, matrix)


def sign() -> int:
    """Random sign."""
    return random.choice((-1, 1))


# FixMatch's pool, one image at a time; `v` is the level, 1 to 9.
PIL_POOL: list[Callable[[Picture, int], Picture]] = [
    lambda image, v: ImageOps.autocontrast(image),
    lambda image, v: ImageEnhance.Brightness(image).enhance(v * 0.9 / 10 + 0.05),
    lambda image, v: ImageEnhance.Color(image).enhance(v * 0.9 / 10 + 0.05),
    lambda image, v: ImageEnhance.Contrast(image).enhance(v * 0.9 / 10 + 0.05),
    lambda image, v: ImageOps.equalize(image),
    lambda image, v: image,
    lambda image, v: ImageOps.posterize(image, int(v * 4 / 10) + 4),
    lambda image, v: image.rotate(sign() * int(v * 30 / 10)),
    lambda image, v: ImageEnhance.Sharpness(image).enhance(v * 0.9 / 10 + 0.05),
    lambda image, v: turned(image, (1, sign() * v * 0.3 / 10, 0, 0, 1, 0)),
    lambda image, v: turned(image, (1, 0, 0, sign() * v * 0.3 / 10, 1, 0)),
    lambda image, v: ImageOps.solarize(image, 256 - int(v * 256 / 10)),
    lambda image, v: turned(image, (1, 0, int(sign() * v * 0.3 / 10 * image.width), 0, 1, 0)),
    lambda image, v: turned(image, (1, 0, 0, 0, 1, int(sign() * v * 0.3 / 10 * image.height))),
]


def pil_randaugment(image: Picture) -> Picture:
    """Apply two operations, each with probability 0.5."""
    for operation in random.choices(PIL_POOL, k=2):
        if random.random() < 0.5:
            image = operation(image, random.randint(1, 9))
    return image


def pil_cutout(image: Picture) -> Picture:
    """Draw a grey square of half the side around a uniform centre."""
    side = image.width // 2
    left, top = (int(max(0, random.random() * length - side / 2)) for length in image.size)
    ImageDraw.Draw(image).rectangle((left, top, min(SIDE, left + side), min(SIDE, top + side)), (127, 127, 127))
    return image


PIL_STRONG = Compose(
    [RandomHorizontalFlip(), RandomCrop(SIDE, padding=4, padding_mode="reflect"), pil_randaugment, pil_cutout]
)
HELD: list[np.ndarray] = []  # the images of each process of the pool


def hold(arrays: list[np.ndarray]) -> None:
    """Initialise a process of the pool with its images and one thread."""
    torch.set_num_threads(1)
    HELD[:] = arrays


def pil_views(part: slice) -> np.ndarray:
    """Strong views of some images of this process, as an array, which is cheap to send between processes."""
    return torch.stack([ToTensor()(PIL_STRONG(Image.fromarray(array))) for array in HELD[part]]).numpy()


def cifar(root: Path) -> list[np.ndarray]:
    """First images of CIFAR-100's test set."""
    images = load("cifar-leco", root).test.inputs.read(torch.arange(N))
    return list(images.permute(0, 2, 3, 1).contiguous().numpy())


def photographs() -> list[np.ndarray]:
    """Crops of two photographs, scaled to a quarter."""
    pictures = [Image.fromarray(picture).reduce(4) for picture in load_sample_images().images]
    rng = random.Random(0)
    corners = [(rng.randrange(p.width - SIDE), rng.randrange(p.height - SIDE)) for p in pictures * (N // 2)]
    pieces = zip(pictures * (N // 2), corners, strict=True)
    return [np.asarray(picture.crop((x, y, x + SIDE, y + SIDE))) for picture, (x, y) in pieces]


def main() -> None:
    """Time both sides in turns."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cifar", type=Path, help="folder with cifar-100-python")
    parser.add_argument("--repeats", type=int, default=30)
    options = parser.parse_args()
    arrays = cifar(options.cifar) if options.cifar else photographs()
    images = torch.from_numpy(np.stack(arrays)).permute(0, 3, 1, 2).contiguous()
    cores = torch.get_num_threads()
    hold(arrays)
    for threads in dict.fromkeys((1, cores)):
        with get_context("spawn").Pool(threads, initializer=hold, initargs=(arrays,)) as pool:
            ours, theirs = race(images, threads, options.repeats, pool)
        row(
            "steps",
            f"factor of strong views of {N} images over PIL, {threads} core{'s'[: threads - 1]}",
            f"{theirs / ours:.1f} ({N / ours:,.0f} and {N / theirs:,.0f} images/s)",
            goal="5",
            limit="gathering pixels",
        )


def race(images: torch.Tensor, threads: int, repeats: int, pool: Pool) -> tuple[float, float]:
    """Median time per batch of both sides, in seconds, without the first turn."""
    torch.set_num_threads(threads)
    ids = torch.arange(N)
    parts = [slice(i * N // threads, (i + 1) * N // threads) for i in range(threads)]
    ours, theirs = [], []
    for turn in range(repeats + 1):
        start = time.perf_counter()
        for step in range(turn * BATCHES, (turn + 1) * BATCHES):
            strong(images, Draws(0, step, ids)).float().div_(255)
        middle = time.perf_counter()
        for _ in range(BATCHES):
            if threads == 1:
                pil_views(slice(N))  # in this process, without any transfer
            else:
                pool.map(pil_views, parts, chunksize=1)
        ours.append((middle - start) / BATCHES)
        theirs.append((time.perf_counter() - middle) / BATCHES)
    return statistics.median(ours[1:]), statistics.median(theirs[1:])


if __name__ == "__main__":
    main()
