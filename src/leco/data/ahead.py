"""Read ahead of those who use what is read: a GPU computes while the CPU decodes the next images."""

import os
import threading
import warnings
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

from torch.utils.data import DataLoader, Dataset

from leco.errors import LecoError

_Item = TypeVar("_Item")
_Found = TypeVar("_Found")
THREADS = min(8, os.cpu_count() or 1)  # decoding does not hold Python's lock


@contextmanager
def quiet() -> Iterator[None]:
    """Ignore what Pillow warns of, such as odd EXIF data: what matters is raised.

    Warning filters belong to the process, so threads leave them alone, and those who start threads are quiet meanwhile.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", module="PIL")
        yield


def read_ahead(
    read: Callable[[_Item], _Found], items: Iterable[_Item], workers: int = 0, *, count: int = THREADS
) -> Generator[_Found, None, None]:
    """Yield what `read` returns for each item, in their order.

    As many processes as `workers` read ahead, or threads, which are up to `count` items ahead.

    >>> list(read_ahead(abs, [-3, 2, -1]))
    [3, 2, 1]
    """
    return _in_processes(read, items, workers) if workers else _in_threads(read, items, count)


def _in_threads(read: Callable[[_Item], _Found], items: Iterable[_Item], count: int) -> Generator[_Found, None, None]:
    with quiet(), ThreadPoolExecutor(min(count, os.cpu_count() or 1)) as pool:
        ahead: deque[Future[_Found]] = deque()
        try:
            for item in items:
                ahead.append(pool.submit(read, item))
                if len(ahead) > count:
                    yield ahead.popleft().result()
            while ahead:
                yield ahead.popleft().result()
        finally:
            pool.shutdown(cancel_futures=True)


def _in_processes(
    read: Callable[[_Item], _Found], items: Iterable[_Item], workers: int
) -> Generator[_Found, None, None]:
    calls = _Calls(read, items if isinstance(items, Sequence) else list(items))
    try:
        yield from DataLoader(calls, batch_size=None, num_workers=workers)
    except LecoError as error:  # without torch's traceback
        raise LecoError(str(error).strip().splitlines()[-1].removeprefix("leco.errors.LecoError: ")) from None


@dataclass(frozen=True, eq=False)
class _Calls(Dataset[Any]):
    """Calls of `read`, one for each item."""

    read: Callable[[Any], Any]
    items: Sequence[Any]

    def __len__(self) -> int:
        return len(self.items)

    def __getitem__(self, number: int) -> Any:
        return self.read(self.items[number])
