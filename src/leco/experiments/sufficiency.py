"""Whether there are labels enough of every newest class, to learn it and to test it."""

import numpy as np
from numpy.typing import NDArray

from leco.data.cells import SPLITS
from leco.data.manifest import Manifest
from leco.data.mask_counts import MaskCounts
from leco.ontology.ontology import Ontology
from leco.ontology.version import Version

FEW = 5  # training labels: fewer are hardly enough, as some of them are held out
_SHOWN = 12  # classes


def enough_labels(
    manifest: Manifest, ontology: Ontology, history: bool, masks: MaskCounts | None = None
) -> tuple[list[str], list[str]]:
    """Problems (nothing can be learnt of a class) and warnings; `history` says that older labels are learnt from.

    A class without a newest label can still be learnt from an old one that can mean nothing else. Of masks, the images
    that a class is in count; where not all of them were read, nothing is a problem for sure.
    """
    newest = ontology.newest
    label, note = ("label", "") if masks is None else ("image that shows it", masks.note)
    labels = "labels" if masks is None else "images that show it"
    counts = _counts(manifest, newest, masks)
    exact = _exact_older_labels(manifest, ontology, masks)
    none = [c for c in range(len(newest)) if not counts["train"][c] and not (history and exact[c])]
    old = [c for c in range(len(newest)) if not counts["train"][c] and history and exact[c]]
    few = [c for c in range(len(newest)) if 0 < counts["train"][c] < FEW]
    problems: list[str] = []
    warnings: list[str] = []
    if none:
        remedy = f"label some, or take them out of {newest.name}"
        text = f"{_classes(none)} of {newest.name} without any training {label}{note}"
        (warnings if note else problems).append(f"{text}: {_names(ontology, none)}; {remedy}")
    if old:
        seen = {c: int(exact[c]) for c in old}
        warnings.append(f"{_classes(old)} of {newest.name} with older labels only{note}: {_names(ontology, old, seen)}")
    if few:
        seen = {c: counts["train"][c] for c in few}
        text = f"{_classes(few)} of {newest.name} with fewer than {FEW} training {labels}{note}"
        warnings.append(f"{text}: {_names(ontology, few, seen)}")
    if not any(counts["test"]):
        warnings.append(f"no test sample is labelled in {newest.name}{note}: nobody will know how good the model is")
    elif untested := [c for c in range(len(newest)) if not counts["test"][c]]:
        text = f"{_classes(untested)} of {newest.name} without a test {label}{note}"
        warnings.append(f"{text}, so how well they are known will not be seen: {_names(ontology, untested)}")
    return problems, warnings


def _counts(manifest: Manifest, version: Version, masks: MaskCounts | None) -> dict[str, list[int]]:
    """How many labels of each class there are, or images that show it, in every split."""
    if masks is None:
        return manifest.counts(version)
    return masks.images.get(version.name, {split: [0] * len(version) for split in SPLITS})


def _exact_older_labels(manifest: Manifest, ontology: Ontology, masks: MaskCounts | None) -> NDArray[np.int64]:
    """For every newest class, how many older training labels can mean that class only."""
    found = np.zeros(len(ontology.newest), dtype=np.int64)
    for version in ontology.versions[:-1]:
        table = ontology.transition(ontology.newest.name, version.name).sparse
        counts = np.array(_counts(manifest, version, masks)["train"])
        only = np.bincount(table.indices, minlength=len(version)) == 1
        found += (table > 0).astype(np.int64) @ np.where(only, counts, 0)
    return found


def _classes(some: list[int]) -> str:
    return f"{len(some):,} class{'es' if len(some) > 1 else ''}"


def _names(ontology: Ontology, some: list[int], counts: dict[int, int] | None = None) -> str:
    shown = [f"{ontology.newest.handle(c)!r}" + (f" ({counts[c]:,})" if counts else "") for c in some[:_SHOWN]]
    return ", ".join(shown) + (", …" if len(some) > _SHOWN else "")
