"""A store on storage of another kind, such as s3://bucket/runs: stages are fetched from it, and put there, by fsspec.

Work is done in a folder on this machine's disk, which keeps what it has seen. There, a stage is complete when its
`result.json` is there, which is put last. Nothing locks: two grids that train the same stage put the same files.
"""

import hashlib
import json
import os
import tempfile
from collections.abc import Iterable
from functools import partial
from pathlib import Path, PurePosixPath
from typing import Any
from urllib.parse import unquote, urlsplit

from leco.errors import LecoError, first_line
from leco.experiments.store import CHECKPOINTS, Store

_RESULT = "result.json"
_PARTIAL = ("metrics.jsonl", *CHECKPOINTS)  # in this order: metrics may be ahead of a checkpoint, never behind


def is_url(runs: str | Path) -> bool:
    """Whether this names storage that only fsspec reaches."""
    return "://" in str(runs) and not str(runs).startswith("file://")


def local_path(runs: str | Path) -> Path:
    """The folder that a path or a file:// address names."""
    text = str(runs)
    if not text:
        raise LecoError("the folder of runs has no name; say such as runs")
    if not text.startswith("file://"):
        return Path(text)
    address = urlsplit(text)
    if address.netloc not in ("", "localhost"):
        raise LecoError(f"{text}: names the machine {address.netloc!r}; say file:///… for a folder of this one")
    return Path(unquote(address.path))


def at_hand(runs: str | Path) -> Path:
    """A folder with all results of a store, wherever it is; weights are left where they are."""
    if not is_url(runs):
        return local_path(runs)
    remote = Remote(str(runs))
    remote.fetch(remote.complete(), weights=False)
    remote.fetch_ontologies()
    return remote.local


class Remote:
    """A store at an address, and its copy on this machine's disk."""

    def __init__(self, url: str) -> None:
        import fsspec

        try:
            self.files, root = fsspec.core.url_to_fs(url)
        except Exception as error:  # of whatever file system
            raise LecoError(f"{url}: cannot be opened: {first_line(error)}") from None
        self.root = PurePosixPath(root)
        self.url = url
        name = hashlib.blake2b(url.encode(), digest_size=8).hexdigest()
        self.local = Path(tempfile.gettempdir()) / f"leco-{os.getuid()}" / name
        self.local.mkdir(parents=True, exist_ok=True, mode=0o700)
        if self.local.parent.stat().st_uid != os.getuid():
            raise LecoError(f"{self.local.parent}: belongs to somebody else; set TMPDIR to a folder of yours")
        self.store = Store(self.local)

    def complete(self) -> list[str]:
        """The stages that are complete there."""
        return sorted(PurePosixPath(path).parent.name for path in self._glob(f"stages/*/{_RESULT}"))

    def fetch(self, stages: Iterable[str], weights: bool = True) -> None:
        """Copy complete stages to this machine's disk, each whole or not at all."""
        for name in stages:
            final = self.store.stages / name
            lacks = not (final / _RESULT).is_file() or (weights and not self._has_weights(final))
            if not lacks:
                continue
            paths = [PurePosixPath(path) for path in self._glob(f"stages/{name}/*")]
            wanted = [path for path in paths if weights or path.suffix != ".safetensors"]
            for path in sorted(wanted, key=lambda path: path.name == _RESULT):
                self._get(path, final / path.name)

    def fetch_ontologies(self) -> None:
        """Copy all ontologies."""
        for path in self._glob("ontologies/*.json"):
            self._get(PurePosixPath(path), self.store.ontologies / PurePosixPath(path).name)

    def fetch_checkpoint(self, stage: str) -> None:
        """Copy what another machine left of a stage that it did not finish, if this one has nothing of it."""
        folder = self.store.partial / stage
        if not any((folder / name).exists() for name in CHECKPOINTS):
            there = {PurePosixPath(path).name: PurePosixPath(path) for path in self._glob(f"partial/{stage}/*")}
            for name in _PARTIAL:
                if name in there:
                    self._get(there[name], folder / name)

    def put_checkpoint(self, folder: Path) -> None:
        """Put what there is of an incomplete stage there, for whoever goes on with it."""
        for name in _PARTIAL:
            if (folder / name).is_file():
                self._put(folder / name, f"partial/{folder.name}/{name}")

    def put(self, stage: str) -> None:
        """Put a complete stage there, its result last, and forget its checkpoints."""
        for path in self.store.ontologies.glob("*.json"):
            self._put(path, f"ontologies/{path.name}")
        folder = self.store.stages / stage
        files = [path for path in folder.iterdir() if path.is_file()]
        for path in sorted(files, key=lambda path: path.name == _RESULT):
            self._put(path, f"stages/{stage}/{path.name}")
        for leftover in self._glob(f"partial/{stage}/*"):
            self._asked(partial(self.files.rm_file, leftover))

    def _has_weights(self, folder: Path) -> bool:
        return (folder / "model.safetensors").is_file() or bool(
            json.loads((folder / _RESULT).read_bytes()).get("diverged")
        )

    def _glob(self, pattern: str) -> list[str]:
        self._asked(self.files.invalidate_cache)
        found: list[Any] = self._asked(lambda: self.files.glob(str(self.root / pattern)))
        return [str(path) for path in found]

    def _get(self, source: PurePosixPath, target: Path) -> None:
        target.parent.mkdir(parents=True, exist_ok=True)
        part = target.with_name(f".leco-{os.getpid()}-{target.name}")
        self._asked(lambda: self.files.get_file(str(source), str(part)))
        part.replace(target)

    def _put(self, source: Path, target: str) -> None:
        path = self.root / target
        self._asked(lambda: self.files.makedirs(str(path.parent), exist_ok=True))
        self._asked(lambda: self.files.put_file(str(source), str(path)))

    def _asked(self, act: Any) -> Any:
        try:
            return act()
        except Exception as error:  # of whatever file system
            raise LecoError(f"{self.url}: cannot be used: {first_line(error)}") from None
