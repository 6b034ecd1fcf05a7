"""Probabilities as answers: the likeliest classes of a version, or as fine a class as can be answered for."""

import csv
import io
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TextIO

import torch
from torch import Tensor

from leco.errors import LecoError
from leco.evaluation.calibration import Held, Reliability, level_of, likeliest
from leco.io import write_text
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


@dataclass
class Predictions:
    """Answers for some inputs, in their order."""

    top: int = 1
    backs_off: bool = False
    names: list[str] = field(default_factory=list)
    answers: list[Answer] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)  # with inputs that could not be read

    def __len__(self) -> int:
        return len(self.names)

    def __iter__(self) -> Iterator[Answer]:
        return iter(self.answers)

    def to_dict(self) -> dict[str, list[Any]]:
        """Columns by name: `input`, `version`, `label`, `probability`, and those of further places."""
        columns = column_names(self.top, self.backs_off)
        rows = [_values(name, a, self.top, self.backs_off) for name, a in zip(self.names, self.answers, strict=True)]
        return {column: [row[place] for row in rows] for place, column in enumerate(columns)}

    def to_pandas(self) -> Any:
        """A pandas data frame."""
        import pandas as pd

        return pd.DataFrame(self.to_dict())

    def to_polars(self) -> Any:
        """A polars data frame; polars must be installed."""
        try:
            import polars as pl  # type: ignore[import-not-found, unused-ignore]
        except ImportError:
            raise LecoError("to_polars needs polars; install it with: pip install polars") from None
        return pl.DataFrame(self.to_dict())

    def to_csv(self, path: str | Path) -> None:
        """Write a CSV file."""
        text = io.StringIO(newline="")
        Writer(text, "csv", self.top, self.backs_off).write(self.names, iter(self.answers))
        write_text(Path(path), text.getvalue())


def column_names(top: int, backs_off: bool) -> list[str]:
    """The columns of a table of answers."""
    more = [f"{name}_{place}" for place in range(2, top + 1) for name in ("label", "probability")]
    checks = ["reached", "accuracy", "n"] if backs_off else []
    return ["input", "version", "label", "probability", *more, *checks]


def _values(name: str, answer: Answer, top: int, backs_off: bool) -> list[Any]:
    """The cells of one answer; None where there is nothing to say."""
    values: list[Any] = [name, answer.version]
    for label, probability in answer.classes:
        values += [label, probability]
    values += [None] * 2 * (top - len(answer.classes))
    if backs_off:
        held = answer.held
        values += [answer.reached, held and held.accuracy, held and held.count]
    return values


class Writer:
    """Writes answers as CSV or JSON lines, one line for each sample."""

    def __init__(self, file: TextIO, kind: str, top: int, backs_off: bool) -> None:
        self.file, self.kind, self.top, self.backs_off = file, kind, top, backs_off
        self.table = csv.writer(file, lineterminator="\n")
        self.begun = kind != "csv"

    def write(self, names: Sequence[str], answers: Iterator[Answer]) -> None:
        """Write the answers for some samples, after the header of a CSV: without any answer, nothing is written."""
        if not self.begun:
            self.table.writerow(column_names(self.top, self.backs_off))
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
