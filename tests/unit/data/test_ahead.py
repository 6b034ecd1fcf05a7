import threading
import warnings

import pytest
import torch

from leco.data.ahead import THREADS, read_ahead
from leco.data.samples import Column, Few, Files, InMemory, Samples


def test_items_are_read_while_earlier_ones_are_used_but_not_without_bound():
    started, next_is_read = [], threading.Event()

    def read(item: int) -> int:
        started.append(item)
        if item == 1:
            next_is_read.set()
        return 10 * item

    found = read_ahead(read, range(1_000), count=3)
    assert next(found) == 0
    assert next_is_read.wait(60)  # although nobody has asked for it
    assert max(started) <= 3
    assert list(found) == [10 * item for item in range(1, 1_000)]


def test_an_error_comes_in_place_of_its_item_and_ends_the_reading():
    read: list[int] = []

    def failing(item: int) -> int:
        read.append(item)
        if item == 2:
            raise ValueError("item 2")
        return item

    found = read_ahead(failing, range(1_000))
    assert [next(found), next(found)] == [0, 1]
    with pytest.raises(ValueError, match="item 2"):
        next(found)
    assert max(read) <= 3 + THREADS


def test_what_pillow_warns_of_is_ignored_and_other_warnings_are_not():
    def read(module: str) -> str:
        warnings.warn_explicit("odd", UserWarning, "file.py", 1, module=module)
        return module

    filters = list(warnings.filters)
    found = read_ahead(read, ["PIL.TiffImagePlugin", "leco.data.images"])
    assert next(found) == "PIL.TiffImagePlugin"
    with pytest.raises(UserWarning, match="odd"):
        next(found)
    assert list(warnings.filters) == filters


def test_samples_are_read_in_threads_only_where_that_takes_long(tmp_path):
    here = threading.get_ident()

    def readers(inputs: Column) -> set[int]:
        samples = Samples(inputs, {"v1": InMemory(torch.zeros(4))})
        return set(samples.each(lambda _: threading.get_ident(), range(4)))

    assert here not in readers(Files([tmp_path] * 4, lambda _: torch.zeros(2)))
    assert readers(InMemory(torch.zeros(4, 2))) == readers(Few(torch.zeros(1, 2), 4)) == {here}
