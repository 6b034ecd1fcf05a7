"""What is known of the samples before any is annotated anew: features in rows, and what their labels say.

A sample is one row, or, in segmentation, a few pixels. Test samples are not among them.
"""

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from leco.data.periods import Part
from leco.data.samples import Samples
from leco.dataset import Material
from leco.ontology.evidence import UNLABELLED, Evidence
from leco.planning.costs import open_share
from leco.planning.features import Directions, Extractor, read_maps, read_rows

NEWEST, VALIDATION, HISTORY = range(3)


@dataclass(frozen=True, eq=False)
class Known:
    """Rows of features, the sample that each belongs to, what is known of it, and the part of the data it is in."""

    evidence: Evidence
    features: Tensor  # (rows, d)
    sample: Tensor  # (rows,) index into the pool
    labels: Tensor  # (rows,) row ids of evidence
    part: Tensor  # (rows,) NEWEST, VALIDATION or HISTORY
    pixel: Tensor  # (rows,) place in the sample's map of labels; 0 where it has one label

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
        """The samples of a part, in ascending order."""
        found: Tensor = self.sample[self.part == part].unique()  # type: ignore[no-untyped-call]
        return found

    def rows(self, samples: Tensor) -> Tensor:
        """The rows of some samples, in the order of rows."""
        return torch.isin(self.sample, samples).nonzero().flatten()

    @cached_property
    def labelled(self) -> Tensor:
        """(c,) samples that have a newest label of each class: in segmentation, images that show it."""
        return self._images(NEWEST)

    def _images(self, part: int) -> Tensor:
        chosen = self.part == part
        pairs = _distinct(torch.stack([self.sample[chosen], self.classes[chosen]], dim=1))[0]
        return torch.bincount(pairs[:, 1], minlength=self.num_classes).double()

    def name(self, label: int) -> tuple[str, str]:
        """Version and class of a row of evidence."""
        offsets = self.evidence.offsets
        version = max((name for name in offsets if offsets[name] <= label), key=lambda name: offsets[name])
        return version, self.evidence.ontology[version].handle(label - offsets[version])

    def guesses(self, rows: Tensor) -> Tensor:
        """(n, c) how likely each newest class is, given the old label of a row and how frequent classes are."""
        likely = self.evidence.gather(self.labels[rows]).double().exp() * (self.labelled + 1)
        return likely / likely.sum(dim=1, keepdim=True).clamp(min=1e-300)

    @cached_property
    def history(self) -> "History":
        """What relabelling is about."""
        rows = (self.part == HISTORY).nonzero().flatten()
        samples, position = self.sample[rows].unique(return_inverse=True)  # type: ignore[no-untyped-call]
        count = torch.bincount(position, minlength=len(samples)).clamp(min=1)
        shares = torch.zeros(len(samples)).double().index_add(0, position, open_share(self.evidence, self.labels[rows]))
        # Each old label of a sample counts once, however many of its pixels have it.
        pairs = _distinct(torch.stack([position, self.labels[rows]], dim=1))[0]
        first = torch.zeros(len(self.evidence), dtype=torch.int64)
        first[self.labels[rows]] = rows
        guesses = self.guesses(first[pairs[:, 1]])
        told = 1 - open_share(self.evidence, pairs[:, 1])
        expected = torch.zeros(len(samples), self.num_classes).double().index_add(0, pairs[:, 0], guesses)
        informed = torch.zeros_like(expected).index_add(0, pairs[:, 0], guesses * told[:, None])
        return History(samples, shares / count, expected, informed, _majority(position, self.labels[rows], samples))


@dataclass(frozen=True, eq=False)
class History:
    """Samples whose newest label is not known."""

    samples: Tensor  # (h,) indices into the pool
    open: Tensor  # (h,) share of the question that the old label leaves open: 0 means known, 1 unlabelled
    expected: Tensor  # (h, c) newest labels that relabelling it is expected to give
    informed: Tensor  # (h, c) the same, times the share of the question that is answered already
    label: Tensor  # (h,) row id of the old label (in segmentation: of most pixels)

    @property
    def relabellable(self) -> Tensor:
        """Positions of those whose old label leaves some classes possible, but not all."""
        return ((self.open > 0) & (self.label != UNLABELLED)).nonzero().flatten()

    @property
    def unlabelled(self) -> Tensor:
        """Positions of those that have no label at all."""
        return (self.label == UNLABELLED).nonzero().flatten()


def _distinct(pairs: Tensor) -> tuple[Tensor, Tensor]:
    """The distinct rows, in order, and how often each occurs."""
    found: tuple[Tensor, Tensor] = pairs.unique(dim=0, return_counts=True)  # type: ignore[no-untyped-call]
    return found


def _majority(position: Tensor, labels: Tensor, samples: Tensor) -> Tensor:
    """The most frequent label of each sample; the smaller row id on a tie."""
    pairs, counts = _distinct(torch.stack([position, labels], dim=1))
    order = counts.argsort(descending=True, stable=True)
    pairs = pairs[order][pairs[order, 0].argsort(stable=True)]  # by sample, its most frequent label first
    starts = torch.searchsorted(pairs[:, 0].contiguous(), torch.arange(len(samples)))
    return pairs[starts, 1]


def gather_known(material: Material, extractor: Extractor, seed: int) -> tuple[Known, Directions]:
    """Read all samples but those of the test split, with the labels of the newest period."""
    period = len(material.versions) - 1
    annotated = material.annotated(period, "label-new")
    evidence = material.until(period).evidence()
    parts = [(NEWEST, annotated.newest), (VALIDATION, annotated.validation)]
    parts += [(HISTORY, part) for part in annotated.history]
    found = [
        (part, rows_of(material, material.pool, chosen, evidence, extractor, seed))
        for part, chosen in parts
        if len(chosen.indices)
    ]
    columns = [torch.cat([rows[column] for _, rows in found]) for column in range(4)]
    columns.append(torch.cat([torch.full((len(rows[1]),), part) for part, rows in found]))
    # A newest mask may be void all over: that is no sample to learn from, or to look at.
    kept = (columns[4] == HISTORY) | (columns[3] != UNLABELLED)
    features, samples, pixels, labels, kinds = (column[kept] for column in columns)
    directions = Directions.of(features)
    return Known(evidence, directions.project(features), samples, labels, kinds, pixels), directions


def rows_of(
    material: Material, samples: Samples, chosen: Part, evidence: Evidence, extractor: Extractor, seed: int
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Features, sample, place in its map and row id of evidence, of every row of a part."""
    if material.task == "segmentation":
        found = read_maps(material, samples, chosen.version, chosen.indices, extractor, seed)
    else:
        found = read_rows(material, samples, chosen.version, chosen.indices, extractor)
    features, position, pixels, classes = found
    return features, chosen.indices[position], pixels, evidence.ids(classes, chosen.version)
