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
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

from leco.errors import LecoError
from leco.io import SUMS, write_bytes, write_sums
from leco.records import RESULT, Result, checked_stage, is_complete, read_result

if TYPE_CHECKING:
    from leco.models.network import AnyNetwork
    from leco.ontology.ontology import Ontology

CHECKPOINTS = ("checkpoint-a.safetensors", "checkpoint-b.safetensors")  # as `training.checkpoint` writes them
_KEPT_IN_MEMORY = 4  # networks
_REMEDY = "; delete its folder to train the stage again"


class AnyStore(ABC):
    """Results and networks of complete stages. The last networks that this process trained are cached in memory."""

    def __init__(self) -> None:
        self._networks: dict[str, Any] = {}  # AnyNetwork; not imported, since listing stages needs no torch

    @abstractmethod
    def result(self, fingerprint: str) -> Result | None:
        """Return the result of a complete stage; None if it is not complete."""

    @abstractmethod
    def network(self, fingerprint: str, build: "Callable[[], AnyNetwork]", name: str) -> "AnyNetwork":
        """Return a copy of the network of a complete stage; `build` creates one of its shape."""

    @abstractmethod
    def working(self, fingerprint: str) -> Any:
        """Return a context with the folder of an incomplete stage; None if nothing is written."""

    @abstractmethod
    def complete(self, fingerprint: str, result: Result) -> None:
        """Record the result of a stage."""

    def require(self, fingerprint: str) -> Result:
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
        self._results: dict[str, Result] = {}

    def result(self, fingerprint: str) -> Result | None:
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

    def complete(self, fingerprint: str, result: Result) -> None:
        """Record the result."""
        self._results[fingerprint] = result


class Store(AnyStore):
    """The stages in a folder of runs."""

    def __init__(self, runs: Path) -> None:
        super().__init__()
        self.stages, self.partial, self.ontologies = runs / "stages", runs / "partial", runs / "ontologies"
        self.features = runs / "features"  # shared by all stages: `experiments.embedding`
        self.files = self.features / "files"  # digests of files: `data.file_digests`
        self.aside = runs / "aside"  # what was found in the places of stages, and is none
        self.copies = runs / "copies"  # of large images, shared by all stages: `experiments.shrinking`
        self.auto = runs / "auto"  # numbers of steps that fit into a time: `experiments.clock`

    def check(self) -> None:
        """Refuse a folder of runs that stages cannot be written to."""
        names = ("stages", "partial", "ontologies", "features", "copies", "aside", "auto")
        for folder in (self.stages.parent, *(getattr(self, name) for name in names)):
            if os.path.lexists(folder) and not folder.is_dir():
                raise LecoError(f"{folder}: is not a folder; choose another folder for runs")

    def folder(self, fingerprint: str) -> Path:
        """Folder of a complete stage."""
        return self.stages / fingerprint

    def result(self, fingerprint: str) -> Result | None:
        """Return the result of a complete stage; None if it is not complete."""
        folder = self.folder(fingerprint)
        try:
            if not is_complete(folder):
                return None
            checked_stage(folder, RESULT)
            return read_result(folder)
        except LecoError as error:
            raise LecoError(f"{error}{_REMEDY}") from None

    def require(self, fingerprint: str) -> Result:
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
        if (known := self.recall(fingerprint)) is not None:
            return known
        self.check_weights(fingerprint)
        return load_network(path, build, name, _REMEDY)

    def check_weights(self, fingerprint: str) -> None:
        """Refuse the weights of a complete stage, and their description, if they changed since they were written."""
        try:
            checked_stage(self.folder(fingerprint), "model.safetensors", "bundle.json")
        except LecoError as error:
            raise LecoError(f"{error}{_REMEDY}") from None

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

    def keep_ontology(self, ontology: "Ontology") -> None:
        """Store an ontology, once for all stages that use it; a damaged one is written again."""
        path = self.ontologies / f"{ontology.fingerprint}.json"
        content = json.dumps(ontology.to_dict(), ensure_ascii=False).encode()
        try:
            if path.is_file() and path.read_bytes() == content:
                return
            self.ontologies.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise LecoError(f"{path}: cannot be written: {error.strerror}") from None
        write_bytes(path, content)

    def set_aside(self, fingerprint: str, say: Callable[[str], object]) -> None:
        """Move what is in the place of a stage that is to be trained, such as a part of a copy, out of the way."""
        final = self.stages / fingerprint
        if not os.path.lexists(final):
            return
        self.aside.mkdir(exist_ok=True)
        place = next(
            place
            for number in count(1)
            if not os.path.lexists(place := self.aside / f"{fingerprint}{f'-{number}' if number > 1 else ''}")
        )
        final.rename(place)
        say(f"{final}: is not a complete stage; moved to {place}, and the stage is trained again")

    def complete(self, fingerprint: str, result: Result) -> None:
        """Write the result with the digests of all files, move the stage to `stages/`, and delete its checkpoints last.

        A stage that lacks its result, its digests or its weights was only partly copied.
        """
        folder, final = self.partial / fingerprint, self.stages / fingerprint
        result.write(folder / RESULT)
        files = (path.name for path in folder.iterdir() if path.is_file() and not path.name.startswith("."))
        write_sums(folder, set(files) - {SUMS, *CHECKPOINTS})
        self.stages.mkdir(parents=True, exist_ok=True)
        folder.rename(final)
        for leftover in (*(final / name for name in CHECKPOINTS), *final.glob(".leco-*")):
            leftover.unlink(missing_ok=True)
