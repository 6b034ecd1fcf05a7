"""The mapping between two versions, read off samples or pixels that were labelled in both (appendix C of the paper)."""

import csv
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from leco.errors import LecoError, nearest
from leco.ontology.ontology import Ontology
from leco.ontology.schema import parse

Status = Literal["decided", "mixed", "rare", "unseen"]

MEANING: dict[Status, str] = {
    "decided": "most of it surely was the parent",
    "mixed": "no old class surely held more than half: a merge, or a redrawn class",
    "rare": "seen in too few samples to decide, even where all agree",
    "unseen": "never seen together with an old label",
}


@dataclass(frozen=True, eq=False)
class CoLabels:
    """How often each new class met each old class."""

    old: tuple[str, ...]
    new: tuple[str, ...]
    counts: Any  # scipy.sparse.csr_array (num_new, num_old): samples, or pixels
    seen_in: NDArray[np.int64]  # (num_new,): samples, or images; pixels of one image are not independent
    ignored: tuple[tuple[str, ...], tuple[str, ...]] = ((), ())  # labels of old and new that say nothing

    @property
    def shares(self) -> Any:
        """The row-stochastic transition (sparse; empty rows for classes never seen)."""
        totals = self.counts.sum(axis=1)
        return sparse.diags_array(np.divide(1.0, totals, out=np.zeros(len(totals)), where=totals > 0)) @ self.counts

    @classmethod
    def count(cls, pairs: Iterable[tuple[str, str]], ignore: Iterable[str] = ()) -> "CoLabels":
        """Count (old, new) labels of samples; a pair with an empty or ignored label is skipped.

        >>> CoLabels.count([("dog", "husky"), ("dog", "poodle"), ("cat", "")]).counts.toarray()
        array([[1],
               [1]])
        """
        tally = Counter(pairs)
        silent = set(ignore)
        seen = [{pair[side] for pair in tally} - {""} for side in (0, 1)]
        for label in silent - seen[0] - seen[1]:
            raise LecoError(f"the ignored label {label!r} does not occur{nearest(label, sorted(seen[0] | seen[1]))}")
        found = {pair: count for pair, count in tally.items() if all(pair) and not silent.intersection(pair)}
        if not found:
            raise LecoError("no sample is labelled in both versions")
        row = {name: index for index, name in enumerate(dict.fromkeys(new for _, new in found))}
        column = {name: index for index, name in enumerate(dict.fromkeys(old for old, _ in found))}
        cells = [row[new] for _, new in found], [column[old] for old, _ in found]
        counts = sparse.csr_array((list(found.values()), cells), shape=(len(row), len(column)))
        ignored = tuple(sorted(seen[0] & silent)), tuple(sorted(seen[1] & silent))
        return cls(tuple(column), tuple(row), counts, counts.sum(axis=1), ignored)


def read_pairs(path: Path, old: str, new: str) -> Iterator[tuple[str, str]]:
    """Yield the two labels of every row of a CSV file, however long."""
    if old == new:
        raise LecoError(f"{path}: the old and the new labels are in the same column, {old!r}")
    if not path.is_file():
        raise LecoError(f"{path}: there is no such file")
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            reader = csv.reader(file, strict=True)
            header = next(reader, [])
            for column in (old, new):
                if header.count(column) != 1:
                    problem = "several columns" if column in header else "no column"
                    raise LecoError(f"{path}: has {problem} {column!r}{nearest(column, header)}")
            places = header.index(old), header.index(new)
            for row in reader:
                if len(row) > len(header):
                    raise LecoError(f"{path}:{reader.line_num}: {len(row)} cells, but the header names {len(header)}")
                cells = [*row, *[""] * (len(header) - len(row))]
                yield cells[places[0]].strip(), cells[places[1]].strip()
    except UnicodeDecodeError as error:
        byte = error.object[error.start]
        raise LecoError(
            f"{path}: after line {reader.line_num}: byte 0x{byte:02x} is not UTF-8; save it as UTF-8"
        ) from None
    except csv.Error as error:
        raise LecoError(f"{path}:{reader.line_num}: is not CSV: {error}") from None
    except OSError as error:
        raise LecoError(f"{path}: cannot be read: {error.strerror}") from None


