"""How often each class is in masks: counted while they are checked, so that each is read once."""

from dataclasses import dataclass

import numpy as np

from leco.data.cells import SPLITS
from leco.data.manifest import Manifest
from leco.data.mask_files import Tally
from leco.ontology.ontology import Ontology

Counts = dict[str, dict[str, list[int]]]  # version -> split -> number for each class


@dataclass(frozen=True)
class MaskCounts:
    """In how many images each class is, and how many pixels it has."""

    images: Counts
    pixels: Counts
    read: int  # masks
    total: int

    @property
    def note(self) -> str:
        """The end of a message, where not all masks were read."""
        read = f" (in the {self.read:,} of {self.total:,} masks that were read; --every-file reads all)"
        return "" if self.read == self.total else read


def mask_counts(manifest: Manifest, ontology: Ontology, tally: Tally) -> MaskCounts:
    """Add up what was seen in the masks that are samples of a manifest."""
    images: Counts = {}
    pixels: Counts = {}
    read = total = 0
    for version, masks in manifest.masks.items():
        sums = np.zeros((2, len(SPLITS), len(ontology[version])), dtype=np.int64)
        for mask, split in zip(masks, manifest.split.tolist(), strict=True):
            total += bool(mask)
            if mask and (mask, version) in tally:
                classes, counts = tally[mask, version]
                sums[0, SPLITS.index(split), classes] += 1
                sums[1, SPLITS.index(split), classes] += counts
                read += 1
        images[version], pixels[version] = (dict(zip(SPLITS, part.tolist(), strict=True)) for part in sums)
    return MaskCounts(images, pixels, read, total)
