"""Where stages are kept: each in a folder named after its fingerprint, which appears whole or not at all.

A stage is worked on in `partial/`, under a lock, and renamed into `stages/` when it is complete.
"""

import copy
import fcntl
import json
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
    """Results and networks of complete stages. The last networks that this process trained stay in memory."""

    def __init__(self) -> None:
        self._networks: dict[str, Any] = {}  # AnyNetwork: lists of stages need no torch

    @abstractmethod
    def result(self, fingerprint: str) -> dict[str, Any] | None:
        """The result of a complete stage; None if it is not complete."""

    @abstractmethod
    def network(self, fingerprint: str, build: "Callable[[], AnyNetwork]", name: str) -> "AnyNetwork":
        """The network of a complete stage, on its own memory; `build` makes one of its shape."""

    @abstractmethod
    def working(self, fingerprint: str) -> Any:
        """A context with the folder of a stage that is not complete yet; None where nothing is written."""

    @abstractmethod
    def complete(self, fingerprint: str, result: dict[str, Any]) -> None:
        """Note that a stage has its result."""

    def require(self, fingerprint: str) -> dict[str, Any]:
        """The result of a stage that must be complete."""
        found = self.result(fingerprint)
        if found is None:
            raise LecoError(f"the stage {fingerprint} is not complete; run it first")
        return found

    def remember(self, fingerprint: str, network: "AnyNetwork") -> None:
        """Keep a network in memory for stages that start from it."""
        self._networks[fingerprint] = network

    def recall(self, fingerprint: str) -> "AnyNetwork | None":
        """A copy of a network in memory: callers may change it."""
        if fingerprint not in self._networks:
            return None
        import torch

        network: AnyNetwork = copy.deepcopy(self._networks[fingerprint])
        for tensor in (*network.parameters(), *network.buffers()):  # laid out as if they were read from a file
            tensor.data = tensor.data.clone(memory_format=torch.contiguous_format)
        return network


class Memory(AnyStore):
    """A store that writes nothing, for one training in this process."""

    def __init__(self) -> None:
        super().__init__()
        self._results: dict[str, dict[str, Any]] = {}

    def result(self, fingerprint: str) -> dict[str, Any] | None:
        """The result of a complete stage; None if it is not complete."""
        return self._results.get(fingerprint)

    def network(self, fingerprint: str, build: "Callable[[], AnyNetwork]", name: str) -> "AnyNetwork":
        """A copy of the network."""
        found = self.recall(fingerprint)
        assert found is not None
        return found

    @contextmanager
    def working(self, fingerprint: str) -> Iterator[None]:
        """Nothing is written."""
        yield None

    def complete(self, fingerprint: str, result: dict[str, Any]) -> None:
        """Note the result."""
        self._results[fingerprint] = result


class Store(AnyStore):
    """The stages below a folder of runs."""

    def __init__(self, runs: Path) -> None:
        super().__init__()
        self.stages, self.partial, self.ontologies = runs / "stages", runs / "partial", runs / "ontologies"

    def folder(self, fingerprint: str) -> Path:
        """Where a stage is, once it is complete."""
        return self.stages / fingerprint

    def result(self, fingerprint: str) -> dict[str, Any] | None:
        """The result of a complete stage; None if it is not complete."""
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
        """The result of a stage that must be complete."""
        found = self.result(fingerprint)
        if found is None:
            raise LecoError(f"{self.folder(fingerprint)}: the stage is not complete; run it first")
        return found

    def network(self, fingerprint: str, build: "Callable[[], AnyNetwork]", name: str) -> "AnyNetwork":
        """The network of a complete stage, from memory or from its file."""
        from leco.models.network import load_network

        path = self.weights(fingerprint)
        if not path.is_file():
            raise LecoError(f"{path}: the stage is not complete; run it first")
        remedy = "; delete its folder to train the stage again"
        return self.recall(fingerprint) or load_network(path, build, name, remedy)

    def remember(self, fingerprint: str, network: "AnyNetwork") -> None:
        """Keep the last few networks in memory."""
        super().remember(fingerprint, network)
        for oldest in list(self._networks)[:-_KEPT_IN_MEMORY]:
            del self._networks[oldest]

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

    def complete(self, fingerprint: str, result: dict[str, Any]) -> None:
        """Write the result, and move the finished stage to where others find it; what it no longer needs goes last."""
        write_bytes(self.partial / fingerprint / "result.json", json.dumps(result, indent=1).encode())
        self.stages.mkdir(parents=True, exist_ok=True)
        final = self.stages / fingerprint
        (self.partial / fingerprint).rename(final)
        for leftover in (*(final / name for name in CHECKPOINTS), *final.glob(".leco-*")):
            leftover.unlink(missing_ok=True)
