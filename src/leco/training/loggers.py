"""Loggers: destinations for the metrics of a stage besides the store's own `metrics.jsonl`."""

import csv
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Protocol

from leco.errors import LecoError, first_line
from leco.registry import Registry

Line = Mapping[str, Any]  # step, score (or None), learning_rate, and means by name


class Logger(Protocol):
    """Receives one line per evaluation of a stage."""

    def write(self, line: Line) -> None:
        """Log one line."""
        ...

    def close(self) -> None:
        """Release resources; called once, at the end."""
        ...


LOGGERS: Registry[Callable[[Path, int], Logger]] = Registry("logger")  # folder of the stage, step it resumes from


@LOGGERS.register("csv")
class CsvLogger:
    """Writes `metrics.csv` in long format: one row per number."""

    def __init__(self, folder: Path, step: int) -> None:
        path = folder / "metrics.csv"
        kept = []
        if path.is_file():  # a resumed run repeats the steps after its last checkpoint
            rows = list(csv.reader(path.read_text().splitlines()))[1:]
            kept = [row for row in rows if row and row[0].isdecimal() and int(row[0]) <= step]
        self._file = path.open("w", newline="")
        self._rows = csv.writer(self._file)
        self._rows.writerows([("step", "name", "value"), *kept])

    def write(self, line: Line) -> None:
        """Write the score, the learning rate and all means."""
        self._rows.writerows((line["step"], name, value) for name, value in _values(line).items())
        self._file.flush()

    def close(self) -> None:
        """Close the file."""
        self._file.close()


@LOGGERS.register("tensorboard")
class TensorBoardLogger:
    """Writes event files for TensorBoard."""

    def __init__(self, folder: Path, step: int) -> None:
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError:
            raise LecoError("the logger tensorboard needs an extra package: pip install 'leco[tensorboard]'") from None
        self._writer = SummaryWriter(folder / "tensorboard", purge_step=step + 1)

    def write(self, line: Line) -> None:
        """Write scalars."""
        for name, value in _values(line).items():
            self._writer.add_scalar(name.replace("_", " "), value, line["step"])

    def close(self) -> None:
        """Close the file."""
        self._writer.close()


def _values(line: Line) -> dict[str, float]:
    values = {"score": line["score"], "learning_rate": line["learning_rate"], **line["means"]}
    return {name: value for name, value in values.items() if value is not None}


@contextmanager
def logging_to(
    names: Sequence[str], folder: Path, step: int, warn: Callable[[str], object]
) -> Iterator[Callable[[Line], None]]:
    """Yield a function that passes lines to all loggers; one that fails is reported once and then disabled."""
    loggers: dict[str, Logger] = {}

    def attempt(name: str, call: Callable[[], object]) -> None:
        try:
            call()
        except (Exception, SystemExit) as error:  # a logger must never stop a run
            loggers.pop(name, None)
            warn(f"the logger {name} failed and is disabled: {first_line(error)}")

    def write(line: Line) -> None:
        for name, logger in list(loggers.items()):
            attempt(name, lambda logger=logger: logger.write(line))  # type: ignore[misc]

    for name in names:
        attempt(name, lambda name=name: loggers.update({name: LOGGERS[name](folder, step)}))  # type: ignore[misc]
    try:
        yield write
    finally:
        for logger in loggers.values():
            with suppress(Exception, SystemExit):
                logger.close()
