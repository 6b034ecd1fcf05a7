"""Progress on the terminal or in a notebook: one bar for all that takes long, and none where nobody looks."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

Tick = Callable[[float, float | None], None]  # how much is done, and of how much, if that is known


@contextmanager
def progress_bar(description: str, *, shown: bool = True) -> Iterator[Tick]:
    """Yield a function to call with how much is done by now, and of how much; the bar vanishes at the end."""
    from rich.console import Console
    from rich.progress import Progress

    console = Console(stderr=True)
    if not shown or not visible(console):
        yield lambda _, __: None
        return
    with Progress(console=console, transient=True) as progress:
        task = progress.add_task(description, total=None)
        yield lambda done, total: progress.update(task, completed=done, total=total)


def visible(console: object) -> bool:
    """Whether somebody looks: at a terminal, or at a notebook."""
    return bool(getattr(console, "is_terminal", False) or getattr(console, "is_jupyter", False))
