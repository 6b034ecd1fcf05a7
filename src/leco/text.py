"""Numbers and names as text, and tables as Markdown. Imports nothing else of `leco`."""

import re
from collections.abc import Iterable, Sequence

GAP = "–"


def with_spread(number: str, std: float | None) -> str:
    """A mean with its standard deviation, if it has one.

    >>> with_spread("61.2", 0.04), with_spread("61.2", None)
    ('61.2 ± 0.0', '61.2')
    """
    return number if std is None else f"{number} ± {std:.1f}"


def percent(fraction: float | None) -> str:
    """A fraction in percent, without the sign.

    >>> percent(0.613), percent(None)
    ('61.3', '–')
    """
    return GAP if fraction is None else f"{100 * fraction:.1f}"


def interval(low: float | None, high: float | None) -> str:
    """An interval of fractions in percent.

    >>> interval(0.6, 0.65)
    '60.0 to 65.0'
    """
    return GAP if low is None or high is None else f"{percent(low)} to {percent(high)}"


def plural(count: int, noun: str, nouns: str = "") -> str:
    """A count with its noun.

    >>> plural(1, "stage"), plural(1200, "stage")
    ('1 stage', '1,200 stages')
    """
    return f"{count:,} {noun if count == 1 else nouns or f'{noun}s'}"


def duration(seconds: float) -> str:
    """A time in a suitable unit.

    >>> duration(42), duration(150), duration(9000)
    ('42 s', '2.5 min', '2.5 h')
    """
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.1f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


def age(seconds: float) -> str:
    """A time ago, in its largest unit.

    >>> age(30), age(7200), age(200_000)
    ('30 s', '2 h', '2 d')
    """
    for unit, length in (("d", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= length:
            return f"{seconds / length:.0f} {unit}"
    return f"{max(0, seconds):.0f} s"


def size(count: int) -> str:
    """Bytes in a suitable unit.

    >>> size(900), size(153_976), size(11_401_212)
    ('0.9 kB', '154 kB', '11.4 MB')
    """
    power = min(4, max(1, (len(str(count)) - 1) // 3))
    value, unit = count / 1_000**power, ("kB", "MB", "GB", "TB")[power - 1]
    return f"{value:.0f} {unit}" if value >= 100 else f"{value:.1f} {unit}"


_FORMULA = re.compile(r"'*[=+\-@\t\r].", re.DOTALL)
_NUMBER = re.compile(r"[-+]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][-+]?[0-9]+)?%?")


def csv_cell(value: object) -> object:
    """A value for a CSV file that people open: spreadsheets take text with a leading ' for text, never for a formula.

    >>> csv_cell("=1+1"), csv_cell("@home"), csv_cell("-1.5"), csv_cell(-1.5), csv_cell("dog")
    ("'=1+1", "'@home", '-1.5', -1.5, 'dog')
    """
    formula = isinstance(value, str) and _FORMULA.match(value) and not _NUMBER.fullmatch(value)
    return f"'{value}" if formula else value


def from_csv_cell(text: str) -> str:
    """The text that `csv_cell` made a cell of.

    >>> from_csv_cell("'=1+1"), from_csv_cell("'tis")
    ('=1+1', "'tis")
    """
    return text[1:] if text[:1] == "'" and _FORMULA.match(text[1:]) else text


def csv_cells(row: Iterable[object], verbatim: bool = False) -> list[object]:
    """The cells of a row, by default as `csv_cell` writes them."""
    return list(row) if verbatim else [csv_cell(value) for value in row]


def escape_markdown(text: str) -> str:
    """Text that Markdown shows as it is, within one line.

    >>> print(escape_markdown("a|b *c*"))
    a\\|b \\*c\\*
    """
    return re.sub(r"([\\`*_\[\]<>|#&])", r"\\\1", " ".join(text.split()))


def markdown_table(headings: Sequence[str], labels: int, rows: Iterable[Sequence[str]]) -> list[str]:
    """The lines of a table whose first columns are labels and the others numbers; its cells are Markdown already."""
    rule = ["---"] * labels + ["---:"] * (len(headings) - labels)
    return [f"| {' | '.join(row)} |" for row in ([escape_markdown(heading) for heading in headings], rule, *rows)]
