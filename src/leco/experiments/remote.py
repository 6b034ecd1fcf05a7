"""A store on remote storage, such as s3://bucket/runs: stages are downloaded and uploaded with fsspec.

Stages are trained in a local folder, which caches downloads. A remote stage is complete once it has a `result.json`,
which is uploaded last. There are no locks: two grids that train the same stage upload the same files.
"""

import hashlib
import os
import tempfile
from collections.abc import Iterable
from functools import partial
from pathlib import Path, PurePosixPath
from typing import Any
from urllib.parse import unquote, urlsplit

from leco.errors import LecoError, first_line
from leco.experiments.store import CHECKPOINTS, Store
from leco.io import replacing
from leco.records import METRICS_LINES, RESULT, is_complete

_PARTIAL = (METRICS_LINES, *CHECKPOINTS)  # in this order: metrics may be ahead of a checkpoint, never behind


def is_url(runs: str | Path) -> bool:
    """Whether this is an address of remote storage."""
    return "://" in str(runs) and not str(runs).startswith("file://")


def local_path(runs: str | Path) -> Path:
    """Return the folder of a path or a file:// address."""
    text = str(runs)
    if not text:
        raise LecoError("--runs is empty; pass a folder, such as runs")
    if not text.startswith("file://"):
        return Path(text)
    address = urlsplit(text)
    if address.netloc not in ("", "localhost"):
        raise LecoError(f"{text}: is a folder of the machine {address.netloc!r}; use file:///… for a local folder")
    return Path(unquote(address.path))


def at_hand(runs: str | Path) -> Path:
    """Return a local folder with all results of a store; the weights of a remote one are not downloaded."""
    if not is_url(runs):
        return local_path(runs)
    remote = Remote(str(runs))
    remote.fetch(remote.complete(), weights=False)
    remote.fetch_ontologies()
    return remote.local


class Remote:
    """A store at an address, and its local copy."""

    def __init__(self, url: str) -> None:
        import fsspec

        try:
            self.files, root = fsspec.core.url_to_fs(url)
        except Exception as error:  # every file system has its own
            raise LecoError(f"{url}: cannot be opened: {first_line(error)}") from None
        self.root = PurePosixPath(root)
        self.url = url
        name = hashlib.blake2b(url.encode(), digest_size=8).hexdigest()
        self.local = Path(tempfile.gettempdir()) / f"leco-{os.getuid()}" / name
        self.local.mkdir(parents=True, exist_ok=True, mode=0o700)
        if self.local.parent.stat().st_uid != os.getuid():
            raise LecoError(f"{self.local.parent}: belongs to another user; set TMPDIR to a folder of yours")
        self.store = Store(self.local)

    def complete(self) -> list[str]:
        """Return the fingerprints of all complete stages."""
        return sorted(PurePosixPath(path).parent.name for path in self._glob(f"stages/*/{RESULT}"))

    def fetch(self, stages: Iterable[str], weights: bool = True) -> None:
        """Download complete stages, each completely or not at all."""
        for name in stages:
            final = self.store.stages / name
            if is_complete(final) if weights else (final / RESULT).is_file():
                continue
            paths = [PurePosixPath(path) for path in self._glob(f"stages/{name}/*")]
            wanted = [path for path in paths if weights or path.suffix != ".safetensors"]
            for path in sorted(wanted, key=lambda path: path.name == RESULT):
                self._get(path, final / path.name)

    def fetch_ontologies(self) -> None:
        """Download all ontologies."""
        for path in self._glob("ontologies/*.json"):
            self._get(PurePosixPath(path), self.store.ontologies / PurePosixPath(path).name)

    def fetch_checkpoint(self, stage: str) -> None:
        """Download the checkpoint of an unfinished stage of another machine, if there is no local one."""
        folder = self.store.partial / stage
        if not any((folder / name).exists() for name in CHECKPOINTS):
            stored = {PurePosixPath(path).name: PurePosixPath(path) for path in self._glob(f"partial/{stage}/*")}
            for name in _PARTIAL:
                if name in stored:
                    self._get(stored[name], folder / name)

    def put_checkpoint(self, folder: Path) -> None:
        """Upload the checkpoint of an unfinished stage, so that any machine can continue it."""
        for name in _PARTIAL:
            if (folder / name).is_file():
                self._put(folder / name, f"partial/{folder.name}/{name}")

    def put(self, stage: str) -> None:
        """Upload a complete stage, its result last, and delete its checkpoints."""
        for path in self.store.ontologies.glob("*.json"):
            self._put(path, f"ontologies/{path.name}")
        folder = self.store.stages / stage
        files = [path for path in folder.iterdir() if path.is_file()]
        for path in sorted(files, key=lambda path: path.name == RESULT):
            self._put(path, f"stages/{stage}/{path.name}")
        for leftover in self._glob(f"partial/{stage}/*"):
            self._call(partial(self.files.rm_file, leftover))

    def _glob(self, pattern: str) -> list[str]:
        self._call(self.files.invalidate_cache)
        found: list[Any] = self._call(lambda: self.files.glob(str(self.root / pattern)))
        return [str(path) for path in found]

    def _get(self, source: PurePosixPath, target: Path) -> None:
        target.parent.mkdir(parents=True, exist_ok=True)
        with replacing(target) as part:
            self._call(lambda: self.files.get_file(str(source), part.name))

    def _put(self, source: Path, target: str) -> None:
        path = self.root / target
        self._call(lambda: self.files.makedirs(str(path.parent), exist_ok=True))
        self._call(lambda: self.files.put_file(str(source), str(path)))

    def _call(self, operation: Any) -> Any:
        try:
            return operation()
        except Exception as error:  # every file system has its own
            raise LecoError(f"{self.url}: cannot be used: {first_line(error)}") from None
