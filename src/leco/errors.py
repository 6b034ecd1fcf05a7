"""Errors a user can mend: one message that names the place, the value and the remedy."""

import difflib
from collections.abc import Iterable


class LecoError(ValueError):
    """Wrong input. The command line prints the message alone, without a traceback, and exits with 2."""


class DivergedError(LecoError):
    """A loss or a prediction became NaN or infinite during training."""


class TextError(LecoError):
    """What is wrong with the text of a file, and on which line; whoever knows the file's name adds it."""

    def __init__(self, line: int, problem: str) -> None:
        self.line, self.problem = line, problem
        super().__init__(f"line {line}: {problem}")


def nearest(value: str, valid: Iterable[str]) -> str:
    """Return the end of an error message: the valid value closest to the one given, or the first few.

    >>> nearest("raod", ["road", "bus"])
    "; did you mean 'road'?"
    >>> nearest("zebra", ["road", "bus"])
    "; valid: 'road', 'bus'"
    """
    candidates = list(dict.fromkeys(valid))
    if close := closest(value, candidates, 0.6):
        return f"; did you mean {close!r}?"
    if not candidates:
        return ""
    shown = ", ".join(repr(c) for c in candidates[:8])
    return f"; valid: {shown}" + (f", … ({len(candidates)} in all)" if len(candidates) > 8 else "")


def closest(value: str, candidates: list[str], cutoff: float) -> str | None:
    """The candidate most like a string, in bounded time: of very many, those of like length, by how they begin."""
    alike = [c for c in candidates if len(candidates) <= 2_000 or abs(len(c) - len(value)) <= 1]
    starts = {candidate[:40]: candidate for candidate in alike[:2_000]}
    close = difflib.get_close_matches(value[:40], starts, n=1, cutoff=cutoff)
    return starts[close[0]] if close else None


def printable(text: str) -> str:
    """Text on one line, whatever characters a file or its name brought in.

    >>> printable("a\\nb")
    'a\\\\nb'
    """
    return "".join(c if c.isprintable() else c.encode("unicode_escape", "replace").decode() for c in text)


def first_line(error: Exception) -> str:
    """What another library's error begins with; its kind, if it says nothing.

    >>> first_line(ValueError("no such layer\\nat ...")), first_line(AssertionError())
    ('no such layer', 'AssertionError')
    """
    return next(iter(str(error).strip().splitlines()), type(error).__name__)
