"""Stores of stages, each in a folder named after its fingerprint, which is created atomically.

A stage is trained in `partial/`, under a lock, and renamed into `stages/` when it is complete.
"""

import copy
import fcntl
import json
import os
import shutil
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from leco.errors import LecoError
from leco.io import write_bytes

if TYPE_CHECKING:
    from leco.models.network import AnyNetwork

CHECKPOINTS = ("checkpoint-a.safetensors", "checkpoint-b.safetensors")  # as `training.checkpoint` writes them
_KEPT_IN_MEMORY = 4  # networks


class AnyStore(ABC):
    """Results and networks of complete stages. The last networks that this process trained are cached in memory."""

    def __init__(self) -> None:
        self._networks: dict[str, Any] = {}  # AnyNetwork; not imported, since listing stages needs no torch

    @abstractmethod
    def result(self, fingerprint: str) -> dict[str, Any] | None:
        """Return the result of a complete stage; None if it is not complete."""

    @abstractmethod
    def network(self, fingerprint: str, build: "Callable[[], AnyNetwork]", name: str) -> "AnyNetwork":
        """Return a copy of the network of a complete stage; `build` creates one of its shape."""

    @abstractmethod
    def working(self, fingerprint: str) -> Any:
        """Return a context with the folder of an incomplete stage; None if nothing is written."""

    @abstractmethod
    def complete(self, fingerprint: str, result: dict[str, Any]) -> None:
        """Record the result of a stage."""

    def require(self, fingerprint: str) -> dict[str, Any]:
        """Return the result of a stage; raise if it is not complete."""
        found = self.result(fingerprint)
        if found is None:
            raise LecoError(f"the stage {fingerprint} is not complete; run it first")
        return found

    def remember(self, fingerprint: str, network: "AnyNetwork") -> None:
        """Cache a network for stages that start from it."""
        self._networks[fingerprint] = network

    def recall(self, fingerprint: str) -> "AnyNetwork | None":
        """Return a copy of a cached network, which callers may change."""
        if fingerprint not in self._networks:
            return None
        import torch

        network: AnyNetwork = copy.deepcopy(self._networks[fingerprint])
        for tensor in (*network.parameters(), *network.buffers()):  # with the memory layout of tensors from a file
            tensor.data = tensor.data.clone(memory_format=torch.contiguous_format)
        return network


class Memory(AnyStore):
    """A store that writes nothing, for one training in this process."""

    def __init__(self) -> None:
        super().__init__()
        self._results: dict[str, dict[str, Any]] = {}

    def result(self, fingerprint: str) -> dict[str, Any] | None:
        """Return the result of a complete stage; None if it is not complete."""
        return self._results.get(fingerprint)

    def network(self, fingerprint: str, build: "Callable[[], AnyNetwork]", name: str) -> "AnyNetwork":
        """Return a copy of the network."""
        found = self.recall(fingerprint)
        assert found is not None
        return found

    @contextmanager
    def working(self, fingerprint: str) -> Iterator[None]:
        """Yield None: nothing is written."""
        yield None

    def complete(self, fingerprint: str, result: dict[str, Any]) -> None:
        """Record the result."""
        self._results[fingerprint] = result


