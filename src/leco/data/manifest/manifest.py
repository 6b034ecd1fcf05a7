"""Manifests: which samples there are, and what each was labelled as under which version; see `docs/reference/manifest.md`."""

import random
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from leco.data.manifest.checks import (
    SPLITS,
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
from leco.data.manifest.decode import Picture, inspect_pictures
from leco.data.manifest.problems import Fault, Problem, Problems
from leco.data.manifest.table import Table, check_columns, read_table
from leco.data.masks import MaskRule, Tally
from leco.data.vectors import Tick, inspect_features, parse_features
from leco.errors import LecoError
from leco.ontology.ontology import Ontology
from leco.ontology.version import NO_LABEL, Version


@dataclass(frozen=True, eq=False)
class Manifest:
    """Samples and their labels under every version they were labelled in."""

    root: Path
    inputs: tuple[str, ...]  # paths below root, one per sample
    kind: Literal["image", "features"]
    labels: dict[str, NDArray[np.int64]]  # version -> class index per sample, -1 for none; empty if there are masks
    masks: dict[str, tuple[str, ...]]  # version -> path of the mask per sample, "" for none
    split: NDArray[np.str_]  # (num_samples,): train, val or test
    period: NDArray[np.int64]  # (num_samples,): -1 where it was not given

    def __len__(self) -> int:
        return len(self.inputs)

    def labelled(self) -> dict[str, NDArray[np.bool_]]:
        """For every version that occurs, which samples have a label, or a mask, of it."""
        masked = {version: np.array([bool(mask) for mask in masks]) for version, masks in self.masks.items()}
        return {version: labels >= 0 for version, labels in self.labels.items()} | masked

    def counts(self, version: Version) -> dict[str, list[int]]:
        """How often each class of a version was labelled, in every split."""
        labels = self.labels.get(version.name, np.full(len(self), NO_LABEL))
        chosen = {split: labels[(self.split == split) & (labels >= 0)] for split in SPLITS}
        return {split: np.bincount(some, minlength=len(version)).tolist() for split, some in chosen.items()}


class NoRowsError(LecoError):
    """All rows have a problem."""

    def __init__(self, problems: Problems) -> None:
        self.problems = problems
        super().__init__(f"{problems}\nno row is left")


def read_manifest(
    path: Path | str,
    ontology: Ontology,
    *,
    root: Path | str | None = None,
    decode: bool = True,
    most: int | None = None,
    skip_bad: bool = False,
    without: str = "",
    tick: Tick = lambda done, total: None,
) -> tuple[Manifest, Problems]:
    """Read and check a manifest (.csv, .jsonl, .parquet) whose paths are relative to `root`, or else to its folder.

    All problems are raised as one error; with `skip_bad`, the rows that have one are left out and the problems are
    returned. `decode` looks into every file, which takes long, so that training meets no broken one; it also finds
    equal files in different splits. Of more than `most` images, only so many are looked into, always the same.
    Samples of the split `without` are left out, whatever is wrong with them: their files are not even looked for.
    `tick(done, total)` is called as that proceeds.
    """
    path = Path(path)
    table, broken = read_table(path)
    if without:
        table = _without(table, without)
    folder = Path(root) if root is not None else path.parent
    return build_manifest(table, broken, folder, ontology, decode=decode, most=most, skip_bad=skip_bad, tick=tick)


def build_manifest(
    table: Table,
    broken: Sequence[Problem],
    root: Path,
    ontology: Ontology,
    *,
    decode: bool,
    skip_bad: bool,
    tick: Tick,
    most: int | None = None,
    tally: Tally | None = None,
) -> tuple[Manifest, Problems]:
    """Check a table, wherever it comes from; `broken` are problems met while reading it.

    What is in the masks that are looked into is noted in the `tally`, if there is one.
    """
    if not root.is_dir():
        raise LecoError(f"{root}: there is no such folder")
    problems = Problems(table.source, rows=len(table) + len(broken))
    problems.extend(broken)
    if whole := list(check_columns(table)):
        problems.extend(whole)
        problems.raise_any()  # without its columns, no row can be skipped
    problems.extend(check_versions(table, ontology))
    problems.extend(check_splits_and_periods(table, len(ontology.versions)))
    codes, wrong = encode_labels(table, ontology)
    problems.extend(wrong)

    inputs, wrong = _normalised(table, table.kind)
    problems.extend(wrong)
    masks, wrong = _normalised(table, "mask")
    problems.extend(wrong)
    numbers = _numbered(inputs)
    samples = [numbers.get(path, -1) for path in inputs]
    # A class may be called by its name or its id: what counts is which one it is.
    handles = {version.name: version.handles for version in ontology.versions}
    named = [
        handles[version][code] if code >= 0 and version in handles else label
        for code, label, version in zip(codes.tolist(), table["label"], table["version"], strict=True)
    ]
    problems.extend(check_repeats(table, samples, masks if table.target == "mask" else named))
    splits, wrong = resolve_splits(table, samples)
    problems.extend(wrong)
    periods, wrong = resolve_periods(table, samples)
    problems.extend(wrong)

    files = {path: _file(table, path) for path in numbers}
    sizes, faults = look(root, dict.fromkeys([*files.values(), *filter(None, masks)]))
    problems.extend(_at_rows(table, inputs, {path: faults[file] for path, file in files.items() if file in faults}))
    problems.extend(_at_rows(table, masks, faults))
    if decode:
        found = {path: file for path, file in files.items() if file in sizes}
        problems.extend(_look_inside(table, root, ontology, inputs, masks, found, sizes, most, tick, tally))
        parts = {path: splits[numbers[path]] for path, file in found.items() if file == path}
        same = identical_files(root, {path: sizes[path] for path in parts}, parts)
        problems.extend(_at_rows(table, inputs, same))

    bad = problems.places
    problems.dropped = len(bad) + len(broken)
    if not skip_bad:
        problems.raise_any()
    kept = [place for place in range(len(table)) if place not in bad]
    if not kept:
        raise NoRowsError(problems)
    return _assemble(table, root, ontology, kept, inputs, masks, codes, splits, periods, numbers), problems


def _file(table: Table, path: str) -> str:
    """The file that a normalised input is in."""
    if table.kind != "features":
        return path
    parsed = parse_features(path)
    return path if isinstance(parsed, Fault) else parsed[0]


def _normalised(table: Table, column: str) -> tuple[list[str], list[Problem]]:
    """Paths written in one way, "" where there is none; an input must be there."""
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


def _without(table: Table, split: str) -> Table:
    """The table less all rows of the samples of a split."""
    inputs, _ = _normalised(table, table.kind)
    numbers = _numbered(inputs)
    samples = [numbers.get(path, -1) for path in inputs]
    splits, _ = resolve_splits(table, samples)
    kept = [place for place, sample in enumerate(samples) if splits.get(sample, table["split"][place]) != split]
    if len(table) and not kept:
        raise LecoError(f"{table.source}: all samples are in {split}; there is nothing to learn from")
    columns = {name: [cells[place] for place in kept] for name, cells in table.columns.items()}
    return Table(table.source, columns, table.rows and tuple(table.rows[place] for place in kept))


def _numbered(inputs: Sequence[str]) -> dict[str, int]:
    """Every path that there is, and its number, in the order of their first rows."""
    return {path: number for number, path in enumerate(dict.fromkeys(path for path in inputs if path))}


def _normalised_features(value: str) -> str | Fault:
    parsed = parse_features(value)
    if isinstance(parsed, Fault):
        return parsed
    file = normalise(parsed[0])
    return file if isinstance(file, Fault) or parsed[1] is None else f"{file}#{parsed[1]}"


def _at_rows(table: Table, paths: Sequence[str], faults: dict[str, Fault]) -> list[Problem]:
    """Every row that names a faulty path."""
    if not faults:
        return []
    return [table.problem(place, faults[path], path) for place, path in enumerate(paths) if path in faults]


def _look_inside(
    table: Table,
    root: Path,
    ontology: Ontology,
    inputs: Sequence[str],
    masks: Sequence[str],
    found: dict[str, str],
    sizes: dict[str, int],
    most: int | None,
    tick: Tick,
    tally: Tally | None,
) -> list[Problem]:
    """Read every file that is there, or, of more than `most` images, so many."""
    if table.kind == "features":
        return _at_rows(table, inputs, inspect_features(root, list(found), tick))
    belongs: dict[str, dict[tuple[str, str], list[int]]] = {path: {} for path in dict.fromkeys(inputs) if path in found}
    places: dict[str, list[int]] = {}
    for place, (path, mask, version) in enumerate(zip(inputs, masks, table["version"], strict=True)):
        places.setdefault(path, []).append(place)
        if mask in sizes:
            belongs.setdefault(path, {}).setdefault((mask, version), []).append(place)
    names = {version.name for version in ontology.versions}
    rules = {name: MaskRule.of(ontology, name) for name in names.intersection(table["version"])} if any(masks) else {}
    images = list(belongs)
    if most is not None and len(images) > most:
        images = [images[n] for n in sorted(random.Random(0).sample(range(len(images)), most))]  # rows may alternate
    pictures = [Picture(path if path in found else None, tuple(belongs[path])) for path in images]
    problems = []
    for number, file, version, fault in inspect_pictures(root, pictures, rules, tick, tally):
        image = images[number]
        whole = file == image and (file, version) not in belongs[image]
        rows = places[image] if whole else belongs[image][file, version]
        problems += [table.problem(place, fault, file) for place in rows]
    return problems


def _assemble(
    table: Table,
    root: Path,
    ontology: Ontology,
    kept: Sequence[int],
    inputs: Sequence[str],
    masks: Sequence[str],
    codes: NDArray[np.int64],
    splits: dict[int, str],
    periods: dict[int, int],
    numbers: dict[str, int],
) -> Manifest:
    """Turn rows that are all right into samples, in the order of their first rows, but test samples last.

    So what is learned does not depend on which numbers test samples have.
    """
    found = dict.fromkeys(inputs[place] for place in kept)
    paths = tuple(sorted(found, key=lambda path: splits[numbers[path]] == "test"))
    order = {path: index for index, path in enumerate(paths)}
    chosen = np.asarray(kept, dtype=np.int64)
    sample = np.array([order[inputs[place]] for place in kept], dtype=np.int64)
    given = np.array(table["version"], dtype=object)[chosen]
    labels: dict[str, NDArray[np.int64]] = {}
    drawn: dict[str, tuple[str, ...]] = {}
    for version in ontology.versions:
        rows = np.flatnonzero(given == version.name)
        if not len(rows):
            continue
        if table.target == "label":
            labels[version.name] = np.full(len(paths), NO_LABEL, dtype=np.int64)
            labels[version.name][sample[rows]] = codes[chosen[rows]]
        else:
            of_sample = dict(zip(sample[rows].tolist(), (masks[place] for place in chosen[rows].tolist()), strict=True))
            drawn[version.name] = tuple(of_sample.get(index, "") for index in range(len(paths)))
    split = np.array([splits[numbers[path]] for path in paths], dtype="<U5")
    period = np.array([periods[numbers[path]] for path in paths], dtype=np.int64)
    kind: Literal["image", "features"] = "features" if table.kind == "features" else "image"
    return Manifest(root, paths, kind, labels, drawn, split, period)
