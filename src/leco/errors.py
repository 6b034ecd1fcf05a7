"""Errors that a user can fix: one message that names the place, the value and the remedy."""

import difflib
from collections.abc import Iterable, Sequence

_SHOWN = 8  # valid values in a message
_COMPARED = 2_000  # candidates at most: comparing strings takes quadratic time
_COMPARED_LENGTH = 40  # characters of each


class LecoError(ValueError):
    """Invalid input. The command line prints the message alone, without a traceback, and exits with 2."""


class DivergedError(LecoError):
    """A loss or a prediction became NaN or infinite during training."""


class TextError(LecoError):
    """A problem in a text, and its line; the caller, who knows the name of the file, adds it."""

    def __init__(self, line: int, problem: str) -> None:
        self.line, self.problem = line, problem
        super().__init__(f"line {line}: {problem}")


def nearest(value: str, valid: Iterable[str]) -> str:
    """Return the end of an error message: the valid value closest to the given one, or the first few.

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
    return f"; valid: {', '.join(and_more([repr(name) for name in candidates], _SHOWN))}"


def closest(value: str, candidates: Sequence[str], cutoff: float) -> str | None:
    """Return the candidate most similar to a string, in bounded time: of many, only those of similar length count."""
    if len(candidates) > _COMPARED:
        candidates = [name for name in candidates if abs(len(name) - len(value)) <= 1]
    starts = {name[:_COMPARED_LENGTH]: name for name in candidates[:_COMPARED]}
    close = difflib.get_close_matches(value[:_COMPARED_LENGTH], starts, n=1, cutoff=cutoff)
    return starts[close[0]] if close else None


def and_more(items: Sequence[object], most: int) -> list[str]:
    """Return the first `most` items as text, and how many more there are.

    >>> ", ".join(and_more(["road", "bus", "car"], 2))
    'road, bus, … and 1 more'
    """
    rest = len(items) - most
    return [*map(str, items[:most]), *([f"… and {rest:,} more"] if rest > 0 else [])]


def printable(text: str) -> str:
    """Return text on one line, with control characters escaped.

    >>> printable("a\\nb")
    'a\\\\nb'
    """
    return "".join(c if c.isprintable() else c.encode("unicode_escape", "replace").decode() for c in text)


def first_line(error: BaseException) -> str:
    """Return the first line of another library's error, or its type if it has no message.

    >>> first_line(ValueError("no such layer\\nat ...")), first_line(AssertionError())
    ('no such layer', 'AssertionError')
    """
    return next(iter(str(error).strip().splitlines()), type(error).__name__)
