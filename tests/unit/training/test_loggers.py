"""Loggers: what they write, and that none of them stops a run."""

import csv
from pathlib import Path

import pytest

from leco.training.loggers import LOGGERS, CsvLogger, logging_to


def line(step: int, score: float | None = 0.5) -> dict[str, object]:
    return {"step": step, "score": score, "learning_rate": 0.1, "means": {"ce": 1.0 / step}}


def rows(folder: Path) -> list[list[str]]:
    return list(csv.reader((folder / "metrics.csv").read_text().splitlines()))


def test_a_csv_has_a_row_for_every_number_and_forgets_steps_that_are_made_again(tmp_path):
    first = CsvLogger(tmp_path, 0)
    for step in (1, 2, 3):
        first.write(line(step, None if step == 2 else 0.5))
    first.close()
    assert rows(tmp_path)[0] == ["step", "name", "value"]
    assert [row[0] for row in rows(tmp_path)[1:] if row[1] == "score"] == ["1", "3"]
    again = CsvLogger(tmp_path, 2)  # resumes from a checkpoint of step 2
    again.write(line(3))
    again.close()
    assert [row[0] for row in rows(tmp_path)[1:] if row[1] == "ce"] == ["1", "2", "3"]


class Broken:
    def __init__(self, folder: Path, step: int) -> None: ...

    def write(self, line: object) -> None:
        raise SystemExit("broken pipe")

    def close(self) -> None:
        raise OSError("closed twice")


def test_a_logger_that_fails_is_reported_once_and_the_others_go_on(tmp_path, monkeypatch):
    monkeypatch.setitem(LOGGERS._entries, "broken", Broken)
    said: list[str] = []
    with logging_to(["broken", "csv"], tmp_path, 0, said.append) as log:
        for step in (1, 2):
            log(line(step))
    assert len(said) == 1
    assert "the logger broken failed" in said[0]
    assert len(rows(tmp_path)) == 1 + 2 * 3


def test_tensorboard_gets_every_scalar(tmp_path):
    pytest.importorskip("tensorboard", reason="tensorboard is an extra")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    with logging_to(["tensorboard"], tmp_path, 0, lambda problem: pytest.fail(problem)) as log:
        log(line(1))
        log(line(2))
    events = EventAccumulator(str(tmp_path / "tensorboard"))
    events.Reload()
    assert [event.step for event in events.Scalars("ce")] == [1, 2]
    assert events.Scalars("score")[0].value == 0.5
