"""Samples on several rows: relabelled ones are welcome; contradictions, repetitions and leaks are not."""

import hashlib
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from leco.data.cells import SPLITS, is_period
from leco.data.problems import Fault, Problem
from leco.data.table import Table

NO_PERIOD = -1
_TAIL = 4096  # bytes; enough to tell almost all files of equal size apart


def check_repeats(table: Table, samples: Sequence[int], targets: Sequence[str]) -> Iterator[Problem]:
    """A sample has one label per version: a repetition is a problem, and of two labels both are.

    `samples` are the samples of the rows (-1: none), `targets` their labels or normalised mask paths.
    """
    groups: dict[tuple[int, str], list[int]] = defaultdict(list)
    for place, key in enumerate(zip(samples, table["version"], strict=True)):
        if key[0] >= 0:
            groups[key].append(place)
    for (_, version), places in groups.items():
        if len(places) == 1:
            continue
        under = f" under {version}" if version else ""
        if len({targets[place] for place in places}) == 1:
            for place in places[1:]:
                fault = Fault("repeated sample", f"is the same sample as in {table.name(places[0])}{under}")
                yield table.problem(place, fault)
            continue
        second = next(place for place in places if targets[place] != targets[places[0]])
        for place in places:
            other = second if targets[place] == targets[places[0]] else places[0]
            what = f"the {table.target} {targets[place]!r}{under}, but {targets[other]!r} in {table.name(other)}"
            yield table.problem(place, Fault("contradicting labels", f"has {what}"))


def resolve_splits(table: Table, samples: Sequence[int]) -> tuple[dict[int, str], list[Problem]]:
    """The split of every sample: what any of its rows says, else train; of two splits the test set keeps the sample."""
    first = _first_of_each(samples, table["split"], SPLITS)
    chosen = {sample: max(places, key=SPLITS.index) for sample, places in first.items()}
    problems = []
    for place, (sample, split) in enumerate(zip(samples, table["split"], strict=True)):
        if sample >= 0 and split in SPLITS and split != chosen[sample]:
            better = chosen[sample]
            message = f"is in {split} here, but in {better} in {table.name(first[sample][better])}"
            problems.append(table.problem(place, Fault("leak", message)))
    return {sample: chosen.get(sample, "train") for sample in samples if sample >= 0}, problems


def resolve_periods(table: Table, samples: Sequence[int]) -> tuple[dict[int, int], list[Problem]]:
    """The period of every sample: what any of its rows says; a second one contradicts the first."""
    periods = [str(int(period)) if is_period(period) else "" for period in table["period"]]
    first = _first_of_each(samples, periods, set(periods) - {""})
    problems = []
    for place, (sample, period) in enumerate(zip(samples, periods, strict=True)):
        if sample >= 0 and period and period != (given := next(iter(first[sample]))):
            message = f"is in period {period} here, but in {given} in {table.name(first[sample][given])}"
            fault = Fault("contradicting periods", f"{message}; a sample belongs to one period")
            problems.append(table.problem(place, fault))
    found = {sample: int(next(iter(first[sample]))) if sample in first else NO_PERIOD for sample in samples}
    return {sample: period for sample, period in found.items() if sample >= 0}, problems


def _first_of_each(
    samples: Sequence[int], values: Sequence[str], valid: Sequence[str] | set[str]
) -> dict[int, dict[str, int]]:
    """For every sample, the valid values its rows have, and the first row of each."""
    first: dict[int, dict[str, int]] = {}
    for place, (sample, value) in enumerate(zip(samples, values, strict=True)):
        if sample >= 0 and value in valid:
            first.setdefault(sample, {}).setdefault(value, place)
    return first


def identical_files(root: Path, sizes: Mapping[str, int], splits: Mapping[str, str]) -> dict[str, Fault]:
    """Files with the bytes of another one in a split that should be kept clean of them (test, then val)."""
    faults = {}
    for files in same_bytes(root, sizes, lambda some: len({splits[file] for file in some}) > 1):
        best = max(files, key=lambda file: SPLITS.index(splits[file]))
        for file in files:
            if splits[file] != splits[best]:
                message = f"is in {splits[file]} and has the very bytes of {best}, which is in {splits[best]}"
                faults[file] = Fault("leak", message)
    return faults


def same_bytes(root: Path, sizes: Mapping[str, int], matters: Callable[[list[str]], bool]) -> list[list[str]]:
    """Groups of files, of given sizes, that have the very same bytes; those that do not matter are not looked at.

    Only files of equal size are opened, and only those with the same end are read whole.
    """
    same_size: dict[int, list[str]] = defaultdict(list)
    for file, size in sizes.items():
        same_size[size].append(file)
    groups = [files for files in same_size.values() if matters(files)]
    for start in (-_TAIL, 0):
        finer = []
        for files in groups:
            same: dict[bytes, list[str]] = defaultdict(list)
            for file in files:
                same[_digest(root / file, max(0, sizes[file] + start) if start else 0)].append(file)
            finer += [some for some in same.values() if matters(some)]
        groups = finer
    return groups


def _digest(path: Path, start: int) -> bytes:
    try:
        with path.open("rb") as file:
            file.seek(start)
            return hashlib.file_digest(file, "blake2b").digest()
    except OSError:  # decoding it says so
        return str(path).encode()
