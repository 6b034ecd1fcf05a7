"""Text and tables as Markdown."""

import re
from collections.abc import Iterable, Sequence


def plain(text: str) -> str:
    """Text that Markdown shows as it is, within one line.

    >>> print(plain("a|b *c*"))
    a\\|b \\*c\\*
    """
    return re.sub(r"([\\`*_\[\]<>|#&])", r"\\\1", " ".join(text.split()))


def table(headings: Sequence[str], labels: int, rows: Iterable[Sequence[str]]) -> list[str]:
    """The lines of a table whose first columns are labels and the others numbers; its cells are Markdown already."""
    rule = ["---"] * labels + ["---:"] * (len(headings) - labels)
    return [f"| {' | '.join(row)} |" for row in ([plain(heading) for heading in headings], rule, *rows)]
