"""The slow half of checking a manifest: look into every file it names."""

import os
import warnings
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from leco.data.images import inspect_image
from leco.data.manifest.problems import Fault
from leco.data.masks import MaskRule, Tally, seen_in
from leco.data.vectors import Tick
from leco.errors import LecoError
from leco.ontology.masks import read_mask

_BATCH = 256  # images; what an interrupt waits for


@dataclass(frozen=True)
class Picture:
    """An image and the masks that belong to it."""

    image: str | None  # None where it is known to be bad, and its masks are looked at all the same
    masks: tuple[tuple[str, str], ...] = ()  # (path, version)


def inspect_pictures(
    root: Path, pictures: Sequence[Picture], rules: dict[str, MaskRule], tick: Tick, tally: Tally | None = None
) -> Iterator[tuple[int, str, str, Fault]]:
    """Decode every image and mask; yield what is wrong: (picture, file, version or "" for the image, fault).

    What is in the masks that are right is noted in the `tally`, if there is one.
    """

    def inspect(number: int) -> list[tuple[int, str, str, Fault]]:
        return [(number, *wrong) for wrong in _inspect(root, pictures[number], rules, tally)]

    # The filters of warnings belong to the process: what the decoding threads change is put back here.
    with warnings.catch_warnings(), ThreadPoolExecutor(min(32, os.cpu_count() or 1)) as pool:
        warnings.simplefilter("ignore")
        for start in range(0, len(pictures), _BATCH):
            for number, wrong in enumerate(pool.map(inspect, range(len(pictures))[start : start + _BATCH]), start + 1):
                yield from wrong
                tick(number, len(pictures))


def _inspect(
    root: Path, picture: Picture, rules: dict[str, MaskRule], tally: Tally | None
) -> Iterator[tuple[str, str, Fault]]:
    size = None
    if picture.image is not None:
        try:
            size = inspect_image(root / picture.image)
        except LecoError as error:
            yield picture.image, "", Fault("bad image", _without(root / picture.image, error))
    for path, version in picture.masks:
        try:
            mask = read_mask(root / path)
        except LecoError as error:
            yield path, version, Fault("bad mask", _without(root / path, error))
            continue
        if size is not None and mask.shape != size:
            sizes = f"is {mask.shape[1]}x{mask.shape[0]}, but {picture.image} is {size[1]}x{size[0]}"
            yield path, version, Fault("other size", sizes)
        if version in rules:
            if fault := rules[version].fault(mask):
                yield path, version, fault
            elif tally is not None:
                tally[path, version] = seen_in(mask)


def _without(path: Path, error: LecoError) -> str:
    """What the error says, without the file that the problem names anyway."""
    return str(error).removeprefix(f"{path}: ")
