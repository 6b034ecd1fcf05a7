"""CIFAR-100 as folders of PNG files in two versions, as own data may look: docs/tutorial.md goes on from there.

    python examples/cifar_in_two_versions.py DATA PHOTOS --images 60

`DATA` holds the official files (`leco data fetch cifar-leco-1k --data DATA`). PHOTOS/v1 has the 20 superclasses,
PHOTOS/v2 the classes, except that
  - `trees` was not split, but is called `tree` now,
  - `fish` and `aquatic_mammals` were merged into `sea_animal`,
  - `rocket` is new: v1 has no images of it.
Some images of v1 were labelled again for v2.
"""

import argparse
from pathlib import Path

import torch
from PIL import Image

from leco.data.benchmarks import load
from leco.data.samples import Samples

MERGED = {"fish": "sea_animal", "aquatic_mammals": "sea_animal"}
RENAMED = {"trees": "tree"}
NEW = "rocket"


def write(data: Path, photos: Path, images: int, again: int = 4, test: int = 20) -> None:
    """Of every class of CIFAR-100: `images` for each version, `again` of v1 also for v2, and `test` to test with."""
    benchmark = load("cifar-leco-1k", data)
    fine, coarse = benchmark.ontology["classes"], benchmark.ontology["superclasses"]
    for index, name in enumerate(fine.handles):
        of_class = torch.nonzero(benchmark.pool.labels["classes"].read(torch.arange(len(benchmark.pool))) == index)
        old, new = of_class[:images, 0], of_class[images : 2 * images, 0]
        above = coarse.handles[int(benchmark.pool.labels["superclasses"].read(old[:1]))]
        label = MERGED.get(above) or RENAMED.get(above) or name
        if name != NEW:
            _write(benchmark.pool, old, photos / "v1" / "train" / above)
            _write(benchmark.pool, old[:again], photos / "v2" / "train" / label)
        _write(benchmark.pool, new, photos / "v2" / "train" / label)
        held_out = torch.nonzero(benchmark.test.labels["classes"].read(torch.arange(len(benchmark.test))) == index)
        _write(benchmark.test, held_out[:test, 0], photos / "v2" / "test" / label)


def _write(samples: Samples, ids: torch.Tensor, folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for number, pixels in zip(ids.tolist(), samples.inputs.read(ids), strict=True):
        Image.fromarray(pixels.permute(1, 2, 0).numpy()).save(folder / f"{number:05}.png")


def main(arguments: list[str] | None = None) -> None:
    """Write the folders."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("photos", type=Path)
    parser.add_argument("--images", type=int, default=60, help="of every class, for each version")
    options = parser.parse_args(arguments)
    write(options.data, options.photos, options.images)


if __name__ == "__main__":
    main()
