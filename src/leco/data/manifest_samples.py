"""Own data: samples, training sets and test sets of a checked manifest."""

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from leco.data.images import letterbox, letterbox_mask, letterbox_size, middle_square
from leco.data.manifest import decode
from leco.data.manifest.manifest import Manifest
from leco.data.masks import decode_mask
from leco.data.periods import Annotated, Part, seeded, stratified_sets
from leco.data.samples import Column, Few, Files, InMemory, Samples
from leco.data.vectors import inspect_features, load_features
from leco.errors import LecoError
from leco.ontology.ontology import Ontology
from leco.ontology.version import NO_LABEL

Read = Callable[[Manifest, Ontology, int], Samples]


def own_samples(
    manifest: Manifest,
    ontology: Ontology,
    side: int = 256,
    in_memory: int = decode.IN_MEMORY,
    *,
    read: Read | None = None,
) -> Samples:
    """The samples of a manifest, images as squares of `side` pixels; small sets are read into memory at once.

    Images that were decoded when the manifest was read are not decoded again. `read` is the reader of a modality,
    `lazy_samples` by default.
    """
    lazy = (read or lazy_samples)(manifest, ontology, side)
    if (decoded := _decoded(manifest, ontology, side)) is not None:
        masks: dict[str, Column] = {name: InMemory(labels) for name, labels in decoded.masks.items()}
        sizes = None if decoded.sizes is None else InMemory(decoded.sizes)
        images = InMemory(decoded.images)
        return Samples(images, masks or lazy.labels, sizes, keeps_labels=True, files=lazy.files)
    if not fits_memory(manifest, ontology, side, in_memory):
        return lazy
    labels = {version: _held(column) for version, column in lazy.labels.items()}
    held = None if lazy.sizes is None else _held(lazy.sizes)
    return Samples(_held(lazy.inputs), labels, held, keeps_labels=True, files=lazy.files)


def few_samples(manifest: Manifest, lazy: Samples, count: int) -> Samples:
    """Read a few evenly spread samples of `lazy`, in place of all of them, for measuring time."""
    chosen = _spread(np.arange(len(manifest)), count)
    labels = dict(lazy.labels)
    for version, masks in manifest.masks.items():
        drawn = np.flatnonzero([bool(mask) for mask in masks])
        labels[version] = _few(lazy.labels[version], _spread(drawn, count) if len(drawn) else chosen)
    sizes = None if lazy.sizes is None else _few(lazy.sizes, chosen)
    return Samples(_few(lazy.inputs, chosen), labels, sizes, keeps_labels=True)


def _decoded(manifest: Manifest, ontology: Ontology, side: int) -> decode.Decoded | None:
    """Decoded images of a manifest, if they are available and equal to what `lazy_samples` would read."""
    decoded = manifest.decoded
    if decoded is None or decoded.side != side or bool(manifest.masks) != (decoded.sizes is not None):
        return None
    same = not manifest.masks or list(decoded.masks) == [version.name for version in ontology.versions]
    return decoded if same else None


def fits_memory(manifest: Manifest, ontology: Ontology, side: int, limit: int = decode.IN_MEMORY) -> bool:
    """Whether all decoded images fit in memory; test samples do not count, unless there are no others."""
    versions = len(ontology.versions) if manifest.masks else 0
    count = int((manifest.split != "test").sum()) or len(manifest)
    return manifest.kind == "features" or decode.fits_memory(count, side, versions, limit)


def lazy_samples(manifest: Manifest, ontology: Ontology, side: int) -> Samples:
    """Samples of a manifest: features in memory, files read on demand."""
    paths = [manifest.root / path for path in manifest.inputs]
    labels: dict[str, Column] = {}
    for version in ontology.versions:
        if manifest.masks:
            drawn = manifest.masks.get(version.name, ("",) * len(manifest))
            of_samples = [manifest.root / mask if mask else Path() for mask in drawn]
            labels[version.name] = Files(of_samples, partial(_mask_or_none, side=side))
        else:
            given = manifest.labels.get(version.name)
            known = torch.full((len(manifest),), NO_LABEL) if given is None else torch.from_numpy(given)
            labels[version.name] = InMemory(known)
    if manifest.kind == "features":
        features = torch.from_numpy(load_features(manifest.root, manifest.inputs))
        return Samples(InMemory(features), labels, keeps_labels=True)
    if not manifest.masks:
        return Samples(Files(paths, partial(middle_square, side=side)), labels, keeps_labels=True, files=paths)
    images, sizes = (Files(paths, partial(read, side=side)) for read in (letterbox, letterbox_size))
    return Samples(images, labels, sizes, keeps_labels=True, files=paths)


