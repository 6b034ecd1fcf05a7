"""Digests of the contents of files, remembered, so that a set that did not change costs a `stat` of each file."""

import hashlib
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from pathlib import Path

import numpy as np
import torch

from leco.data.shards import Keys, Shards, Writer, as_keys
from leco.errors import LecoError
from leco.progress import rate_bar

_THREADS = 4
_AT_ONCE = 256  # files; a request to stop waits for them
_SHOWN = 1_000  # files that are read in silence


def file_digests(
    paths: Sequence[Path],
    memory: Path | None,
    *,
    say: Callable[[str], object] = lambda _: None,
    check: Callable[[], object] = lambda: None,
) -> tuple[Keys, Keys]:
    """Return digests of the contents of files, and their stamps, which change whenever a file does.

    Digests are remembered by stamp in the folder `memory`. `check` is called now and then, and may raise.
    """
    stamps = as_keys([stamp(path) for path in paths])
    known = Shards.open(memory, say) if memory else Shards(as_keys([]), ())
    rows = known.find(stamps)
    contents = np.zeros(len(paths), dtype="V16")
    if (rows >= 0).any():
        contents[rows >= 0] = known.read(torch.from_numpy(rows[rows >= 0])).numpy().view("V16").ravel()
    unknown = np.flatnonzero(rows < 0)
    if not len(unknown):
        return contents, stamps
    writer = Writer(memory, rows=1_000_000) if memory else nullcontext()
    shown = len(unknown) > _SHOWN
    with writer as new, ThreadPoolExecutor(_THREADS) as pool, rate_bar("reading", "files", shown=shown) as tick:
        for start in range(0, len(unknown), _AT_ONCE):
            check()
            tick(start, len(unknown))
            some = unknown[start : start + _AT_ONCE]
            contents[some] = as_keys(list(pool.map(_content, [paths[index] for index in some])))
            if new is not None:
                new.add(stamps[some], torch.from_numpy(contents[some].view(np.uint8).reshape(-1, 16)))
    return contents, stamps


def stamp(path: Path) -> bytes:
    """Digest of the path, size, times and inode of a file, which needs not be read."""
    try:
        found = os.stat(path)  # noqa: PTH116 (twice as fast)
    except OSError as error:
        raise LecoError(f"{path}: cannot be read: {error.strerror}") from None
    state = f"\0{found.st_size} {found.st_mtime_ns} {found.st_ctime_ns} {found.st_ino}"
    return digest(os.fsencode(os.path.abspath(path)) + state.encode())  # noqa: PTH100 (without resolving links)


def digest(content: bytes) -> bytes:
    """Digest of some bytes, as sixteen bytes."""
    return hashlib.blake2b(content, digest_size=16).digest()


def _content(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, lambda: hashlib.blake2b(digest_size=16)).digest()
    except OSError as error:
        raise LecoError(f"{path}: cannot be read: {error.strerror}") from None
