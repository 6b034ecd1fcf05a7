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