def _held(column: Column) -> Column:
    return column.held() if isinstance(column, Files) else column


def _few(column: Column, chosen: Tensor) -> Column:
    return Few(column.read(chosen), len(column)) if isinstance(column, Files) else column


def _spread(among: NDArray[np.int64], count: int) -> Tensor:
    """At most `count` of some indices, evenly spread."""
    places = np.linspace(0, len(among) - 1, min(count, len(among))).round().astype(np.int64)
    return torch.from_numpy(among[places])


def _mask_or_none(path: Path, side: int) -> Tensor:
    if path == Path():
        return torch.full((side, side), NO_LABEL, dtype=torch.int16)
    return letterbox_mask(decode_mask(path), side)


def own_annotated(manifest: Manifest, ontology: Ontology, seed: int = 0) -> Annotated:
    """Samples that a model of the ontology's newest version may train on; use `ontology.until` for earlier periods.

    Every training sample is used once, with its newest label; samples without a label are history. Samples of a later
    period, or labelled in later versions only, are excluded. Without a `val` split, a stratified fifth of the samples
    with newest labels is held out.
    """
    newest = _newest_label(manifest, ontology)
    period = len(ontology.versions) - 1
    available = (manifest.period <= period) & (newest > _LATER)
    train = (manifest.split == "train") & available
    parts = [
        Part(version.name, torch.from_numpy(np.flatnonzero(train & (newest == position))))
        for position, version in enumerate(ontology.versions)
    ]
    unlabelled = Part(ontology.newest.name, torch.from_numpy(np.flatnonzero(train & (newest == NO_LABEL))))
    if not len(parts[-1].indices):
        raise LecoError(f"no training sample is labelled in {ontology.newest.name}; label some")
    held_out = torch.from_numpy(np.flatnonzero((manifest.split == "val") & available & (newest == period)))
    if not len(held_out):
        parts[-1], held_out = _hold_out(parts[-1], manifest, seed)
    history = tuple(part for part in (*parts[:-1], unlabelled) if len(part.indices))
    return Annotated(parts[-1], history, Part(ontology.newest.name, held_out))


def own_test(manifest: Manifest, ontology: Ontology) -> Part:
    """The test samples that have a label of the ontology's newest version."""
    newest = _newest_label(manifest, ontology)
    chosen = (manifest.split == "test") & (newest == len(ontology.versions) - 1)
    return Part(ontology.newest.name, torch.from_numpy(np.flatnonzero(chosen)))


_LATER = -2  # has labels, but only of versions that this ontology does not have yet


def _newest_label(manifest: Manifest, ontology: Ontology) -> "np.ndarray[tuple[int], np.dtype[np.int64]]":
    """Index of the newest version that each sample has a label of; -1 for none, -2 for later versions only."""
    labelled = manifest.labelled()
    known = [version.name for version in ontology.versions]
    newest = np.full(len(manifest), NO_LABEL, dtype=np.int64)
    for version, has_label in labelled.items():
        if version not in known:
            newest[has_label] = _LATER
    for position, version in enumerate(known):
        if version in labelled:
            newest[labelled[version]] = position
    return newest


def _hold_out(part: Part, manifest: Manifest, seed: int) -> tuple[Part, Tensor]:
    strata = torch.zeros(len(part.indices), dtype=torch.int64)
    if part.version in manifest.labels:
        strata = torch.from_numpy(manifest.labels[part.version])[part.indices]
    size = max(1, len(strata) // 5)
    kept, held_out = stratified_sets(strata, [len(strata) - size, size], seeded(seed))
    if not len(kept):
        raise LecoError(f"only one sample is labelled in {part.version}, too few to train and validate; label more")
    return Part(part.version, part.indices[kept]), part.indices[held_out]


def check_files(manifest: Manifest, ontology: Ontology, chosen: Sequence[int], *, width: int | None) -> None:
    """Refuse masks with unknown values or of another size than their image, and vectors of another width."""
    if manifest.kind == "features":
        names = [manifest.inputs[index] for index in chosen]
        for name, fault in inspect_features(manifest.root, names, lambda *_: None, width).items():
            raise LecoError(f"{manifest.root / name}: {fault.message}")
    rules = {version: decode.MaskRule.of(ontology, version) for version in manifest.masks}
    pictures = [
        decode.Picture(
            manifest.inputs[index], tuple((masks[index], v) for v, masks in manifest.masks.items() if masks[index])
        )
        for index in (chosen if rules else ())
    ]
    for _, file, _, fault in decode.inspect_pictures(manifest.root, pictures, rules):
        raise LecoError(f"{manifest.root / file}: {fault.message}")