@dataclass(frozen=True)
class Parent:
    """What the data say of one new class."""

    new: str
    parent: str  # the majority parent, "" where the class was never seen
    agreeing: int  # of `count`, how many were the parent
    at_least: float  # lower end of the share's 95 % interval (Wilson), over the samples or images it was seen in
    count: int  # samples, or pixels
    seen_in: int  # samples, or images
    status: Status

    @property
    def share(self) -> float:
        """The share that agrees with the parent."""
        return self.agreeing / self.count if self.count else 0.0

    @property
    def conflict(self) -> float:
        """The share that disagrees with the parent."""
        return 1 - self.share if self.count else 0.0


def parents(colabels: CoLabels) -> list[Parent]:
    """The majority parent of every new class (the paper's procedure), and how sure it is."""
    return [_parent(colabels, row) for row in range(len(colabels.new))]


def _parent(colabels: CoLabels, row: int) -> Parent:
    start, stop = colabels.counts.indptr[row : row + 2]
    counts = colabels.counts.data[start:stop]
    total, seen_in = int(counts.sum()), int(colabels.seen_in[row])
    if not total:
        return Parent(colabels.new[row], "", 0, 0.0, 0, 0, "unseen")
    best = int(np.argmax(counts))
    at_least = _wilson_lower(counts[best] / total, seen_in)
    status: Status = "decided" if at_least > 0.5 else "mixed" if _wilson_lower(1.0, seen_in) > 0.5 else "rare"
    parent = colabels.old[colabels.counts.indices[start + best]]
    return Parent(colabels.new[row], parent, int(counts[best]), at_least, total, seen_in, status)


def _wilson_lower(share: float, n: int, z: float = 1.96) -> float:
    centre = share + z * z / (2 * n)
    spread = z * np.sqrt(share * (1 - share) / n + z * z / (4 * n * n))
    return float((centre - spread) / (1 + z * z / n))


def infer(
    colabels: CoLabels,
    name: str = "inferred",
    versions: tuple[str, str] = ("v1", "v2"),
    kind: Literal["tree", "soft"] = "tree",
    min_share: float = 0.01,
) -> Ontology:
    """Build the ontology of two versions from co-labelled data.

    `tree` gives every new class its majority parent, as the paper does; `soft` keeps the measured shares of at least
    `min_share` (one stray label would link two classes for ever), and so also says what was merged. A class never seen
    is kept if an old one has its name, else it has no parent: `parents` lists it, for a person to decide. An old class
    that no new one comes from (a merged one, in a tree) is ignored from then on: its labels say nothing.
    """
    if not 0 <= min_share < 1:
        raise LecoError(f"min_share must be at least 0 and below 1, not {min_share}")
    classes: dict[str, dict[str, Any] | None] = {}
    shares = colabels.shares.tocsr()
    for row, found in enumerate(parents(colabels)):
        start, stop = shares.indptr[row : row + 2]
        kept = {
            colabels.old[i]: float(s)
            for i, s in zip(shares.indices[start:stop], shares.data[start:stop], strict=True)
            if s >= min_share or colabels.old[i] == found.parent
        }
        if not found.parent:
            classes[found.new] = None
        elif kind == "tree" or len(kept) == 1:
            classes[found.new] = {"from": found.parent}
        else:
            total = sum(kept.values())
            classes[found.new] = {"from": {parent: share / total for parent, share in kept.items()}}
    silent = [*colabels.ignored[1], *(old for old in childless(colabels, classes) if old not in classes)]
    content: list[dict[str, Any]] = [
        {"name": versions[0], "classes": list(colabels.old), "ignore": list(colabels.ignored[0])},
        {"name": versions[1], "classes": classes, "ignore": list(dict.fromkeys(silent))},
    ]
    return parse({"name": name, "versions": content})


def childless(colabels: CoLabels, classes: dict[str, dict[str, Any] | None]) -> list[str]:
    """Old classes that none of the new ones, as they will be written, comes from."""
    parents_named: set[str] = set()
    for name, spec in classes.items():
        origin = name if spec is None else spec["from"]
        parents_named.update([origin] if isinstance(origin, str) else origin)
    return [old for old in colabels.old if old not in parents_named]
