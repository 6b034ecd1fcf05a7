"""Progress bars on a terminal or in a notebook, and none elsewhere."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

Tick = Callable[[float, float | None], None]  # amount done, and total, if known


@contextmanager
def progress_bar(description: str, *, shown: bool = True) -> Iterator[Tick]:
    """Yield a function to call with the amount done and the total; the bar disappears at the end."""
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
    """Whether the console is a terminal or a notebook."""
    return bool(getattr(console, "is_terminal", False) or getattr(console, "is_jupyter", False))
