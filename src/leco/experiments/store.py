"""Where stages are kept: each in a folder named after its fingerprint, which appears whole or not at all.

A stage is worked on in `partial/`, under a lock, and renamed into `stages/` when it is complete.
"""

import fcntl
import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from leco.errors import LecoError


class Store:
    """The stages below a folder of runs."""

    def __init__(self, runs: Path) -> None:
        self.stages, self.partial = runs / "stages", runs / "partial"

    def result(self, fingerprint: str) -> dict[str, Any] | None:
        """What a complete stage found; None if it is not complete."""
        path = self.stages / fingerprint / "result.json"
        if not path.is_file():
            return None
        found: dict[str, Any] = json.loads(path.read_text())
        return found

    def require(self, fingerprint: str) -> dict[str, Any]:
        """What a stage found that must be complete."""
        found = self.result(fingerprint)
        if found is None:
            raise LecoError(f"{self.stages / fingerprint}: the stage is not complete; run it first")
        return found

    def weights(self, fingerprint: str) -> Path:
        """The weights of a complete stage."""
        return self.stages / fingerprint / "model.safetensors"

    @contextmanager
    def working(self, fingerprint: str) -> Iterator[Path]:
        """The folder of a stage that is not complete yet, for this process alone."""
        folder = self.partial / fingerprint
        try:
            folder.mkdir(parents=True, exist_ok=True)
            lock = (self.partial / f"{fingerprint}.lock").open("w")  # outside, as the folder will be moved
        except OSError as error:
            raise LecoError(f"{folder}: cannot be written: {error.strerror}") from None
        with lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise LecoError(f"{folder}: another process is working on this stage; wait for it") from None
            folder.mkdir(exist_ok=True)  # another process may have moved it before we had the lock
            yield folder
            if not folder.exists():
                (self.partial / f"{fingerprint}.lock").unlink(missing_ok=True)

    def discard(self, fingerprint: str) -> None:
        """Remove the folder of a stage that is complete elsewhere."""
        shutil.rmtree(self.partial / fingerprint, ignore_errors=True)

    def complete(self, fingerprint: str) -> None:
        """Move a finished stage to where others find it; what it no longer needs goes last."""
        self.stages.mkdir(parents=True, exist_ok=True)
        final = self.stages / fingerprint
        (self.partial / fingerprint).rename(final)
        for leftover in (*final.glob("checkpoint-?.safetensors"), *final.glob(".leco-*")):
            leftover.unlink()
