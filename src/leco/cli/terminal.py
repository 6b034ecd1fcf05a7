"""Tables on a terminal."""

from leco.errors import and_more


def print_table(
    headings: list[str], rows: list[list[str]], right: tuple[int, ...] = (), most: int | None = None, hint: str = ""
) -> None:
    """Print a table, with names verbatim (no markup, no emoji), and at most `most` rows, followed by a hint."""
    from rich import box
    from rich.console import Console
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
    for number, heading in enumerate(headings):
        table.add_column(heading, justify="right" if number in right else "left", overflow="fold", no_wrap=not number)
    shown = rows if most is None else rows[:most]
    for row in shown:
        table.add_row(*row)
    console = Console(markup=False, highlight=False, emoji=False)
    console.print(table)
    for line in and_more(rows, len(shown))[len(shown) :]:
        console.print(f"{line}{hint}", soft_wrap=True)
