"""Predictions: the likeliest classes of a version, or a class as fine as its probability allows."""

import csv
import io
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TextIO

import torch
from torch import Tensor

from leco.errors import LecoError, printable
from leco.evaluation.calibration import Held, Reliability, level_of, likeliest
from leco.io import as_path, write_bytes
from leco.ontology.ontology import Ontology
from leco.text import csv_cells

_LONGEST_LINE = 1_000_000  # bytes


@dataclass(frozen=True)
class Answer:
    """The prediction for one sample; `reached` says whether its probability reaches the threshold of `back_off`."""

    version: str
    classes: tuple[tuple[str, float], ...]  # likeliest first; "" where the version has no name for it
    reached: bool | None = None
    held: Held | None = None


def ranked(probs_nc: Tensor, ontology: Ontology, version: str, top: int) -> Iterator[Answer]:
    """Yield the `top` likeliest classes of a version for each sample; "" stands for none of them."""
    projected = ontology.transition(ontology.newest.name, version).project(probs_nc)
    nameless = probs_nc.sum(dim=1, keepdim=True) - projected.sum(dim=1, keepdim=True)
    names = ontology[version].handles
    if ontology.newest.name != version:
        projected, names = torch.cat([projected, nameless.clamp(min=0)], dim=1), (*names, "")
    values, places = projected.sort(dim=1, descending=True, stable=True)  # of equals the first, as in `predict_at`
    for row, indices in zip(values[:, :top].tolist(), places[:, :top].tolist(), strict=True):
        yield Answer(version, tuple((names[index], value) for index, value in zip(indices, row, strict=True)))


def backed_off(probs_nc: Tensor, ontology: Ontology, threshold: float, reliability: Reliability) -> Iterator[Answer]:
    """Yield the class of the newest version that reaches the threshold; if none does, the likeliest of all."""
    versions = ontology.versions
    found = [likeliest(probs_nc, ontology, version.name) for version in versions]
    confidences = torch.stack([confidence for confidence, _ in found], dim=1).tolist()
    indices = torch.stack([index for _, index in found], dim=1).tolist()
    for sure, index in zip(confidences, indices, strict=True):
        level, reached = level_of(sure, threshold)
        label = versions[level].handle(index[level])
        held = reliability.of(level, reached, sure[level])
        yield Answer(versions[level].name, ((label, sure[level]),), reached, held)


@dataclass(repr=False)
class Predictions:
    """The answers for some inputs, in their order."""

    top: int = 1
    backs_off: bool = False
    names: list[str] = field(default_factory=list)
    answers: list[Answer] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)  # with inputs that could not be read

    def __len__(self) -> int:
        return len(self.names)

    def __iter__(self) -> Iterator[tuple[str, Answer]]:
        """Yield the name of each input with its answer."""
        return zip(self.names, self.answers, strict=True)

    def to_dict(self) -> dict[str, list[Any]]:
        """Return the columns `input`, `version`, `label`, `probability`, then `label_2`, `probability_2`, ...

        With `back_off`, also `reached`, and the accuracy of such predictions on `n` validation samples.
        """
        columns = column_names(self.top, self.backs_off)
        rows = [_values(name, a, self.top, self.backs_off) for name, a in zip(self.names, self.answers, strict=True)]
        return {column: [row[place] for row in rows] for place, column in enumerate(columns)}

    def to_pandas(self) -> Any:
        """Return a pandas data frame with the columns of `to_dict`."""
        try:
            import pandas as pd
        except ImportError:
            raise LecoError("to_pandas needs pandas; install it with: pip install pandas") from None
        return pd.DataFrame(self.to_dict())

    def to_polars(self) -> Any:
        """Return a polars data frame with the columns of `to_dict`; polars must be installed."""
        try:
            import polars as pl  # type: ignore[import-not-found, unused-ignore]
        except ImportError:
            raise LecoError("to_polars needs polars; install it with: pip install polars") from None
        return pl.DataFrame(self.to_dict())

    def to_csv(self, path: str | Path, *, verbatim: bool = False) -> None:
        """Write the columns of `to_dict` as a CSV file, with rounded numbers.

        Text that a spreadsheet would take for a formula gets a leading ', unless it is to be `verbatim`.
        """
        text = io.StringIO(newline="")
        Writer(text, "csv", self.top, self.backs_off, verbatim).write(self.names, iter(self.answers))
        write_bytes(
            as_path("to_csv", path), text.getvalue().encode(errors="backslashreplace")
        )  # names of files may be any bytes

    def __repr__(self) -> str:
        problems = f", {len(self.problems):,} problems" if self.problems else ""
        return f"Predictions({len(self):,} inputs{problems})"


def column_names(top: int, backs_off: bool) -> list[str]:
    """Names of the columns of a table of answers."""
    more = [f"{name}_{place}" for place in range(2, top + 1) for name in ("label", "probability")]
    checks = ["reached", "accuracy", "n"] if backs_off else []
    return ["input", "version", "label", "probability", *more, *checks]


def are_predictions(path: Path) -> bool:
    """Whether a file holds predictions that `Writer` wrote, or nothing, so that others may replace it."""
    with path.open("rb") as file:
        first = file.readline(_LONGEST_LINE)
    if not first:
        return True
    try:
        if first.startswith(b"{"):
            return bool({"input", "version"} <= json.loads(first).keys())
        found = next(csv.reader([first.decode()]))
    except (ValueError, RecursionError, csv.Error):
        return False
    return found in (column_names(max(1, (len(found) - 2) // 2), False), column_names(1, True))


def _values(name: str, answer: Answer, top: int, backs_off: bool) -> list[Any]:
    """The cells of one answer; None where one is missing."""
    values: list[Any] = [name, answer.version]
    for label, probability in answer.classes:
        values += [label, probability]
    values += [None] * 2 * (top - len(answer.classes))
    if backs_off:
        held = answer.held
        values += [answer.reached, held and held.accuracy, held and held.count]
    return values


class Writer:
    """Write answers as CSV or JSON lines, one line for each sample."""

    def __init__(self, file: TextIO, kind: str, top: int, backs_off: bool, verbatim: bool = False) -> None:
        self.file, self.kind, self.top, self.backs_off, self.verbatim = file, kind, top, backs_off, verbatim
        self.table = csv.writer(file, lineterminator="\n")
        self.begun = kind != "csv"

    def write(self, names: Sequence[str], answers: Iterator[Answer]) -> None:
        """Write the answers for some samples, the first time after the header of a CSV."""
        if not self.begun:
            self.table.writerow(column_names(self.top, self.backs_off))
            self.begun = True
        names = [printable(name) for name in names] if self.file.isatty() else names
        for name, answer in zip(names, answers, strict=True):
            if self.kind == "csv":
                self.table.writerow(csv_cells(self._cells(name, answer), self.verbatim))
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