class Store(AnyStore):
    """The stages in a folder of runs."""

    def __init__(self, runs: Path) -> None:
        super().__init__()
        self.stages, self.partial, self.ontologies = runs / "stages", runs / "partial", runs / "ontologies"
        self.features = runs / "features"  # shared by all stages: `experiments.embedding`
        self.copies = runs / "copies"  # of large images, shared by all stages: `experiments.shrinking`
        self.auto = runs / "auto"  # numbers of steps that fit into a time: `experiments.clock`

    def check(self) -> None:
        """Refuse a folder of runs that stages cannot be written to."""
        names = ("stages", "partial", "ontologies", "features", "copies", "auto")
        for folder in (self.stages.parent, *(getattr(self, name) for name in names)):
            if os.path.lexists(folder) and not folder.is_dir():
                raise LecoError(f"{folder}: is not a folder; choose another folder for runs")

    def folder(self, fingerprint: str) -> Path:
        """Folder of a complete stage."""
        return self.stages / fingerprint

    def result(self, fingerprint: str) -> dict[str, Any] | None:
        """Return the result of a complete stage; None if it is not complete."""
        path = self.folder(fingerprint) / "result.json"
        if not path.is_file():
            return None
        try:
            found = json.loads(path.read_bytes())
            if not isinstance(found, dict) or not {"stage", "version", "test"} <= found.keys():
                raise ValueError("fields are missing")
        except (OSError, ValueError) as error:
            raise LecoError(f"{path}: is damaged ({error}); delete its folder to train the stage again") from None
        return found

    def require(self, fingerprint: str) -> dict[str, Any]:
        """Return the result of a stage; raise if it is not complete."""
        found = self.result(fingerprint)
        if found is None:
            raise LecoError(f"{self.folder(fingerprint)}: the stage is not complete; run it first")
        return found

    def network(self, fingerprint: str, build: "Callable[[], AnyNetwork]", name: str) -> "AnyNetwork":
        """Return the network of a complete stage, from the cache or its file."""
        from leco.models.network import load_network

        path = self.weights(fingerprint)
        if not path.is_file():
            raise LecoError(f"{path}: the stage is not complete; run it first")
        remedy = "; delete its folder to train the stage again"
        return self.recall(fingerprint) or load_network(path, build, name, remedy)

    def remember(self, fingerprint: str, network: "AnyNetwork") -> None:
        """Cache the last few networks."""
        super().remember(fingerprint, network)
        for oldest in list(self._networks)[:-_KEPT_IN_MEMORY]:
            del self._networks[oldest]

    def weights(self, fingerprint: str) -> Path:
        """Path of the weights of a complete stage."""
        return self.folder(fingerprint) / "model.safetensors"

    @contextmanager
    def working(self, fingerprint: str) -> Iterator[Path]:
        """Lock the folder of an incomplete stage for this process."""
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
            folder.mkdir(exist_ok=True)  # another process may have moved it before this one got the lock
            yield folder
            if not folder.exists():
                (self.partial / f"{fingerprint}.lock").unlink(missing_ok=True)

    def is_running(self, fingerprint: str) -> bool:
        """Whether a process is working on a stage."""
        try:
            with (self.partial / f"{fingerprint}.lock").open() as lock:
                fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)  # released at once
        except BlockingIOError:
            return True
        except OSError:
            return False
        return False

    def discard(self, folder: Path) -> None:
        """Delete the folder of one stage, unless a process is working on it; the targets of symlinks are kept."""
        inside = folder.parent in (self.stages, self.partial) and folder.name not in ("", ".", "..")
        if not inside or folder.is_symlink() or not folder.is_dir():
            raise LecoError(f"{folder}: is not the folder of a stage; it was not deleted")
        if folder.parent == self.stages:
            shutil.rmtree(folder)
            return
        with self.working(folder.name):  # so that no other process starts it meanwhile
            shutil.rmtree(folder)

    def keep_ontology(self, fingerprint: str, content: bytes) -> None:
        """Store an ontology, once for all stages that use it."""
        path = self.ontologies / f"{fingerprint}.json"
        if not path.is_file():
            self.ontologies.mkdir(parents=True, exist_ok=True)
            write_bytes(path, content)

    def complete(self, fingerprint: str, result: dict[str, Any]) -> None:
        """Write the result, move the stage to `stages/`, and delete its checkpoints last."""
        write_bytes(self.partial / fingerprint / "result.json", json.dumps(result, indent=1).encode())
        self.stages.mkdir(parents=True, exist_ok=True)
        final = self.stages / fingerprint
        (self.partial / fingerprint).rename(final)
        for leftover in (*(final / name for name in CHECKPOINTS), *final.glob(".leco-*")):
            leftover.unlink(missing_ok=True)
