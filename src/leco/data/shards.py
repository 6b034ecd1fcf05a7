"""Tables on disk that only grow: rows of numbers by a 16-byte key, in memory-mapped shards.

A shard is written atomically, under a unique name, and never changes. So a process that is killed leaves complete
shards, and several processes can add rows at once; of rows with the same key, the first is read.
"""

import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from leco.errors import LecoError, first_line
from leco.io import write_bytes

Keys = NDArray[np.void]  # (n,), 16 bytes each
_SUFFIX = ".safetensors"


def as_keys(digests: list[bytes]) -> Keys:
    """Return 16-byte digests as an array."""
    return np.frombuffer(b"".join(digests), dtype="V16")


@dataclass(frozen=True, eq=False)
class Shards:
    """The rows that were in a folder when it was opened. Only the keys are held in memory."""

    keys: Keys  # of all rows
    blocks: tuple[Tensor, ...]  # (n, d) of each shard, memory-mapped

    @classmethod
    def open(cls, folder: Path, say: Callable[[str], object] = lambda _: None) -> "Shards":
        """Open all shards in a folder, which need not exist; damaged ones are reported and ignored."""
        keys: list[Keys] = [as_keys([])]
        blocks: list[Tensor] = []
        for path in sorted(folder.glob(f"*{_SUFFIX}")):
            try:
                if not path.is_file():  # opening a pipe would wait forever
                    raise ValueError("not a file")
                with safe_open(path, framework="pt") as file:
                    found, values = file.get_tensor("keys"), file.get_tensor("values")
                if found.dtype != torch.uint8 or found.shape != (len(values), 16) or values.ndim != 2:
                    raise ValueError("not a table of keys and values")
                if blocks and (values.dtype, values.shape[1]) != (blocks[0].dtype, blocks[0].shape[1]):
                    raise ValueError(f"its rows have {values.shape[1]} numbers, others {blocks[0].shape[1]}")
            except (SafetensorError, OSError, ValueError) as error:
                say(f"{path}: is damaged ({first_line(error)}) and ignored; delete it")
                continue
            keys.append(found.numpy().view("V16").ravel())
            blocks.append(values)
        return cls(np.concatenate(keys), tuple(blocks))

    @property
    def width(self) -> int:
        """Numbers in a row; 0 if there are no shards."""
        return self.blocks[0].shape[1] if self.blocks else 0

    def find(self, keys: Keys) -> NDArray[np.int64]:
        """Row of each key; -1 if there is none."""
        if not len(self.keys):
            return np.full(len(keys), -1, dtype=np.int64)
        ordered, order = self._sorted
        rows = order[np.searchsorted(ordered, keys).clip(max=len(order) - 1)]
        return np.where(self.keys[rows] == keys, rows, -1)

    def read(self, rows: Tensor) -> Tensor:
        """Values of some rows: (n, d); zeros for -1."""
        kind = self.blocks[0].dtype if self.blocks else torch.float32
        found = torch.zeros(len(rows), self.width, dtype=kind)
        ends, starts = self._bounds
        ordered, order = rows.sort(stable=True)
        limits = [int((rows < 0).sum()), *torch.searchsorted(ordered, ends).tolist()]
        for number, block in enumerate(self.blocks):
            low, high = limits[number], limits[number + 1]
            if low < high:
                found[order[low:high]] = block[ordered[low:high] - starts[number]]
        return found

    @cached_property
    def _sorted(self) -> tuple[Keys, NDArray[np.int64]]:
        order = self.keys.argsort(kind="stable")
        return self.keys[order], order

    @cached_property
    def _bounds(self) -> tuple[Tensor, list[int]]:
        """The row after the last, and the first row, of each shard."""
        lengths = torch.tensor([len(block) for block in self.blocks], dtype=torch.int64)
        ends = lengths.cumsum(0)
        return ends, (ends - lengths).tolist()


class Writer:
    """A context that collects rows, and writes a shard every few rows or seconds, and at the end, even an early one."""

    def __init__(self, folder: Path, *, rows: int = 4_096, seconds: float = 10.0) -> None:
        self.folder, self.rows, self.seconds = folder, rows, seconds
        self._keys: list[Any] = []
        self._values: list[Tensor] = []
        self._written = time.monotonic()

    def __enter__(self) -> "Writer":
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise LecoError(f"{self.folder}: cannot be written: {error.strerror}") from None
        return self

    def __exit__(self, _: type[BaseException] | None, __: BaseException | None, ___: TracebackType | None) -> None:
        self.flush()

    def add(self, keys: Keys, values: Tensor) -> None:
        """Add rows (n, d)."""
        self._keys.append(keys)
        self._values.append(values)
        count = sum(map(len, self._keys))
        if count >= self.rows or time.monotonic() - self._written > self.seconds:
            self.flush()

    def flush(self) -> None:
        """Write the rows that were added since the last shard."""
        if self._keys:
            keys = np.concatenate(self._keys).view(np.uint8).reshape(-1, 16)
            content = save({"keys": torch.from_numpy(keys), "values": torch.cat(self._values).contiguous()})
            number = 1 + sum(1 for _ in self.folder.glob(f"*{_SUFFIX}"))  # for people; the rest makes it unique
            write_bytes(self.folder / f"{number:08}-{secrets.token_hex(4)}{_SUFFIX}", content)
        self._keys, self._values, self._written = [], [], time.monotonic()
