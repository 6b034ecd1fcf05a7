"""Manifests: which samples there are, and their labels under every version; see `docs/reference/manifest.md`."""

import random
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from leco.data import SPLITS
from leco.data.manifest.checks import (
    check_repeats,
    check_splits_and_periods,
    check_versions,
    encode_labels,
    identical_files,
    look,
    normalise,
    resolve_periods,
    resolve_splits,
)
from leco.data.manifest.decode import Decoded, MaskRule, Picture, Tally, fits_memory, inspect_pictures
from leco.data.manifest.table import Fault, Problem, Problems, Table, check_columns, read_table
from leco.data.vectors import Tick, inspect_features, parse_features
from leco.errors import LecoError
from leco.ontology.ontology import Ontology
from leco.ontology.version import NO_LABEL, Version


@dataclass(frozen=True, eq=False)
class Manifest:
    """Samples and their labels under every version."""

    root: Path
    inputs: tuple[str, ...]  # paths below root, one per sample
    kind: Literal["image", "features"]
    labels: dict[str, NDArray[np.int64]]  # version -> class index per sample, -1 for none; empty if there are masks
    masks: dict[str, tuple[str, ...]]  # version -> path of the mask per sample, "" for none
    split: NDArray[np.str_]  # (num_samples,): train, val or test
    period: NDArray[np.int64]  # (num_samples,): -1 where it was not given
    tally: Tally = field(default_factory=dict, repr=False)  # of the masks that were decoded
    decoded: Decoded | None = field(default=None, repr=False)  # the pixels, if they were to be kept

    def __len__(self) -> int:
        return len(self.inputs)

    def labelled(self) -> dict[str, NDArray[np.bool_]]:
        """Return, for every version that occurs, which samples have a label or mask of it."""
        masked = {version: np.array([bool(mask) for mask in masks]) for version, masks in self.masks.items()}
        return {version: labels >= 0 for version, labels in self.labels.items()} | masked

    def counts(self, version: Version) -> dict[str, list[int]]:
        """Return the number of labels of each class of a version, by split."""
        labels = self.labels.get(version.name, np.full(len(self), NO_LABEL))
        chosen = {split: labels[(self.split == split) & (labels >= 0)] for split in SPLITS}
        return {split: np.bincount(some, minlength=len(version)).tolist() for split, some in chosen.items()}


class NoRowsError(LecoError):
    """Every row has a problem."""

    def __init__(self, problems: Problems) -> None:
        self.problems = problems
        super().__init__(f"{problems}\nno rows are left")


def read_manifest(
    source: Path | str | Table,
    ontology: Ontology,
    *,
    root: Path | str | None = None,
    decode: bool = True,
    side: int | None = None,
    most: int | None = None,
    skip_bad: bool = False,
    without: str = "",
    tick: Tick = lambda done, total: None,
) -> tuple[Manifest, Problems]:
    """Read and check a manifest: a .csv, .jsonl or .parquet file, or a `Table` that was read already.

    Paths are relative to `root`, by default the folder of the file. All problems are raised as one error; with
    `skip_bad`, rows with a problem are dropped and the problems are returned. `without` leaves out a split: its rows
    are not checked, and its files not even looked for.

    `decode` opens every file, which is slow, so that training never meets a broken one; it also finds byte-identical
    files in different splits. Of more than `most` images, it opens only that many, always the same. With a `side`, the
    images are kept as `Manifest.decoded`, scaled to squares of that side, so that no file has to be decoded again,
    unless they are too large for memory (`fits_memory`). `tick(done, total)` reports progress.
    """
    table = source if isinstance(source, Table) else read_table(Path(source))
    if without:
        table = _without(table, without)
    beside = table.source if table.source.is_dir() else table.source.parent
    folder = beside if root is None else Path(root)
    if not folder.is_dir():
        raise LecoError(f"{folder}: no such folder")
    problems = Problems(table.source, rows=len(table) + len(table.broken))
    problems.extend(table.broken)
    if whole := list(check_columns(table)):
        problems.extend(whole)
        problems.raise_any()  # without its columns, no row can be checked
    rows = _Rows.check(table, ontology, problems)
    sizes, faults = look(folder, dict.fromkeys([*rows.files.values(), *filter(None, rows.masks)]))
    missing = {path: faults[file] for path, file in rows.files.items() if file in faults}
    problems.extend([*rows.at(rows.inputs, missing), *rows.at(rows.masks, faults)])
    tally: Tally = {}
    decoded = None
    if decode and table.kind == "features":
        found = [path for path, file in rows.files.items() if file in sizes]
        problems.extend(rows.at(rows.inputs, inspect_features(folder, found, tick)))
    elif decode:
        pictures = rows.pictures(sizes)
        if most is not None and len(pictures) > most:  # at random, as rows may alternate
            chosen = sorted(random.Random(0).sample(range(len(pictures)), most))
            pictures, side = [pictures[number] for number in chosen], None
        decoded = None if side is None else rows.allocate(pictures, side)
        problems.extend(rows.inspect(folder, pictures, tick=tick, tally=tally, keep=decoded))
    if decode:
        parts = {path: rows.splits[path] for path, file in rows.files.items() if file == path and file in sizes}
        same = identical_files(folder, {path: sizes[path] for path in parts}, parts)
        problems.extend(rows.at(rows.inputs, same))
    bad = problems.places
    problems.dropped = len(bad) + len(table.broken)
    if not skip_bad:
        problems.raise_any()
    kept = [place for place in range(len(table)) if place not in bad]
    if not kept:
        raise NoRowsError(problems)
    return rows.manifest(folder, kept, tally, decoded), problems


