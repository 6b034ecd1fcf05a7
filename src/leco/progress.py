"""Progress bars on a terminal or in a notebook."""

import sys
import time
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


@contextmanager
def rate_bar(description: str, unit: str, *, shown: bool = True, every: float = 30.0) -> Iterator[Tick]:
    """Yield a function like that of `progress_bar`, for work of which there may be none: the first call starts the bar.

    It also shows the rate. Without a terminal, it is a line now and then, `every` so many seconds.
    """
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    progress = Progress(*columns, console=console, transient=True)
    is_visible = visible(console)
    started = said = 0.0

    def tick(done: float, total: float | None) -> None:
        nonlocal started, said
        now = time.monotonic()
        if not started or not done:
            started = said = now
        rate = f"{done / (now - started):,.0f} {unit}/s" if now > started else ""
        if is_visible:
            progress.start()
            if not progress.tasks:
                progress.add_task(description)
            text = f"{description}: {rate}" if rate else description
            progress.update(progress.task_ids[0], completed=done, total=total, description=text)
        elif now - said >= every:
            said = now
            of = "" if total is None else f" of {total:,.0f}"
            sys.stderr.write(f"{description}: {done:,.0f}{of} {unit}, {rate}\n")

    try:
        yield tick if shown else lambda _, __: None
    finally:
        if progress.tasks:
            progress.stop()


def visible(console: object) -> bool:
    """Whether the console is a terminal or a notebook."""
    return bool(getattr(console, "is_terminal", False) or getattr(console, "is_jupyter", False))
