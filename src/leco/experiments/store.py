"""Where stages are kept: each in a folder named after its fingerprint, which appears whole or not at all.

A stage is worked on in `partial/`, under a lock, and renamed into `stages/` when it is complete.
"""

import fcntl
import hashlib
import json
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from leco.errors import LecoError
from leco.io import write_bytes

UNTESTED = "-plan"  # how the fingerprints of data end whose test split was left out; reports pass them over
CHECKPOINTS = ("checkpoint-a.safetensors", "checkpoint-b.safetensors")  # as `training.checkpoint` writes them


class Store:
    """The stages below a folder of runs."""

    def __init__(self, runs: Path) -> None:
        self.stages, self.partial, self.ontologies = runs / "stages", runs / "partial", runs / "ontologies"

    def folder(self, fingerprint: str) -> Path:
        """Where a stage is, once it is complete."""
        return self.stages / fingerprint

    def result(self, fingerprint: str) -> dict[str, Any] | None:
        """What a complete stage found; None if it is not complete."""
        path = self.folder(fingerprint) / "result.json"
        if not path.is_file():
            return None
        try:
            found = json.loads(path.read_bytes())
            if not isinstance(found, dict) or not {"stage", "version", "test"} <= found.keys():
                raise ValueError("it lacks what a result has")
        except (OSError, ValueError) as error:
            raise LecoError(f"{path}: is damaged ({error}); delete its folder to train the stage anew") from None
        return found

    def require(self, fingerprint: str) -> dict[str, Any]:
        """What a stage found that must be complete."""
        found = self.result(fingerprint)
        if found is None:
            raise LecoError(f"{self.folder(fingerprint)}: the stage is not complete; run it first")
        return found

    def weights(self, fingerprint: str) -> Path:
        """The weights of a complete stage."""
        return self.folder(fingerprint) / "model.safetensors"

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

    def is_running(self, fingerprint: str) -> bool:
        """Whether a process is working on a stage."""
        try:
            with (self.partial / f"{fingerprint}.lock").open() as lock:
                fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)  # let go at once
        except BlockingIOError:
            return True
        except OSError:
            return False
        return False

    def discard(self, folder: Path) -> None:
        """Delete the folder of one stage, unless a process is working on it; what links lead to is left alone."""
        inside = folder.parent in (self.stages, self.partial) and folder.name not in ("", ".", "..")
        if not inside or folder.is_symlink() or not folder.is_dir():
            raise LecoError(f"{folder}: is no folder of a stage; it is left alone")
        if folder.parent == self.stages:
            shutil.rmtree(folder)
            return
        with self.working(folder.name):  # so that no other process starts meanwhile
            shutil.rmtree(folder)

    def keep_ontology(self, fingerprint: str, content: bytes) -> None:
        """Keep an ontology, once for all stages that use it."""
        path = self.ontologies / f"{fingerprint}.json"
        if not path.is_file():
            self.ontologies.mkdir(parents=True, exist_ok=True)
            write_bytes(path, content)

    def complete(self, fingerprint: str) -> None:
        """Move a finished stage to where others find it; what it no longer needs goes last."""
        self.stages.mkdir(parents=True, exist_ok=True)
        final = self.stages / fingerprint
        (self.partial / fingerprint).rename(final)
        for leftover in (*(final / name for name in CHECKPOINTS), *final.glob(".leco-*")):
            leftover.unlink(missing_ok=True)


_TAKEN = ("ontology", "samples", "best_step", "validation_score", "seconds", "images_per_second", "device", "threads")
_ALSO_TAKEN = ("processes", "packages")


def summarise(config: Mapping[str, Any], result: Mapping[str, Any]) -> dict[str, Any]:
    """The configuration, and of the result what is one number for each version."""
    metric = result.get("metric") or guess_metric(config, result)
    test = {name: scores[metric] for name, scores in (result["test"] or {}).items()}
    taken = {name: result.get(name) for name in (*_TAKEN, *_ALSO_TAKEN)}
    return {"config": dict(config), "metric": metric, "data": result.get("data") or _data(config, result)} | {
        "test": test,
        **taken,
    }


def guess_metric(config: Mapping[str, Any], result: Mapping[str, Any]) -> str:
    """The metric of a stage that was stored before results named theirs: the one that models were chosen by.

    >>> stored = {"validation_score": 0.5, "validation": {"v1": {"macc": 0.7, "miou": 0.5}}}
    >>> guess_metric({"version": "v1", "material": "own 0123"}, stored)
    'miou'
    """
    scores = (result.get("validation") or {}).get(config["version"], {})
    if scores and "miou" in scores and scores["miou"] != scores["macc"]:
        return "miou" if result["validation_score"] == scores["miou"] else "macc"
    return "miou" if str(config["material"]).startswith(("camvid", "mapillary")) else "macc"


def _data(config: Mapping[str, Any], result: Mapping[str, Any]) -> str | None:
    """What tells the data of a first period apart, whatever the seed: classes, and how many samples there are."""
    if config["period"] or not result["test"]:
        return None
    tested = [(row["class"], row["support"]) for row in result["test"][config["version"]]["per_class"]]
    held_out = (result["validation"] or {}).get(config["version"], {}).get("per_class", [])
    content = json.dumps([tested, sum(row["support"] for row in held_out)])
    return hashlib.blake2b(content.encode(), digest_size=8).hexdigest()
