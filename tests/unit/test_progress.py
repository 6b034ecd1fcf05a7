import pytest
from rich.console import Console

from leco import progress
from leco.progress import rate_bar


def test_without_a_terminal_a_line_is_printed_now_and_then(capsys, monkeypatch):
    now = iter(range(100, 900, 10))
    monkeypatch.setattr(progress.time, "monotonic", lambda: next(now))
    with rate_bar("embedding", "images", every=25) as tick:
        for done in range(0, 7_000, 1_000):
            tick(done, 6_000)
    assert capsys.readouterr().err.splitlines() == [
        "embedding: 3,000 of 6,000 images, 100 images/s",
        "embedding: 6,000 of 6,000 images, 100 images/s",
    ]


def test_nothing_is_shown_if_that_is_wanted(capsys):
    with rate_bar("embedding", "images", shown=False, every=0) as tick:
        tick(0, 10)
        tick(5, 10)
    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize("ticks", [0, 3])
def test_on_a_terminal_the_bar_starts_with_the_work_and_disappears(capsys, monkeypatch, ticks):
    monkeypatch.setattr(Console, "is_terminal", True)
    with rate_bar("embedding", "images") as tick:
        for done in range(ticks):
            tick(done, 10)
    shown = capsys.readouterr().err
    assert ("embedding" in shown) == bool(ticks)
    assert ("images/s" in shown) == bool(ticks)
