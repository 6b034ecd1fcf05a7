"""Infer the transition between two versions from samples or pixels labelled in both (appendix C of the paper)."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from leco.errors import LecoError, nearest
from leco.ontology.ontology import Ontology
from leco.ontology.schema import parse

MIN_SHARE = 0.01  # smaller shares are noise

Status = Literal["decided", "mixed", "rare", "unseen"]

MEANING: dict[Status, str] = {
    "decided": "significantly more than half was the parent",
    "mixed": "no old class is a significant majority: merged or redrawn",
    "rare": "seen in too few samples to decide",
    "unseen": "never labelled in both versions",
}


@dataclass(frozen=True, eq=False)
class CoLabels:
    """Counts of samples, or pixels, by new and old class."""

    old: tuple[str, ...]
    new: tuple[str, ...]
    counts: Any  # scipy.sparse.csr_array (num_new, num_old): samples, or pixels
    seen_in: NDArray[np.int64]  # (num_new,): samples, or images, as the pixels of an image are not independent
    ignored: tuple[tuple[str, ...], tuple[str, ...]] = ((), ())  # labels of old and new that are ignored

    @property
    def shares(self) -> Any:
        """The row-stochastic transition (sparse; rows of classes never seen are empty)."""
        totals = self.counts.sum(axis=1)
        return sparse.diags_array(np.divide(1.0, totals, out=np.zeros(len(totals)), where=totals > 0)) @ self.counts

    @classmethod
    def count(cls, pairs: Iterable[tuple[str, str]], ignore: Iterable[str] = ()) -> "CoLabels":
        """Count pairs of (old, new) labels; a pair with an empty or ignored label is skipped.

        >>> CoLabels.count([("dog", "husky"), ("dog", "poodle"), ("cat", "")]).counts.toarray()
        array([[1],
               [1]])
        """
        tally = Counter(pairs)
        skipped = set(ignore)
        seen = [{pair[side] for pair in tally} - {""} for side in (0, 1)]
        for label in skipped - seen[0] - seen[1]:
            raise LecoError(f"ignored label {label!r} does not occur{nearest(label, sorted(seen[0] | seen[1]))}")
        found = {pair: count for pair, count in tally.items() if all(pair) and not skipped.intersection(pair)}
        if not found:
            raise LecoError("no sample is labelled in both versions")
        row = {name: index for index, name in enumerate(dict.fromkeys(new for _, new in found))}
        column = {name: index for index, name in enumerate(dict.fromkeys(old for old, _ in found))}
        cells = [row[new] for _, new in found], [column[old] for old, _ in found]
        counts = sparse.csr_array((list(found.values()), cells), shape=(len(row), len(column)))
        ignored = tuple(sorted(seen[0] & skipped)), tuple(sorted(seen[1] & skipped))
        return cls(tuple(column), tuple(row), counts, counts.sum(axis=1), ignored)


@dataclass(frozen=True)
class Parent:
    """The majority parent of one new class."""

    new: str
    parent: str  # "" if the class was never seen
    agreeing: int  # how many of `count` were the parent
    at_least: float  # lower bound of the 95 % Wilson interval of the share, over `seen_in`
    count: int  # samples, or pixels
    seen_in: int  # samples, or images
    status: Status

    @property
    def share(self) -> float:
        """The fraction that was the parent."""
        return self.agreeing / self.count if self.count else 0.0

    @property
    def conflict(self) -> float:
        """The fraction that was another class."""
        return 1 - self.share if self.count else 0.0


def parents(colabels: CoLabels) -> list[Parent]:
    """Return the majority parent of every new class (the paper's procedure), and its confidence."""
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
    min_share: float = MIN_SHARE,
) -> Ontology:
    """Build the ontology of two versions from co-labelled data.

    `tree` gives every new class its majority parent, as the paper does; `soft` keeps the measured shares of at least
    `min_share` (a single wrong label would link two classes for ever), and so also represents merged classes. A class
    never seen is kept if an old one has its name; otherwise it has no parent, and `parents` lists it for a person to
    decide. An old class that no new one comes from (a merged one, in a tree) is ignored from then on.
    """
    if not 0 <= min_share < 1:
        raise LecoError(f"min_share must be in [0, 1), not {min_share}")
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
    ignored = [*colabels.ignored[1], *(old for old in _childless(colabels, classes) if old not in classes)]
    content: list[dict[str, Any]] = [
        {"name": versions[0], "classes": list(colabels.old), "ignore": list(colabels.ignored[0])},
        {"name": versions[1], "classes": classes, "ignore": list(dict.fromkeys(ignored))},
    ]
    return parse({"name": name, "versions": content})


def _childless(colabels: CoLabels, classes: dict[str, dict[str, Any] | None]) -> list[str]:
    """Return old classes that no new class, as it will be written, comes from."""
    parents_named: set[str] = set()
    for name, spec in classes.items():
        origin = name if spec is None else spec["from"]
        parents_named.update([origin] if isinstance(origin, str) else origin)
    return [old for old in colabels.old if old not in parents_named]
