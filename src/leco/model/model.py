"""`Model`: a trained model at work. It predicts in any version, is evaluated, upgraded, exported and saved."""

import html
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from leco.data.inputs import InputBatch, at_once
from leco.dataset import Dataset, ManifestDataset
from leco.devices import make_fabric
from leco.errors import LecoError
from leco.evaluation.calibration import Reliability
from leco.evaluation.compare import Difference, Overall, compare
from leco.evaluation.evaluate import Candidate, Judged, NotFiniteError, Predictor, judge
from leco.evaluation.scores import Scores
from leco.io import write_bytes
from leco.model.bundle import Bundle, read_bundle, write_bundle
from leco.model.card import card
from leco.model.description import Description, Metrics, VersionScores
from leco.model.masks import write_masks
from leco.model.predictions import Answer, Predictions, backed_off, ranked
from leco.model.upgrade import upgraded
from leco.models.network import AnyNetwork
from leco.ontology.changes import require_same
from leco.ontology.ontology import Ontology
from leco.progress import progress_bar

SPLITS = ("train", "val", "test", "all")


class Model:
    """A model for the newest version of an ontology, which answers in every older version, too.

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
    def versions(self) -> tuple[str, ...]:
        """Names of the versions that the model answers in, oldest first."""
        return self.description.versions

    @property
    def scores(self) -> dict[str, Mapping[str, VersionScores]]:
        """Scores when it was trained, by split (`validation`, `test`) and version: `macc`, `miou` and `per_class`."""
        return {"validation": self._metrics.validation or {}, "test": self._metrics.test or {}}

    @property
    def card(self) -> str:
        """The model card, as Markdown."""
        return card(self.description, self.ontology, self._metrics)

    @cached_property
    def network(self) -> AnyNetwork:
        """The network, in evaluation mode."""
        if self._network is not None:
            return self._network
        assert self._bundle is not None
        return self._bundle.network()

    @cached_property
    def predictor(self) -> Predictor:
        """The network on its device, with what is done to inputs before it."""
        device = make_fabric(self._device).device
        known = self.description
        window = known.window or 0
        network = self.network.to(device)
        return Predictor(network, known.modality, known.normaliser(), self.ontology, device, window)

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
        (n, d), or uint8 images (n, height, width, channels). With `back_off`, each answer is as fine as that
        probability allows, in whichever version. Files that cannot be read are listed in `problems`.
        """
        if self.description.modality.has_masks:
            raise LecoError("a model for segmentation predicts masks: use predict_masks")
        found = Predictions(top=top, backs_off=back_off is not None)
        batches = self.answers(inputs, version=version, top=top, back_off=back_off, root=root, batch_size=batch_size)
        for names, answers, problems in batches:
            found.names += names
            found.answers += answers
            found.problems += problems
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
    ) -> Iterator[tuple[list[str], list[Answer], list[str]]]:
        """As `predict`, one batch at a time, so that any number of inputs takes the same memory."""
        if back_off is not None and (version is not None or top > 1):
            raise LecoError("back_off chooses the version and gives one class: leave out version and top")
        chosen = self.ontology[version or self.description.newest].name
        calibration, versions = self.description.calibration, self.description.versions
        reliability = Reliability(calibration, versions, back_off or 0.0)
        for batch in self._batches(inputs, root, batch_size):
            answers: list[Answer] = []
            if batch.names:
                probs = self._probs(batch.inputs)
                if back_off is None:
                    answers = list(ranked(probs, self.ontology, chosen, top))
                else:
                    answers = list(backed_off(probs, self.ontology, back_off, reliability))
            yield batch.names, answers, batch.problems

    def predict_proba(
        self, inputs: Any, *, version: str | None = None, root: str | Path | None = None, batch_size: int = 64
    ) -> NDArray[np.float32]:
        """Probabilities (n, classes) of a version's classes, in the order of `ontology[version].handles`.

        They sum to less than one where newer classes have no counterpart in that version. An input that cannot be read
        is an error.
        """
        if self.description.modality.has_masks:
            raise LecoError("a model for segmentation predicts masks: use predict_masks")
        newest = self.description.newest
        transition = self.ontology.transition(newest, self.ontology[version or newest].name)
        parts = []
        for batch in self._batches(inputs, root, batch_size):
            for problem in batch.problems:
                raise LecoError(problem)
            parts.append(transition.project(self._probs(batch.inputs)))
        if not parts:
            raise LecoError("there are no inputs to predict")
        probs: NDArray[np.float32] = torch.cat(parts).numpy()
        return probs

    def predict_masks(
        self,
        inputs: str | Path | Sequence[str | Path],
        folder: str | Path,
        *,
        version: str | None = None,
        root: str | Path | None = None,
    ) -> Iterator[LecoError | None]:
        """Write a mask of each image below a folder, under the image's name; yield a problem, or None, for each."""
        if not self.description.modality.has_masks:
            raise LecoError(f"a model for {self.description.task} predicts classes, not masks: use predict")
        chosen = self.ontology[version or self.description.newest].name
        side = self.description.side
        assert side is not None
        below = None if root is None else Path(root)
        return write_masks(self.predictor, side, _paths(inputs), chosen, Path(folder), below)

    def evaluate(
        self,
        data: Dataset | str | Path,
        *,
        split: str = "test",
        against: "Model | None" = None,
        ontology: Ontology | str | Path | None = None,
        root: str | Path | None = None,
    ) -> "Evaluation":
        """Score the model on labelled samples, at every version that they have labels of; or compare two models.

        `data` is a dataset or a manifest, whose labels may be of newer versions than the model's: then it, or
        `ontology`, must say what those are.
        """
        if split not in SPLITS:
            raise LecoError(f"split: {split!r} is not one of {', '.join(SPLITS)}")
        models = [self] if against is None else [self, against]
        _check_comparable(self, against or self)
        if not isinstance(data, Dataset):
            data = Dataset.from_manifest(data, _longest(models, ontology), root=root)
        if not isinstance(data, ManifestDataset):
            raise LecoError("evaluate: pass a manifest, or a dataset made from one, folders or a table")
        for model in models:
            require_same(model.ontology, data.ontology, "the ontology of the labels", str(model))
        if data.modality is not self.description.modality:
            raise LecoError(
                f"{data.path}: is for {data.modality.name}, but {self} is a model for {self.description.task}"
            )
        return _evaluated(models, data, split)

    def upgrade(self, ontology: Ontology | str | Path) -> "Model":
        """Return a model for the newest version of an ontology that continues this model's own.

        Its answers in the old versions stay the same; training can start from it (`leco.train(..., start=...)`).
        """
        history = ontology if isinstance(ontology, Ontology) else Ontology.load(Path(ontology))
        description, network = upgraded(self.description, self.ontology, self.network, history, str(self))
        return Model(description, history, self._metrics, network=network, device=self._device)

    def export(self, path: str | Path) -> float:
        """Write one ONNX file, and return the largest difference of a probability from torch's."""
        from leco.model.onnx import export_onnx

        content, difference = export_onnx(self.network, self.description, self.ontology, str(self))
        write_bytes(Path(path), content)
        return difference

    def save(self, folder: str | Path) -> Path:
        """Write the model to a folder, which `leco.load` reads: weights, ontology, scores and card, and no code."""
        weights = self.network.state_dict()
        write_bundle(Path(folder), self.description, self.ontology, weights, self._metrics)
        return Path(folder)

    def _batches(self, inputs: Any, root: str | Path | None, batch_size: int) -> Iterator[InputBatch]:
        known = self.description
        if isinstance(inputs, str | Path) or _are_paths(inputs):
            below = None if root is None else Path(root)
            return known.modality.inputs(_paths(inputs), known.shape, known.side, size=batch_size, root=below)
        return self._array_batches(inputs, at_once(known.shape, batch_size))

    def _array_batches(self, inputs: Any, size: int) -> Iterator[InputBatch]:
        known = self.description
        array = torch.from_numpy(np.ascontiguousarray(inputs)) if not isinstance(inputs, Tensor) else inputs
        images = len(known.shape) == 3
        if images and array.ndim == 4:
            array = array.permute(0, 3, 1, 2)
        if array.ndim != len(known.shape) + 1 or (images and array.dtype != torch.uint8):
            wanted = "uint8 images (n, height, width, channels)" if images else f"vectors (n, {known.shape[0]})"
            raise LecoError(f"the model takes paths, or {wanted}, not {array.dtype} of shape {tuple(array.shape)}")
        array = array if images else array.float()
        fits = tuple(array.shape[1:]) == known.shape
        if images and not fits and known.side is not None and tuple(array.shape[2:]) == (known.side, known.side):
            array, fits = known.modality.prepare(array, known.shape), True
        if not fits:
            raise LecoError(f"the model takes inputs of the shape {known.shape}, not {tuple(array.shape[1:])}")
        for start in range(0, len(array), size):
            part = array[start : start + size]
            yield InputBatch([str(number) for number in range(start, start + len(part))], part)

    def _probs(self, inputs: Tensor, sizes: Tensor | None = None) -> Tensor:
        try:
            return self.predictor.probs(inputs, sizes)
        except NotFiniteError as error:
            raise LecoError(f"{self}: {error}: its weights, or its normalisation, are broken") from None

    def __str__(self) -> str:
        return str(self._bundle.folder) if self._bundle is not None else f"the model of {self.description.name}"

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


