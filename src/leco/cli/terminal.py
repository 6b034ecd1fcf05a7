"""A bar that shows how far something is, on a terminal."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def ticking(what: str) -> Iterator[Callable[[int, int], None]]:
    """Yield what is to be called with how much is done, and how much there is."""
    from rich.console import Console
    from rich.progress import Progress

    console = Console(stderr=True)
    with Progress(console=console, transient=True, disable=not console.is_terminal) as progress:
        task = progress.add_task(what, total=None)

        def tick(done: int, total: int) -> None:
            progress.update(task, completed=done, total=total)

        yield tick


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
