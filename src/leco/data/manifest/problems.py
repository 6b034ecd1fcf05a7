"""What is wrong with a manifest, all of it at once."""

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from leco.errors import LecoError, printable

SHOWN = 20


class Fault(NamedTuple):
    """What is wrong with a file or a value, wherever it is named."""

    kind: str
    message: str
    remedy: Callable[[], str] = str  # the end of the message; looked for only if shown, as it may take a while


@dataclass(frozen=True)
class Problem:
    """A fault and the row that has it.

    >>> print(Problem(7, "a.png", "there is no such file"))
    row 7: a.png: there is no such file
    """

    row: int | None  # as a spreadsheet counts: the header is row 1; None where there are no rows (folders)
    file: str
    message: str
    kind: str = "bad row"
    place: int = field(default=-1, repr=False, compare=False)  # position among the rows read; -1: not one of them
    remedy: Callable[[], str] = field(default=str, repr=False, compare=False)

    def __str__(self) -> str:
        where = [] if self.row is None else [f"row {self.row}"]
        line = ": ".join([*where, *([self.file] if self.file else []), self.message]) + self.remedy()
        return printable(line)  # one problem is one line


@dataclass
class Problems:
    """All problems of one manifest: counted by kind, the first of them shown."""

    source: Path
    rows: int = 0  # read
    dropped: int = 0  # left out because of a problem
    found: list[Problem] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.found)

    def extend(self, problems: Iterable[Problem]) -> None:
        """Add problems, keeping all in the order of the rows."""
        self.found.extend(problems)
        self.found.sort(key=lambda problem: -1 if problem.row is None else problem.row)

    @property
    def places(self) -> set[int]:
        """Positions of the rows that have a problem."""
        return {problem.place for problem in self.found if problem.place >= 0}

    @property
    def counts(self) -> dict[str, int]:
        """How many problems there are of each kind, the most frequent first."""
        return dict(Counter(problem.kind for problem in self.found).most_common())

    def __str__(self) -> str:
        """A line that says how many, then the first ones, one per line."""
        kinds = ", ".join(f"{count:,} {kind}" for kind, count in self.counts.items())
        total = f"{len(self):,} problem{'s' if len(self) != 1 else ''}"
        lines = [f"{self.source}: {total}{f' ({kinds})' if kinds else ''}"]
        lines += [f"  {problem}" for problem in self.found[:SHOWN]]
        if len(self) > SHOWN:
            lines.append(f"  … and {len(self) - SHOWN:,} more")
        return "\n".join(lines)

    def raise_any(self) -> None:
        """Raise one error for all of them, if there are any."""
        if self.found:
            raise LecoError(str(self))
