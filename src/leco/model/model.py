"""`Model`: a trained model that predicts in any version, and can be evaluated, upgraded, exported and saved."""

import copy
import html
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from leco.arguments import checks_arguments
from leco.data import SPLITS
from leco.data.inputs import ALONE, InputBatch, Share, array_batches
from leco.dataset import Dataset
from leco.devices import make_fabric, place
from leco.errors import LecoError, nearest
from leco.evaluation.calibration import Reliability
from leco.evaluation.evaluate import NotFiniteError, Predictor
from leco.io import as_path, write_bytes
from leco.model.bundle import Bundle, read_bundle, write_bundle
from leco.model.card import card
from leco.model.description import Description, Metrics
from leco.model.evaluation import Evaluation, check_comparable, evaluated, longest_ontology
from leco.model.masks import write_masks
from leco.model.predictions import Answer, Predictions, backed_off, ranked
from leco.model.upgrade import upgraded
from leco.models.folding import folded
from leco.models.network import AnyNetwork, Network
from leco.ontology.changes import require_same
from leco.ontology.ontology import Ontology
from leco.ontology.version import Version
from leco.records import VersionScores

EVALUATED = (*SPLITS, "all")


class Model:
    """A model for the newest version of an ontology, which predicts in every older version, too.

    `leco.train` returns one, and `leco.load` reads one that was saved.
    """

    def __init__(
        self,
        description: Description,
        ontology: Ontology,
        metrics: Metrics,
        *,
        bundle: Bundle | None = None,
        network: AnyNetwork | None = None,
        device: str = "auto",
    ) -> None:
        self.description, self.ontology, self._metrics = description, ontology, metrics
        self._bundle, self._network, self._device = bundle, network, device

    @property
    def place(self) -> str:
        """The folder that the model was loaded from, or its name, as shown in messages."""
        return str(self._bundle.folder) if self._bundle is not None else f"the model of {self.description.name}"

    @property
    def versions(self) -> tuple[str, ...]:
        """Names of the versions that the model predicts in, oldest first."""
        return self.description.versions

    @property
    def scores(self) -> dict[str, Mapping[str, VersionScores]]:
        """Scores at the end of training, by split (`validation`, `test`) and version: `macc`, `miou`, `per_class`."""
        return {"validation": self._metrics.validation or {}, "test": self._metrics.test or {}}

    @property
    def card(self) -> str:
        """The model card, as Markdown."""
        return card(self.description, self.ontology, self._metrics)

    @cached_property
    def network(self) -> AnyNetwork:
        """The network, on the CPU and in evaluation mode."""
        if self._network is not None:
            return self._network
        assert self._bundle is not None
        return self._bundle.network()

    @cached_property
    def predictor(self) -> Predictor:
        """The network on its device, and the normalisation of its inputs."""
        device, known = make_fabric(self._device).device, self.description
        network = place(self.network if device.type == "cpu" else copy.deepcopy(self.network), device)
        if isinstance(network, Network) and len(known.shape) == 3:
            example = torch.rand(1, *known.shape, generator=torch.Generator().manual_seed(0))
            network = network.on(folded(network.backbone, example.to(device)))
        return Predictor(network, known.modality, known.normaliser(), self.ontology, device, known.window or 0)

    @checks_arguments
    def predict(
        self,
        inputs: Any,
        *,
        version: str | None = None,
        top: int = 1,
        back_off: float | None = None,
        root: str | Path | None = None,
        batch_size: int = 64,
    ) -> Predictions:
        """Predict the `top` likeliest classes of a version (the newest by default) for each input.

        `inputs` are paths of files, folders, patterns or manifests (one, or a list), or an array: feature vectors
        (n, d), or uint8 images (n, height, width, channels). Paths in a manifest are relative to `root`, or else to its
        folder. With `back_off`, each prediction is the finest class, of any version, that is at least that probable.
        Files that cannot be read are listed in `problems`; if none can be read, that is an error.
        """
        found = Predictions(top=min(top, len(self._version(version))), backs_off=back_off is not None)
        batches = self.answers(inputs, version=version, top=top, back_off=back_off, root=root, batch_size=batch_size)
        for names, answers, problems in batches:
            found.names += names
            found.answers += answers
            found.problems += problems
        if found.problems and not found.names:
            raise LecoError(f"none of the inputs could be read; the first problem: {found.problems[0]}")
        return found

    def answers(
        self,
        inputs: Any,
        *,
        version: str | None = None,
        top: int = 1,
        back_off: float | None = None,
        root: str | Path | None = None,
        batch_size: int = 64,
        share: Share = ALONE,
    ) -> Iterator[tuple[list[str], list[Answer], list[str]]]:
        """Predict one batch at a time, so that memory does not grow with the number of inputs; see `predict`.

        Each batch has the names of its inputs, an answer for each of them, and the problems with others. Several
        processes take batches in turn, if each passes its number and that of all as its `share`.
        """
        if back_off is not None and (version is not None or top > 1):
            raise LecoError("back_off chooses the version and gives one class: leave out version and top")
        if back_off is not None and not 0 <= back_off <= 1:
            raise LecoError(f"back_off: must be a probability from 0 to 1, not {back_off}")
        if top < 1:
            raise LecoError(f"top: must be at least 1, not {top}")
        chosen = self._version(version)
        calibration, versions = self.description.calibration, self.description.versions
        reliability = Reliability(calibration, versions, back_off or 0.0)
        _ = self.predictor  # broken weights are refused before any input is read
        for batch in self._batches(inputs, root, batch_size, share):
            answers: list[Answer] = []
            if batch.names:
                probs = self.probs(batch.inputs)
                if back_off is None:
                    answers = list(ranked(probs, self.ontology, chosen.name, min(top, len(chosen))))
                else:
                    answers = list(backed_off(probs, self.ontology, back_off, reliability))
            yield batch.names, answers, batch.problems

    @checks_arguments
    def predict_proba(
        self, inputs: Any, *, version: str | None = None, root: str | Path | None = None, batch_size: int = 64
    ) -> NDArray[np.float32]:
        """Probabilities (n, classes) of a version's classes, in the order of `ontology[version].handles`.

        They sum to less than one where newer classes have no counterpart in that version. An input that cannot be read
        is an error.
        """
        transition = self.ontology.transition(self.description.newest, self._version(version).name)
        parts = []
        for batch in self._batches(inputs, root, batch_size):
            for problem in batch.problems:
                raise LecoError(problem)
            parts.append(transition.project(self.probs(batch.inputs)))
        if not parts:
            raise LecoError("inputs: is empty; pass at least one path, or an array with at least one row")
        probs: NDArray[np.float32] = torch.cat(parts).numpy()
        return probs

    @checks_arguments
    def predict_masks(
        self,
        inputs: str | Path | Sequence[str | Path],
        folder: str | Path,
        *,
        version: str | None = None,
        root: str | Path | None = None,
        overwrite: bool = False,
    ) -> list[str]:
        """Write the mask of each image to a folder, under the image's name, and return the problems with others.

        `inputs` are paths, as for `predict`. Masks are PNG files of the images' sizes, whose pixels are class indices
        of a version (the newest by default). Files that `leco` did not write are kept, unless `overwrite` is set.
        """
        masks = self.masks(inputs, folder, version=version, root=root, overwrite=overwrite)
        return [str(problem) for problem in masks if problem is not None]

    def masks(
        self,
        inputs: str | Path | Sequence[str | Path],
        folder: str | Path,
        *,
        version: str | None = None,
        root: str | Path | None = None,
        overwrite: bool = False,
        share: Share = ALONE,
    ) -> Iterator[LecoError | None]:
        """Write one mask at a time; yield a problem, or None, for each image. See `predict_masks`.

        Several processes take images in turn, if each passes its number and that of all as its `share`.
        """
        if not self.description.modality.has_masks:
            raise LecoError(f"a model for {self.description.task} predicts classes, not masks: use predict")
        if not isinstance(inputs, str | os.PathLike) and not _are_paths(inputs):
            raise LecoError(f"inputs: must be a path, or a list of paths, not {type(inputs).__name__}")
        chosen, side = self._version(version).name, self.description.side
        assert side is not None
        below = None if root is None else Path(root)
        with self.checked():
            yield from write_masks(
                self.predictor, side, _paths(inputs), chosen, Path(folder), root=below, overwrite=overwrite, share=share
            )

    @checks_arguments
    def evaluate(
        self,
        data: Dataset | str | Path,
        *,
        split: str = "test",
        against: "Model | str | Path | None" = None,
        ontology: Ontology | str | Path | None = None,
        root: str | Path | None = None,
    ) -> Evaluation:
        """Score the model on labelled samples, at every version that they have labels of; or compare two models.

        `data` is a dataset, or the path of a manifest, whose paths are relative to `root` or else to its folder, and
        whose labels may be of newer versions than the models' if an `ontology` is given. `split` is `train`, `val`,
        `test` or `all`. The processes of `torchrun` share the samples, so all of them must call this.
        """
        if split not in EVALUATED:
            raise LecoError(f"split: {split!r} is not one of {', '.join(EVALUATED)}{nearest(split, EVALUATED)}")
        if isinstance(data, Dataset) and (ontology is not None or root is not None):
            raise LecoError("ontology and root are for the path of a manifest: a dataset has its own; leave them out")
        if against is not None and not isinstance(against, Model):
            against = load(against, device=self._device)
        models = [self] if against is None else [self, against]
        check_comparable(self, against or self)
        if not isinstance(data, Dataset):
            own = Dataset.from_manifest(data, longest_ontology(models, ontology), root=root)
            takes_it = self.description.modality.takes(own.table.data_kind)
            data = own.with_modality(self.description.task) if takes_it else own
        for model in models:
            require_same(model.ontology, data.ontology, "the ontology of the labels", model.place)
        if data.modality is not self.description.modality:
            raise LecoError(
                f"{data.name}: is for {data.modality.name}, but {self.place} is a model for {self.description.task}"
            )
        return evaluated(models, data, split, make_fabric(self._device))

    @checks_arguments
    def upgrade(self, ontology: Ontology | str | Path) -> "Model":
        """Return a model for the newest version of an ontology that continues this model's own.

        Its predictions in the old versions stay the same, except where classes were merged or removed. Training can
        start from it once it is saved: `leco.train(..., start=folder)`.
        """
        history = ontology if isinstance(ontology, Ontology) else Ontology.load(Path(ontology))
        description, network = upgraded(self.description, self.ontology, self.network, history, self.place)
        return Model(description, history, self._metrics, network=network, device=self._device)

    @checks_arguments
    def export(self, path: str | Path) -> float:
        """Write one ONNX file, and return the largest difference between its probabilities and torch's."""
        from leco.model.onnx import export_onnx

        content, difference = export_onnx(self.network, self.description, self.ontology, self.place)
        write_bytes(as_path("export", path), content)
        return difference

    @checks_arguments
    def save(self, folder: str | Path) -> Path:
        """Write the model to a folder, for `leco.load`: weights, ontology, scores and model card, but no code."""
        weights = self.network.state_dict()
        write_bundle(as_path("save", folder), self.description, self.ontology, weights, self._metrics)
        return as_path("save", folder)

    def _version(self, name: str | None) -> Version:
        return self.ontology[self.description.newest if name is None else name]

    def _batches(self, inputs: Any, root: str | Path | None, size: int, share: Share = ALONE) -> Iterator[InputBatch]:
        known = self.description
        if size < 1:
            raise LecoError(f"batch_size: must be at least 1, not {size}")
        if known.modality.has_masks:
            raise LecoError(f"a model for {known.task} predicts masks: use predict_masks")
        if isinstance(inputs, str | os.PathLike) or _are_paths(inputs):
            below = None if root is None else Path(root)
            paths = _paths(inputs)
            return known.modality.inputs(paths, known.shape, known.side, size=size, root=below, share=share)
        return islice(array_batches(inputs, known.shape, known.side, size=size), share[0], None, share[1])

    def probs(self, inputs: Tensor, sizes: Tensor | None = None) -> Tensor:
        """Probabilities (n, c, ...) of the newest classes, of inputs as the network takes them before normalisation."""
        with self.checked():
            return self.predictor.probs(inputs, sizes)

    @contextmanager
    def checked(self) -> Iterator[None]:
        """Name the model in the error about predictions that are NaN."""
        try:
            yield
        except NotFiniteError as error:
            raise LecoError(f"{self.place}: {error}: its weights, or its normalisation, are broken") from None

    def __repr__(self) -> str:
        metric, newest = self.description.metric, self.description.newest
        found = [
            f"{part} {100 * value:.1f} %"
            for part, by_version in self.scores.items()
            if newest in by_version and (value := getattr(by_version[newest], metric)) is not None
        ]
        scored = f"; {metric} at {newest}: {', '.join(found)}" if found else ""
        return f"Model({self.description.name!r}, {self.description.task}, {' -> '.join(self.versions)}{scored})"

    def _repr_html_(self) -> str:
        rows = "".join(
            f"<tr><td>{part}</td><td>{html.escape(version)}</td>"
            + "".join(f"<td>{'-' if v is None else f'{100 * v:.1f}'}</td>" for v in (found.macc, found.miou))
            + f"<td>{found.count:,}</td></tr>"
            for part, by_version in self.scores.items()
            for version, found in by_version.items()
        )
        title = f"{html.escape(self.description.name)}: {html.escape(self.description.newest)}"
        heads = "".join(f"<th>{head}</th>" for head in ("split", "version", "mAcc, %", "mIoU, %", "n"))
        return f"<table><caption>{title}</caption><tr>{heads}</tr>{rows}</table>"


@checks_arguments
def load(folder: str | Path, *, device: str = "auto", verify: bool = True) -> Model:
    """Load a model that `Model.save` or `leco run` wrote; nothing in the folder is executed.

    A file that changed since it was written is an error. With `verify=False` it is accepted, and `Model.save` writes it
    as it is.
    """
    bundle = read_bundle(as_path("load", folder), verify=verify)
    return Model(bundle.description, bundle.ontology, bundle.metrics, bundle=bundle, device=device)


def _are_paths(inputs: Any) -> bool:
    return isinstance(inputs, list | tuple) and all(isinstance(value, str | os.PathLike) for value in inputs)


def _paths(inputs: str | Path | Sequence[str | Path]) -> list[str]:
    return [os.fsdecode(path) for path in ([inputs] if isinstance(inputs, str | os.PathLike) else inputs)]
