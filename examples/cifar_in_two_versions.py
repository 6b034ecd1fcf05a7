"""CIFAR-100 as folders of PNG files in two versions, as your own data may look; docs/tutorial continues from there.

    python examples/cifar_in_two_versions.py DATA PHOTOS --images 60

`DATA` holds the official files (`leco data fetch cifar-leco-1k --data DATA`). PHOTOS/v1 has 20 classes: 17 groups of
CIFAR's classes, and three single vehicles. PHOTOS/v2 has 99: CIFAR's classes, except that
  - `tram` is called `streetcar` now,
  - `bicycle` and `motorcycle` were merged into `two_wheeler`,
  - `rocket` is new: v1 has no images of it.
Some images of v1 were relabelled for v2.
"""

import argparse
from pathlib import Path

import torch
from PIL import Image

from leco.data.benchmarks import load
from leco.data.samples import Samples

# The classes of v1 are CIFAR's superclasses; some are merged, and most have simpler names.
GROUPS = {
    "food_containers": "tableware",
    "household_electrical_devices": "household_things",
    "household_furniture": "household_things",
    "large_man-made_outdoor_things": "buildings_and_roads",
    "large_natural_outdoor_scenes": "landscapes",
    "large_omnivores_and_herbivores": "large_herbivores",
    "medium_mammals": "small_mammals",
    "non-insect_invertebrates": "invertebrates",
    "vehicles_1": "vehicles",
    "vehicles_2": "vehicles",
}
ALONE_IN_V1 = {"bicycle": "bicycle", "motorcycle": "motorcycle", "streetcar": "tram"}
MERGED_IN_V2 = {"bicycle": "two_wheeler", "motorcycle": "two_wheeler"}
NEW_IN_V2 = "rocket"
AGAIN = 4  # images of each class of CIFAR that are labelled in both versions


def write(data: Path, photos: Path, images: int) -> None:
    """Write `images` of every class of CIFAR-100 for each version to train on, and others to validate and test on."""
    benchmark = load("cifar-leco-1k", data)
    fine, coarse = benchmark.ontology["classes"], benchmark.ontology["superclasses"]
    parents = benchmark.ontology.transition("classes", "superclasses").parents
    of_pool, of_test = _by_class(benchmark.pool), _by_class(benchmark.test)
    for index, name in enumerate(fine.handles):
        above = coarse.handles[int(parents[index])]
        in_v1 = ALONE_IN_V1.get(name) or GROUPS.get(above, above)
        in_v2 = MERGED_IN_V2.get(name, name)
        ends = [images, images + images // 6, 2 * images + images // 6]
        old, old_val, new, rest = of_pool[index].tensor_split(ends)
        new_val = rest[: images // 6]
        old_test, new_test = of_test[index][: images // 3], of_test[index][images // 3 :][: images * 5 // 6]
        if name != NEW_IN_V2:
            _write(benchmark.pool, old, photos / "v1" / "train" / in_v1)
            _write(benchmark.pool, old_val, photos / "v1" / "val" / in_v1)
            _write(benchmark.test, old_test, photos / "v1" / "test" / in_v1)
            _write(benchmark.pool, old[:AGAIN], photos / "v2" / "train" / in_v2)
        _write(benchmark.pool, new, photos / "v2" / "train" / in_v2)
        _write(benchmark.pool, new_val, photos / "v2" / "val" / in_v2)
        _write(benchmark.test, new_test, photos / "v2" / "test" / in_v2)


def _by_class(samples: Samples) -> list[torch.Tensor]:
    """The indices of the samples of every class."""
    labels = samples.labels["classes"].read(torch.arange(len(samples)))
    return [torch.nonzero(labels == index)[:, 0] for index in range(int(labels.max()) + 1)]


def _write(samples: Samples, ids: torch.Tensor, folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for number, pixels in zip(ids.tolist(), samples.inputs.read(ids), strict=True):
        Image.fromarray(pixels.permute(1, 2, 0).numpy()).save(folder / f"{number:05}.png")


def main(arguments: list[str] | None = None) -> None:
    """Write the folders."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("photos", type=Path)
    parser.add_argument("--images", type=int, default=60, help="per class and version")
    options = parser.parse_args(arguments)
    write(options.data, options.photos, options.images)


if __name__ == "__main__":
    main()