def _without(table: Table, split: str) -> Table:
    """Return the rows whose samples are not in a split."""
    inputs, _ = _normalised(table, table.kind)
    splits, _ = resolve_splits(table, inputs)
    kept = [place for place, path in enumerate(inputs) if splits.get(path, table["split"][place]) != split]
    if len(table) and not kept:
        raise LecoError(f"{table.source}: all samples are in {split}; there is nothing to train on")
    return table.select(kept)


@dataclass(frozen=True, eq=False)
class _Rows:
    """The rows of a table after all checks that open no file."""

    table: Table
    ontology: Ontology
    inputs: list[str]  # normalised paths; "" if there is none
    masks: list[str]
    codes: NDArray[np.int64]  # class indices of the labels
    files: dict[str, str]  # the file that each input is in
    splits: dict[str, str]  # of each input
    periods: dict[str, int]

    @classmethod
    def check(cls, table: Table, ontology: Ontology, problems: Problems) -> "_Rows":
        """Check versions, labels, splits, periods, repetitions and paths."""
        problems.extend(check_versions(table, ontology))
        problems.extend(check_splits_and_periods(table, len(ontology.versions)))
        codes, bad_labels = encode_labels(table, ontology)
        inputs, bad_inputs = _normalised(table, table.kind)
        masks, bad_masks = _normalised(table, "mask")
        splits, leaks = resolve_splits(table, inputs)
        periods, bad_periods = resolve_periods(table, inputs)
        problems.extend([*bad_labels, *bad_inputs, *bad_masks])
        problems.extend(
            check_repeats(table, inputs, masks if table.target == "mask" else _handles(table, ontology, codes))
        )
        problems.extend([*leaks, *bad_periods])
        files = {path: _file(table, path) for path in dict.fromkeys(filter(None, inputs))}
        return cls(table, ontology, inputs, masks, codes, files, splits, periods)

    def at(self, paths: Sequence[str], faults: Mapping[str, Fault]) -> list[Problem]:
        """Return the problems of the rows whose path is faulty."""
        if not faults:
            return []
        return [self.table.problem(place, faults[path], path) for place, path in enumerate(paths) if path in faults]

    def pictures(self, sizes: Mapping[str, int]) -> list[tuple[str, Picture]]:
        """Return every input with the files of it that exist, which are those that have a size."""
        masks: dict[str, dict[tuple[str, str], None]] = {}
        for path, mask, version in zip(self.inputs, self.masks, self.table["version"], strict=True):
            if mask in sizes:
                masks.setdefault(path, {})[mask, version] = None
        images = dict.fromkeys([*(path for path in self.files if path in sizes), *masks])
        return [(path, Picture(path if path in sizes else None, tuple(masks.get(path, ())))) for path in images]

    def allocate(self, pictures: Sequence[tuple[str, Picture]], side: int) -> Decoded | None:
        """Reserve memory for all pixels, if they fit; samples for testing do not count, unless all are."""
        images = self.test_last(path for path, picture in pictures if picture.image is not None)
        versions = [version.name for version in self.ontology.versions] if self.table.target == "mask" else None
        count = sum(self.splits[path] != "test" for path in images) or len(images)
        fits = fits_memory(count, side, len(versions or ()))
        return Decoded.allocate(images, side, versions) if fits else None

    def inspect(
        self, root: Path, pictures: Sequence[tuple[str, Picture]], *, tick: Tick, tally: Tally, keep: Decoded | None
    ) -> list[Problem]:
        """Decode pictures and return the problems of the rows that name a faulty file."""
        versions = {version.name for version in self.ontology.versions}.intersection(self.table["version"])
        rules = {name: MaskRule.of(self.ontology, name) for name in versions} if any(self.masks) else {}
        opened = [picture for _, picture in pictures]
        faults = list(inspect_pictures(root, opened, rules, tick=tick, tally=tally, keep=keep))
        if not faults:
            return []
        rows: dict[tuple[str, str, str | None], list[int]] = defaultdict(list)
        for place, (path, mask, version) in enumerate(zip(self.inputs, self.masks, self.table["version"], strict=True)):
            rows[path, path, None].append(place)
            rows[path, mask, version].append(place)
        return [
            self.table.problem(place, fault, file)
            for number, file, version, fault in faults
            for place in rows[pictures[number][0], file, version]
        ]

    def test_last(self, inputs: Iterable[str]) -> tuple[str, ...]:
        """Return distinct inputs, those for testing last: so the indices of the others do not depend on them."""
        return tuple(sorted(dict.fromkeys(inputs), key=lambda path: self.splits[path] == "test"))

    def manifest(self, root: Path, kept: Sequence[int], tally: Tally, decoded: Decoded | None) -> Manifest:
        """Turn the rows that are `kept` into samples."""
        paths = self.test_last(self.inputs[place] for place in kept)
        order = {path: index for index, path in enumerate(paths)}
        chosen = np.asarray(kept, dtype=np.int64)
        sample = np.array([order[self.inputs[place]] for place in kept], dtype=np.int64)
        given = np.array(self.table["version"], dtype=object)[chosen]
        labels: dict[str, NDArray[np.int64]] = {}
        masks: dict[str, tuple[str, ...]] = {}
        for version in self.ontology.versions:
            rows = np.flatnonzero(given == version.name)
            if not len(rows):
                continue
            if self.table.target == "label":
                labels[version.name] = np.full(len(paths), NO_LABEL, dtype=np.int64)
                labels[version.name][sample[rows]] = self.codes[chosen[rows]]
            else:
                drawn = (self.masks[place] for place in chosen[rows].tolist())
                of_sample = dict(zip(sample[rows].tolist(), drawn, strict=True))
                masks[version.name] = tuple(of_sample.get(index, "") for index in range(len(paths)))
        split = np.array([self.splits[path] for path in paths], dtype="<U5")
        period = np.array([self.periods[path] for path in paths], dtype=np.int64)
        pixels = None if decoded is None else decoded.select(paths, masks)
        return Manifest(root, paths, self.table.kind, labels, masks, split, period, tally, pixels)


