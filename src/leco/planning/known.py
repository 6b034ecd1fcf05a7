"""Rows of features and the labels known for them, before anything new is annotated.

A sample is one row, or, in segmentation, a few pixels. Test samples are left out.
"""

import math
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from leco.errors import LecoError
from leco.ontology.evidence import UNLABELLED, Evidence

NEWEST, VALIDATION, HISTORY = range(3)


@dataclass(frozen=True, eq=False)
class Known:
    """Features, sample, label and part of the data of every row."""

    evidence: Evidence
    features: Tensor  # (rows, d)
    sample: Tensor  # (rows,) index into the pool
    labels: Tensor  # (rows,) row ids of evidence
    part: Tensor  # (rows,) NEWEST, VALIDATION or HISTORY

    @property
    def num_classes(self) -> int:
        """Number of newest classes."""
        return self.evidence.num_classes

    @cached_property
    def classes(self) -> Tensor:
        """Newest class of each row, -1 in history."""
        first = self.evidence.offsets[self.evidence.ontology.newest.name]
        return (self.labels - first).where(self.part != HISTORY, -1)

    def samples(self, part: int) -> Tensor:
        """Return the samples of a part in ascending order."""
        found: Tensor = self.sample[self.part == part].unique()  # type: ignore[no-untyped-call]
        return found

    def rows(self, samples: Tensor) -> Tensor:
        """Return the rows of the given samples, in the order of rows."""
        return torch.isin(self.sample, samples).nonzero().flatten()

    @cached_property
    def labelled(self) -> Tensor:
        """(c,) number of samples with a newest label of each class; in segmentation, of images that show it."""
        newest = self.part == NEWEST
        pairs = _distinct(torch.stack([self.sample[newest], self.classes[newest]], dim=1))[0]
        return torch.bincount(pairs[:, 1], minlength=self.num_classes).double()

    def name(self, label: int) -> tuple[str, str]:
        """Return version and class of a row id of evidence."""
        offsets = self.evidence.offsets
        version = max((name for name in offsets if offsets[name] <= label), key=lambda name: offsets[name])
        return version, self.evidence.ontology[version].handle(label - offsets[version])

    def guesses(self, labels: Tensor) -> Tensor:
        """(n, c) probability of each newest class given an old label and the class frequencies."""
        likely = self.evidence.gather(labels).double().exp() * (self.labelled + 1)
        return likely / likely.sum(dim=1, keepdim=True).clamp(min=1e-300)

    @cached_property
    def history(self) -> "History":
        """The samples without a newest label."""
        rows = self.part == HISTORY
        labels = self.labels[rows]
        samples, position = self.sample[rows].unique(return_inverse=True)  # type: ignore[no-untyped-call]
        count = torch.bincount(position, minlength=len(samples)).clamp(min=1)
        shares = torch.zeros(len(samples)).double().index_add(0, position, open_share(self.evidence, labels))
        # Each old label of a sample counts once, however many of its pixels have it.
        pairs = _distinct(torch.stack([position, labels], dim=1))[0]
        guesses = self.guesses(pairs[:, 1])
        answered = 1 - open_share(self.evidence, pairs[:, 1])
        expected = torch.zeros(len(samples), self.num_classes).double().index_add(0, pairs[:, 0], guesses)
        informed = torch.zeros_like(expected).index_add(0, pairs[:, 0], guesses * answered[:, None])
        return History(samples, shares / count, expected, informed, _majority(position, labels, len(samples)))


@dataclass(frozen=True, eq=False)
class History:
    """Samples whose newest label is not known."""

    samples: Tensor  # (h,) indices into the pool
    open: Tensor  # (h,) share of the bits that the old label leaves open: 0 means known, 1 unlabelled
    expected: Tensor  # (h, c) newest labels that relabelling it is expected to give
    informed: Tensor  # (h, c) the same, times the share of the bits that the old label gives
    label: Tensor  # (h,) row id of the old label (in segmentation: of most pixels)

    @property
    def relabellable(self) -> Tensor:
        """Positions of the samples whose old label leaves several classes possible, but not all."""
        return ((self.open > 0) & (self.label != UNLABELLED)).nonzero().flatten()

    @property
    def unlabelled(self) -> Tensor:
        """Positions of the samples without any label."""
        return (self.label == UNLABELLED).nonzero().flatten()


def num_choices(evidence: Evidence, labels: Tensor) -> Tensor:
    """Count the newest classes that each row of evidence leaves possible: the choices of an annotator."""
    counts = evidence.starts[labels + 1] - evidence.starts[labels]
    return counts.where(counts > 0, evidence.num_classes)  # no label rules out nothing


def open_share(evidence: Evidence, labels: Tensor) -> Tensor:
    """Return the share of the bits of a label that an older one leaves open: log2 of its choices over log2 of all.

    >>> from leco import Ontology
    >>> history = {"v1": ["dog", "cat"], "v2": {"poodle": {"from": "dog"}, "husky": {"from": "dog"}, "cat": None}}
    >>> ontology = Ontology.from_dict({"versions": [{"name": k, "classes": v} for k, v in history.items()]})
    >>> evidence = ontology.evidence()
    >>> open_share(evidence, evidence.ids(["dog", "cat", ""], "v1"))
    tensor([0.6309, 0.0000, 1.0000], dtype=torch.float64)
    """
    if evidence.num_classes < 2:
        raise LecoError(f"{evidence.ontology.newest.name} has a single class, so there is nothing to annotate")
    return num_choices(evidence, labels).double().log2() / math.log2(evidence.num_classes)


def _distinct(pairs: Tensor) -> tuple[Tensor, Tensor]:
    """Return the distinct rows in order, and the frequency of each."""
    found: tuple[Tensor, Tensor] = pairs.unique(dim=0, return_counts=True)  # type: ignore[no-untyped-call]
    return found


def _majority(position: Tensor, labels: Tensor, num_samples: int) -> Tensor:
    """Return the most frequent label of each sample; the smaller row id on a tie."""
    pairs, counts = _distinct(torch.stack([position, labels], dim=1))
    order = counts.argsort(descending=True, stable=True)
    pairs = pairs[order][pairs[order, 0].argsort(stable=True)]  # by sample, its most frequent label first
    starts = torch.searchsorted(pairs[:, 0].contiguous(), torch.arange(num_samples))
    return pairs[starts, 1]
