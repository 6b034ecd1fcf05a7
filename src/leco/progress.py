"""Progress on the terminal or in a notebook: one bar for all that takes long, and none where nobody looks."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

Advance = Callable[[float], object]  # how much is done by now


@contextmanager
def progress_bar(description: str, total: float | None, *, shown: bool = True) -> Iterator[Advance]:
    """Yield a function to call with how much of the `total` is done; the bar vanishes at the end."""
    from rich.console import Console
    from rich.progress import Progress

    console = Console(stderr=True)
    if not shown or not visible(console):
        yield lambda _: None
        return
    with Progress(console=console, transient=True) as progress:
        task = progress.add_task(description, total=total)
        yield lambda done: progress.update(task, completed=done)


def visible(console: object) -> bool:
    """Whether somebody looks: at a terminal, or at a notebook."""
    return bool(getattr(console, "is_terminal", False) or getattr(console, "is_jupyter", False))
