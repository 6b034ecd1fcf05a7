"""Errors a user can mend: one message that names the place, the value and the remedy."""

import difflib
from collections.abc import Iterable


class LecoError(ValueError):
    """Wrong input. The command line prints the message alone, without a traceback, and exits with 2."""


def nearest(value: str, valid: Iterable[str]) -> str:
    """Return the end of an error message: the valid value closest to the one given, or the first few.

    >>> nearest("raod", ["road", "bus"])
    "; did you mean 'road'?"
    >>> nearest("zebra", ["road", "bus"])
    "; valid: 'road', 'bus'"
    """
    candidates = list(dict.fromkeys(valid))
    # Comparing one string with 100,000 others would take longer than loading them: look among those of like length.
    alike = [c for c in candidates if len(candidates) <= 2000 or abs(len(c) - len(value)) <= 1]
    if close := difflib.get_close_matches(value, alike[:20_000], n=1, cutoff=0.6):
        return f"; did you mean {close[0]!r}?"
    if not candidates:
        return ""
    shown = ", ".join(repr(c) for c in candidates[:8])
    return f"; valid: {shown}" + (f", … ({len(candidates)} in all)" if len(candidates) > 8 else "")