def load(folder: str | Path, *, device: str = "auto") -> Model:
    """Load a model that `Model.save` or `leco run` wrote; nothing in the folder is executed."""
    bundle = read_bundle(Path(folder))
    return Model(bundle.description, bundle.ontology, bundle.metrics, bundle=bundle, device=device)


@dataclass(frozen=True, eq=False)
class VersionEvaluation:
    """One version: the scores of a model and, if it is compared with another, all differences."""

    scores: Scores
    other: Scores | None = None
    difference: Overall | None = None
    classes: tuple[Difference, ...] = ()


@dataclass(frozen=True, eq=False)
class Evaluation:
    """The scores of a model on labelled samples, newest version first."""

    metric: str
    versions: dict[str, VersionEvaluation] = field(default_factory=dict)

    def __getitem__(self, version: str) -> Scores:
        return self.versions[version].scores

    def __repr__(self) -> str:
        found = ", ".join(f"{name}: {getattr(v.scores, self.metric):.3f}" for name, v in self.versions.items())
        return f"Evaluation({self.metric}; {found})"


def _evaluated(models: Sequence[Model], data: ManifestDataset, split: str) -> Evaluation:
    modality = data.modality
    manifest = data.unchecked()
    labelled = sum(manifest.labelled().values(), np.zeros(len(manifest), dtype=bool))
    chosen = torch.from_numpy(np.flatnonzero(((manifest.split == split) | (split == "all")) & labelled))
    if not len(chosen):
        splits = ", ".join(sorted(set(manifest.split.tolist())))
        raise LecoError(f"{data.path}: no sample of the split {split} has a label; there are {splits}, and all")
    candidates = [_candidate(model, data) for model in models]
    size = min(at_once(model.description.shape, 64) for model in models)
    if modality.has_masks:
        size = 1
    judged: Judged | None = None
    with progress_bar("evaluating") as tick:
        found = judge(candidates, chosen, data.ontology, batch_size=size, metric=modality.metric)
        for number, judged in enumerate(found, start=1):
            tick(number * size, len(chosen))
    assert judged is not None
    tables = [judged.scores(number, model.ontology, model.description.evaluated) for number, model in enumerate(models)]
    versions = {}
    for name, mine in reversed(tables[0].items()):
        other = tables[1].get(name) if len(tables) > 1 else None
        if other is None:
            versions[name] = VersionEvaluation(mine)
        else:
            whole, classes = compare(judged, data.ontology[name], mine, other, modality.metric)
            versions[name] = VersionEvaluation(mine, other, whole, tuple(classes))
    if not versions:
        raise LecoError(
            f"{data.path}: no sample of the split {split} has a label of a version that the model answers in"
        )
    return Evaluation(modality.metric, versions)


