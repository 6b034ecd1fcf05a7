"""Core-seconds to read images and masks of Mapillary Vistas' real sizes, on made-up files.

    .venv/bin/python benchmarks/reading.py                  # from copies of the size that is trained at, as runs do
    .venv/bin/python benchmarks/reading.py --direct         # from the files themselves

Photographs of 4000 x 3000 pixels (JPEG, 3 MB) and masks of 66 and 124 classes (paletted PNG) are made in the official
layout. Times are the processor time of this process and its threads; torch has one thread. A step is one of `lpl` at
the paper's budget: 8 new images and 8 of history.
"""

import argparse
import json
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import torch
from PIL import Image

from leco.data.benchmarks import load
from leco.devices import make_fabric
from leco.experiments.experiment import experiment
from leco.experiments.machine import Machine
from leco.experiments.run import make_job
from leco.experiments.stages import plan
from leco.experiments.store import Store
from leco.experiments.train import periods_of

WIDTH, HEIGHT = 4_000, 3_000
CLASSES = {"v1.2": 66, "v2.0": 124}


def photograph(random: np.random.Generator) -> Image.Image:
    """Smooth areas, edges and texture, which compress as a photograph does."""
    smooth = Image.fromarray(random.integers(0, 256, (24, 32, 3)).astype(np.uint8)).resize((WIDTH, HEIGHT))
    edges = Image.fromarray(random.integers(0, 80, (60, 80)).astype(np.uint8)).resize((WIDTH, HEIGHT), 0)
    texture = random.normal(-40, 6, (HEIGHT, WIDTH, 1)).astype(np.float32)
    found = np.asarray(smooth) + np.asarray(edges)[:, :, None] + texture
    return Image.fromarray(found.clip(0, 255).astype(np.uint8))


def areas(random: np.random.Generator) -> np.ndarray:
    """A label map of the 124 classes: areas with curved borders, and all classes somewhere."""
    found = np.asarray(Image.fromarray(random.integers(0, 124, (30, 40)).astype(np.uint8)).resize((WIDTH, HEIGHT), 0))
    wave = (20 * np.sin(np.arange(WIDTH) / 97)).astype(int)
    found = np.stack([np.roll(found[:, column], wave[column]) for column in range(WIDTH)], axis=1)
    found[:10, : 124 * 20] = np.repeat(np.arange(124), 20)
    return found


def make(folder: Path, images: int) -> None:
    """Write the training and validation images, and the lists of classes."""
    random = np.random.default_rng(0)
    palette = random.integers(0, 256, 768).astype(np.uint8).tobytes()
    for version, count in CLASSES.items():
        labels = [{"name": f"class-{n}", "evaluate": n < 116} for n in range(count)]
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"config_{version}.json").write_text(json.dumps({"labels": labels}))
    for part, count in (("training", images), ("validation", 1)):
        for kind in ("images", *(f"{version}/labels" for version in CLASSES)):
            (folder / part / kind).mkdir(parents=True, exist_ok=True)
        for number in range(count):
            photograph(random).save(folder / part / "images" / f"{number}.jpg", quality=90)
            fine = areas(random)
            for version, classes in CLASSES.items():
                mask = Image.fromarray((fine % classes).astype(np.uint8), "P")
                mask.putpalette(palette)
                mask.save(folder / part / version / "labels" / f"{number}.png")


@contextmanager
def timed(what: str, count: int) -> Iterator[None]:
    """Print the processor time per item."""
    started, wall = time.process_time(), time.perf_counter()
    yield
    took, passed = time.process_time() - started, time.perf_counter() - wall
    print(f"{what}: {took / count:.3f} core-seconds ({passed / count:.3f} s)", flush=True)


def main() -> None:
    """Make the files, and time each kind of reading."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--direct", action="store_true")
    parser.add_argument("--images", type=int, default=16)
    parser.add_argument("--steps", type=int, default=4)
    parser.add_argument("--work", type=Path, help="folder for the files; a temporary one by default")
    args = parser.parse_args()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as temporary:
        root = args.work or Path(temporary)
        folder = root / "mapillary-vistas"
        if not folder.exists():
            make(folder, args.images)
        for kept in folder.glob("leco-ontology-*"):
            kept.unlink()
        with timed("inferring parents, a pair of masks", args.images):
            load("mapillary-leco-2.5k", root, size=args.images // 2)
        cell = {"size": args.images // 2, "method": "lpl"}
        wanted = experiment("mapillary-leco-2.5k", cell, {"training.network.weights": "random"})
        periods = periods_of(wanted, root)
        if not args.direct:
            from leco.experiments.shrinking import shrunken

            store = Store(root / "runs")
            with timed("shrinking an image and its masks", args.images + 1):
                shrunken(periods, store, Machine("cpu"))
            with timed("finding the copies of an image and its masks", args.images + 1):
                periods = shrunken(periods, store, Machine("cpu"))
        stage = plan(wanted, periods).stages[-1]
        steps = make_job(stage, periods, 0, make_fabric("cpu", "32-true"), None).steps
        with timed("a step of 8 + 8 images", args.steps):
            for number in range(args.steps):
                _ = steps[number]
        indices = torch.arange(1)
        with timed("an image with its masks, for evaluation", 3):
            for _ in range(3):
                for column in (periods.test.inputs, periods.test.sizes, *periods.test.labels.values()):
                    column.read(indices)


if __name__ == "__main__":
    main()
