"""Tables in the terminal."""


def print_table(headings: list[str], rows: list[list[str]], right: tuple[int, ...] = ()) -> None:
    """Print a table that shows names as they are: no markup, no emoji."""
    from rich import box
    from rich.console import Console
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
    for number, heading in enumerate(headings):
        table.add_column(heading, justify="right" if number in right else "left", overflow="fold", no_wrap=not number)
    for row in rows:
        table.add_row(*row)
    Console(markup=False, highlight=False, emoji=False).print(table)