def _candidate(model: Model, data: ManifestDataset) -> Candidate:
    """A model, and the samples at the size that it sees them in."""
    known = model.description
    samples = data.modality.read(data.unchecked(), data.ontology, known.side or 0)

    def predict(inputs: Tensor, ids: Tensor) -> Tensor:
        sizes = None if samples.sizes is None else samples.sizes.read(ids)
        return model._probs(known.modality.prepare(inputs, known.shape), sizes)

    if len(known.shape) == 1 and samples.inputs.read(torch.tensor([0])).shape[1] != known.shape[0]:
        width = samples.inputs.read(torch.tensor([0])).shape[1]
        raise LecoError(f"{data.path}: has vectors of {width} numbers, but the model takes {known.shape[0]}")
    return Candidate(model.ontology, samples, predict)


def _longest(models: Sequence[Model], given: Ontology | str | Path | None) -> Ontology:
    """The longest ontology, which the others must be the beginning of."""
    known = max((model.ontology for model in models), key=lambda ontology: len(ontology.versions))
    longest = known if given is None else given if isinstance(given, Ontology) else Ontology.load(Path(given))
    name = f"the ontology {known.name} of the other model" if given is None else str(given)
    for model in models:
        require_same(model.ontology, longest, name, str(model))
    return longest


def _check_comparable(first: Model, second: Model) -> None:
    tasks = first.description.task, second.description.task
    if tasks[0] != tasks[1]:
        raise LecoError(f"a model for {tasks[0]} and one for {tasks[1]} cannot be compared: their inputs differ")


def _are_paths(inputs: Any) -> bool:
    return isinstance(inputs, list | tuple) and all(isinstance(value, str | Path) for value in inputs)


def _paths(inputs: str | Path | Sequence[str | Path]) -> list[str]:
    return [str(inputs)] if isinstance(inputs, str | Path) else [str(path) for path in inputs]
