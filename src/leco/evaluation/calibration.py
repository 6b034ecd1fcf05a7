"""Confidence on validation samples, and how often the predictions were right.

A prediction backs off: of the versions whose likeliest class reaches a threshold, it is the newest; if none does, it
is the one with the likeliest class. Its accuracy is that of the same procedure on the validation samples.
"""

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

from pydantic import BaseModel, ConfigDict, Field, model_validator

from leco.ontology.version import NO_LABEL

if TYPE_CHECKING:
    from torch import Tensor

    from leco.ontology.ontology import Ontology


MOST_RECORDS = 10_000  # validation samples that are kept of each version
UNITS = 10_000  # of confidence
_FEWEST = 50  # answers that an accuracy is measured on, if that many exist
_KNOWN = {"1": 1, "0": 0}


class Record(BaseModel):
    """Confidence on each validation sample, and whether the answer was right; all versions have the same samples."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    confidence: str = Field(max_length=6 * MOST_RECORDS, pattern="^[0-9 ]*$")  # of 10,000; with blanks between them
    right: str = Field(max_length=MOST_RECORDS, pattern="^[01-]*$")  # 1, 0, or - where the label is not known

    @model_validator(mode="after")
    def _as_many(self) -> "Record":
        levels = self.confidence.split()
        if len(levels) != len(self.right) or any(len(level) > 5 or int(level) > UNITS for level in levels):
            raise ValueError(f"{len(self.right)} numbers from 0 to {UNITS} are needed, one for each answer")
        return self

    @property
    def confidences(self) -> list[float]:
        """The probability that each answer had."""
        return [int(level) / UNITS for level in self.confidence.split()]


def likeliest(probs_nc: "Tensor", ontology: "Ontology", version: str) -> "tuple[Tensor, Tensor]":
    """Return the probability and index of the likeliest class of a version, from those of the newest classes."""
    confidence, index = ontology.transition(ontology.newest.name, version).project(probs_nc).max(dim=1)
    return confidence, index


def spread(indices: "Tensor") -> "Tensor":
    """Choose at most `MOST_RECORDS` samples, evenly spread."""
    import torch

    if len(indices) <= MOST_RECORDS:
        return indices
    return indices[torch.linspace(0, len(indices) - 1, MOST_RECORDS).long()]


def record(confidence: "Tensor", answers: "Tensor", true: "Tensor") -> Record:
    """Record answers compactly; those without a known label (-1) are neither right nor wrong."""
    right = (answers == true).long().masked_fill(true == NO_LABEL, -1)
    marks = {1: "1", 0: "0", -1: "-"}
    levels = (confidence.double() * UNITS).floor().clamp(0, UNITS).long()
    return Record(
        confidence=" ".join(map(str, levels.tolist())), right="".join(marks[value] for value in right.tolist())
    )


@dataclass(frozen=True)
class Held:
    """The accuracy of similar answers on validation."""

    accuracy: float
    count: int


def level_of(confidences: Sequence[float], threshold: float) -> tuple[int, bool]:
    """Choose a version, given the confidence at each (oldest first); return whether it reaches the threshold.

    >>> level_of([0.95, 0.8], 0.9)
    (0, True)
    >>> level_of([0.6, 0.5], 0.9)
    (0, False)
    >>> level_of([0.08, 0.85], 0.9)  # the likely class does not exist in the older version
    (1, False)
    """
    for level in range(len(confidences) - 1, -1, -1):
        if confidences[level] >= threshold:
            return level, True
    return confidences.index(max(confidences)), False  # of equals, the oldest


class Reliability:
    """The accuracy of answers that back off at one threshold."""

    def __init__(self, calibration: Mapping[str, Record], versions: Sequence[str], threshold: float) -> None:
        groups: dict[tuple[int, bool], list[tuple[float, int]]] = {}
        if all(version in calibration for version in versions):
            records = [calibration[version] for version in versions]
            columns = [zip(found.confidences, found.right, strict=True) for found in records]
            for sample in zip(*columns, strict=True):
                confidences = [confidence for confidence, _ in sample]
                level, reached = level_of(confidences, threshold)
                if sample[level][1] in _KNOWN:
                    groups.setdefault((level, reached), []).append((confidences[level], _KNOWN[sample[level][1]]))
        self.tables = {key: _table(sorted(answers)) for key, answers in groups.items()}

    def of(self, level: int, reached: bool, confidence: float) -> Held | None:
        """Accuracy of answers of this level and about this confidence; None if there were none."""
        if (level, reached) not in self.tables:
            return None
        edges, held = self.tables[level, reached]
        return held[max(0, bisect_right(edges, confidence) - 1)]


def _table(answers: Sequence[tuple[float, int]]) -> tuple[list[float], list[Held]]:
    """Group answers, sorted by confidence, by at least fifty; return the lowest confidence and the accuracy of each."""
    number = max(1, len(answers) // _FEWEST)
    bounds = [round(part * len(answers) / number) for part in range(number + 1)]
    parts = [answers[start:stop] for start, stop in pairwise(bounds)]
    held = [Held(sum(right for _, right in part) / len(part), len(part)) for part in parts]
    return [part[0][0] for part in parts], held