def _handles(table: Table, ontology: Ontology, codes: NDArray[np.int64]) -> list[str]:
    """Return the labels by the handles of their classes: one may be written by its name or its id."""
    handles = {version.name: version.handles for version in ontology.versions}
    return [
        handles[version][code] if code >= 0 and version in handles else label
        for code, label, version in zip(codes.tolist(), table["label"], table["version"], strict=True)
    ]


def _normalised(table: Table, column: str) -> tuple[list[str], list[Problem]]:
    """Return normalised paths, "" for those that are wrong or empty, and their problems; inputs must not be empty."""
    known: dict[str, str | Fault] = {"": "" if column == "mask" else Fault("no input", f"{column} is empty")}
    paths, problems = [], []
    for place, value in enumerate(table[column]):
        if value not in known:
            known[value] = _normalised_features(value) if column == "features" else normalise(value)
        path = known[value]
        if isinstance(path, Fault):
            problems.append(table.problem(place, path, value))
        paths.append("" if isinstance(path, Fault) else path)
    return paths, problems


def _normalised_features(value: str) -> str | Fault:
    parsed = parse_features(value)
    if isinstance(parsed, Fault):
        return parsed
    file = normalise(parsed[0])
    return file if isinstance(file, Fault) or parsed[1] is None else f"{file}#{parsed[1]}"


def _file(table: Table, path: str) -> str:
    """Return the file that a normalised input is in."""
    if table.kind != "features":
        return path
    parsed = parse_features(path)
    return path if isinstance(parsed, Fault) else parsed[0]
