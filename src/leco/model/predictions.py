"""Probabilities as answers: the likeliest classes of a version, or as fine a class as can be answered for."""

import csv
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TextIO

import torch
from torch import Tensor

from leco.evaluation.calibration import Held, Reliability, level_of, likeliest
from leco.ontology.ontology import Ontology


@dataclass(frozen=True)
class Answer:
    """What a model says of one sample; with `reached`, whether it is as sure as was asked for."""

    version: str
    classes: tuple[tuple[str, float], ...]  # likeliest first; "" where the version has no name for it
    reached: bool | None = None
    held: Held | None = None


def ranked(probs_nc: Tensor, ontology: Ontology, version: str, top: int) -> Iterator[Answer]:
    """The `top` likeliest classes of a version; that a sample has no name there is one of the answers."""
    projected = ontology.transition(ontology.newest.name, version).project(probs_nc)
    nameless = probs_nc.sum(dim=1, keepdim=True) - projected.sum(dim=1, keepdim=True)
    names = ontology[version].handles
    if ontology.newest.name != version:
        projected, names = torch.cat([projected, nameless.clamp(min=0)], dim=1), (*names, "")
    values, places = projected.sort(dim=1, descending=True, stable=True)  # of equals the first, as in `predict_at`
    for row, indices in zip(values[:, :top].tolist(), places[:, :top].tolist(), strict=True):
        yield Answer(version, tuple((names[index], value) for index, value in zip(indices, row, strict=True)))


def backed_off(probs_nc: Tensor, ontology: Ontology, threshold: float, reliability: Reliability) -> Iterator[Answer]:
    """For each sample, the class of the newest version that is sure enough; if none is, of the surest."""
    versions = ontology.versions
    found = [likeliest(probs_nc, ontology, version.name) for version in versions]
    confidences = torch.stack([confidence for confidence, _ in found], dim=1).tolist()
    indices = torch.stack([index for _, index in found], dim=1).tolist()
    for sure, index in zip(confidences, indices, strict=True):
        level, reached = level_of(sure, threshold)
        label = versions[level].handle(index[level])
        held = reliability.of(level, reached, sure[level])
        yield Answer(versions[level].name, ((label, sure[level]),), reached, held)


class Writer:
    """Writes answers as CSV or JSON lines, one line for each sample."""

    def __init__(self, file: TextIO, kind: str, top: int, backs_off: bool) -> None:
        self.file, self.kind, self.top, self.backs_off = file, kind, top, backs_off
        self.table = csv.writer(file, lineterminator="\n")
        self.begun = kind != "csv"

    def write(self, names: Sequence[str], answers: Iterator[Answer]) -> None:
        """Write the answers for some samples, after the header of a CSV: without any answer, nothing is written."""
        if not self.begun:
            more = [f"{name}_{place}" for place in range(2, self.top + 1) for name in ("label", "probability")]
            checks = ["reached", "accuracy", "n"] if self.backs_off else []
            self.table.writerow(["input", "version", "label", "probability", *more, *checks])
            self.begun = True
        for name, answer in zip(names, answers, strict=True):
            if self.kind == "csv":
                self.table.writerow(self._cells(name, answer))
            else:
                self.file.write(json.dumps(self._record(name, answer), ensure_ascii=False) + "\n")

    def _cells(self, name: str, answer: Answer) -> list[str]:
        cells = [name, answer.version]
        for label, probability in answer.classes:
            cells += [label, f"{probability:.6f}"]
        cells += [""] * 2 * (self.top - len(answer.classes))
        if self.backs_off:
            held = ["", ""] if answer.held is None else [f"{answer.held.accuracy:.4f}", str(answer.held.count)]
            cells += ["yes" if answer.reached else "no", *held]
        return cells

    def _record(self, name: str, answer: Answer) -> dict[str, object]:
        classes = [{"label": label, "probability": round(value, 6)} for label, value in answer.classes]
        found: dict[str, object] = {"input": name, "version": answer.version}
        if not self.backs_off:
            return found | {"answers": classes}
        held = answer.held
        return (
            found
            | classes[0]
            | {
                "reached": answer.reached,
                "accuracy": None if held is None else round(held.accuracy, 4),
                "n": None if held is None else held.count,
            }
        )
