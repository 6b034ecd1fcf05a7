"""A bundle: a folder that holds a model and everything that is needed to use it, but nothing executable.

| file | holds |
|---|---|
| `bundle.json` | the inputs, predictions and origin of the model (`description.py`) |
| `ontology.yaml` | the versions it knows |
| `model.safetensors` | its weights |
| `metrics.json` | its scores on validation and test, at every version |
| `README.md` | the model card (`card.py`) |
| `SHA256SUMS` | digests of all of these, which are checked when the bundle is read |
"""

import hashlib
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from leco.data.manifest.checks import look
from leco.errors import LecoError
from leco.io import SUMS, changed, new_folder, write_bytes, write_sums, write_text
from leco.model.card import card
from leco.model.description import (
    DESCRIPTION,
    FORMAT,
    METRICS,
    Description,
    Metrics,
    backup_path,
    existing_folder,
    read_description,
    read_metrics,
)
from leco.models.network import AnyNetwork, load_network
from leco.ontology.files import load, to_yaml
from leco.ontology.ontology import Ontology

if TYPE_CHECKING:
    from collections.abc import Mapping

    from torch import Tensor


ONTOLOGY, WEIGHTS, CARD = "ontology.yaml", "model.safetensors", "README.md"
_NEEDED = (DESCRIPTION, ONTOLOGY, WEIGHTS, METRICS)
FILES = (*_NEEDED, CARD, SUMS)  # the card is for people, who may edit or delete it


@dataclass(frozen=True, eq=False)
class Bundle:
    """A bundle that was read and checked; its weights are read when they are asked for."""

    folder: Path
    description: Description
    ontology: Ontology
    metrics: Metrics

    def network(self) -> AnyNetwork:
        """Load the network, ready to predict."""
        path, name = self.folder / WEIGHTS, self.description.model
        return load_network(path, lambda: self.description.build(self.ontology), name)

    @property
    def trained(self) -> str:
        """The version it was trained for."""
        return self.description.trained

    @property
    def newest(self) -> str:
        """The newest version that it predicts in."""
        return self.description.newest

    def __str__(self) -> str:
        return str(self.folder)

    @cached_property
    def digest(self) -> str:
        """Sixteen hexadecimal digits that change with the weights and the normalisation of inputs."""
        with (self.folder / WEIGHTS).open("rb") as file:
            weights = hashlib.file_digest(file, "sha256").hexdigest()
        inputs = (self.description.mean, self.description.std, self.description.trained)
        return hashlib.sha256(f"{weights} {inputs}".encode()).hexdigest()[:16]


def read_bundle(folder: Path, *, verify: bool = True) -> Bundle:
    """Read and check a bundle, without following links out of its folder.

    With `verify`, a file that changed since it was written is an error.
    """
    folder = existing_folder(folder)
    if not folder.is_dir():
        raise LecoError(f"{folder}: {'is a file, not a bundle' if folder.exists() else 'no such bundle'}")
    _, faults = look(folder, _NEEDED)
    for name, fault in faults.items():
        raise LecoError(f"{folder}: is not a complete bundle: {name}: {fault.message}")
    description = read_description(folder)
    if verify:
        _verify(folder, description)
    ontology = load(folder / ONTOLOGY)
    if ontology.fingerprint != description.ontology:
        raise LecoError(
            f"{folder / ONTOLOGY}: was changed after the model was trained: its fingerprint is {ontology.fingerprint}, "
            f"not {description.ontology}; `leco upgrade` makes a bundle for another ontology"
        )
    if description.versions != tuple(version.name for version in ontology.versions):
        raise LecoError(f"{folder / DESCRIPTION}: does not name the versions of {ONTOLOGY}, in their order")
    if unknown := set(description.evaluated) - set(ontology.newest.handles):
        raise LecoError(f"{folder / DESCRIPTION}: evaluated: {min(unknown)!r} is not a class of {ontology.newest.name}")
    try:
        description.modality.check_bundle(description.model_dump() | {"classes": len(ontology.newest)})
    except ValueError as error:
        raise LecoError(f"{folder / DESCRIPTION}: {error}") from None
    return Bundle(folder, description, ontology, read_metrics(folder))


def _verify(folder: Path, description: Description) -> None:
    """Compare the files of a bundle with the digests that were recorded when it was written."""
    if description.format > 1 and not (folder / SUMS).is_file():
        raise LecoError(f"{folder}: is not a complete bundle: {SUMS}: no such file; copy it again")
    if name := changed(folder, *_NEEDED):
        raise LecoError(
            f"{folder / name}: changed since the bundle was written; copy the bundle again or, if you changed it "
            "knowingly, use --no-verify (in Python, leco.load with verify=False)"
        )


def check_target(target: Path, task: str, source: Path | None = None) -> None:
    """Refuse to write a bundle over anything but a bundle for the same task, or over the one it was made from."""
    if source is not None and source.resolve() in (target.resolve(), *target.resolve().parents):
        raise LecoError(f"{target}: is the bundle to start from, which must not change; choose another folder")
    if target.exists() and not target.is_dir():
        raise LecoError(f"{target}: is a file; a bundle is a folder")
    there = sorted(path.name for path in target.iterdir()) if target.is_dir() else []
    if not there:
        return
    other = ""
    with suppress(LecoError):
        other = read_description(target).task
    strangers = [name for name in there if name not in FILES]
    if not other or strangers:
        if strangers:
            raise LecoError(f"{target}: holds {strangers[0]!r}, which is not part of a bundle; choose a new folder")
        raise LecoError(f"{target}: exists and is not a complete bundle; delete it, or choose a new folder")
    if other != task:
        raise LecoError(f"{target}: holds a bundle for {other}, not {task}; choose a new folder")


def write_bundle(
    target: Path,
    description: Description,
    ontology: Ontology,
    weights: "Mapping[str, Tensor]",
    metrics: Metrics,
) -> None:
    """Write a bundle to a temporary folder, and rename it when it is complete."""
    from safetensors.torch import save

    check_target(target, description.task)
    target = target.resolve()
    description = description.model_copy(update={"format": FORMAT})
    with new_folder(target) as made:
        description.write(made / DESCRIPTION)
        write_text(made / ONTOLOGY, to_yaml(ontology.to_dict()))
        write_bytes(made / WEIGHTS, save({name: tensor.cpu().contiguous() for name, tensor in weights.items()}))
        metrics.write(made / METRICS)
        write_text(made / CARD, card(description, ontology, metrics))
        write_sums(made, (*_NEEDED, CARD))
        _put(made, target)


def _put(made: Path, target: Path) -> None:
    """Rename a folder to its target, and then remove the one that it replaces.

    If the process is killed between two renames, the target is missing, and readers find the backup.
    """
    old = backup_path(target)
    try:
        if target.exists():
            _remove(old)  # left behind by a process that was killed
            target.rename(old)
        try:
            made.rename(target)
        except OSError:
            if old.exists():
                old.rename(target)
            raise
        with suppress(LecoError):
            _remove(old)
    except OSError as error:
        raise LecoError(f"{target}: cannot be written: {error.strerror}") from None


def _remove(folder: Path) -> None:
    """Remove a bundle, but no other files."""
    if folder.is_dir():
        try:
            for name in FILES:
                (folder / name).unlink(missing_ok=True)
            folder.rmdir()
        except OSError as error:
            raise LecoError(f"{folder}: cannot be removed: {error.strerror}") from None
