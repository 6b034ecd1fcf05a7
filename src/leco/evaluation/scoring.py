"""How good models are on labelled samples, at every version, and which of two is better at what."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from leco.data.images import channels_first, decode_image, letterbox_mask, scaled
from leco.data.manifest.manifest import Manifest
from leco.data.masks import MaskRule, decode_mask
from leco.data.vectors import check_width, load_features
from leco.errors import LecoError
from leco.evaluation import Scores, confusion, known_labels, predict_at, scores, without_nameless
from leco.evaluation.compare import Pairs
from leco.model.description import Description
from leco.model.inputs import at_once, read_image
from leco.model.predictor import Predictor
from leco.ontology.masks import read_mask
from leco.ontology.ontology import Ontology
from leco.ontology.version import NO_LABEL


@dataclass(frozen=True, eq=False)
class Judged:
    """Confusion matrices by version; and, of two models, how often each was better, by true class and in all."""

    matrices: tuple[dict[str, Tensor], ...]  # of each model: (c, c + 1)
    better: dict[str, Tensor]  # by version they share: (c + 1, 2), the last row counts samples of all classes
    pairs: dict[str, Pairs] = field(default_factory=dict)  # by version they share

    def scores(self, model: int, ontology: Ontology, evaluated: Sequence[str] = ()) -> dict[str, Scores]:
        """The scores of one model; versions without any label are left out."""
        found = {}
        for name, matrix in self.matrices[model].items():
            if matrix.any():
                counted = evaluated if name == ontology.newest.name else ()
                found[name] = scores(matrix, ontology[name].handles).of(counted)
        return found


def judge(
    predictors: Sequence[Predictor], manifest: Manifest, ontology: Ontology, indices: NDArray[np.int64], size: int = 64
) -> Iterator[Judged]:
    """Score one or two models on samples of a manifest; yields again and again, the last time all of it.

    A sample counts at every version that it has a label of, or that surely follows from a label of a newer one.
    """
    versions = [version.name for version in ontology.versions]
    shared = [name for name in versions if all(name in p.description.versions for p in predictors)]
    matrices = tuple(
        {name: torch.zeros(len(ontology[name]), len(ontology[name]) + 1).long() for name in p.description.versions}
        for p in predictors
    )
    better = {name: torch.zeros(len(ontology[name]) + 1, 2).long() for name in shared}
    pairs = {name: Pairs() for name in shared}
    segments = predictors[0].description.task == "segmentation"
    size = 1 if segments else min(at_once(p.description, size) for p in predictors)
    for chosen in np.split(indices, range(size, len(indices), size)):
        counted: list[dict[str, Tensor]] = []
        for number, predictor in enumerate(predictors):
            probs, labels = (_pixels if segments else _samples)(predictor, manifest, ontology, chosen)
            counted.append({})
            for name, known in labels.items():
                if name in matrices[number]:
                    true = without_nameless(known)
                    transition = predictor.ontology.transition(predictor.description.newest, name)
                    predicted = predict_at(probs, transition).cpu()
                    matrices[number][name] += confusion(predicted, true, len(ontology[name]))
                    counted[number][name] = tally(predicted, true, len(ontology[name]))
        if len(counted) == 2:
            for name in shared:
                if all(name in found for found in counted):
                    first, second = (found[name] for found in counted)
                    better[name] += wins(hits(first), hits(second))
                    parts = 3 if segments else 2  # mIoU asks what is called a class, mAcc does not
                    pairs[name].add(first[:, :parts], second[:, :parts])
        yield Judged(matrices, better, pairs)


def tally(predicted: Tensor, true: Tensor, num_classes: int) -> Tensor:
    """For each sample (n, …), how many of its elements are of each class, are right, are called so: (n, 3, c)."""
    n = len(true)
    known = true != NO_LABEL
    first = num_classes * torch.arange(n).view(-1, *[1] * (true.dim() - 1)).expand_as(true)[known]
    true, predicted = true[known], predicted[known]
    right, named = predicted == true, predicted != NO_LABEL
    places = ((first + true), (first + true)[right], (first + predicted)[named])
    return torch.stack([torch.bincount(place, minlength=n * num_classes).view(n, -1) for place in places], dim=1)


def hits(counts: Tensor) -> Tensor:
    """For each sample of `tally`, the share of its elements of each class, and of all, that is right: (n, c + 1).

    NaN where a sample has nothing of a class; of a sample with one label, that is all but its own.
    """
    total, good = torch.cat([counts, counts.sum(dim=2, keepdim=True)], dim=2).double()[:, :2].unbind(dim=1)
    return good / total  # 0 / 0 is NaN


def wins(first: Tensor, second: Tensor) -> Tensor:
    """How many samples each of two models was better at, by class and in all: (c + 1, 2)."""
    return torch.stack([(first > second).sum(dim=0), (second > first).sum(dim=0)], dim=1)


def _samples(
    predictor: Predictor, manifest: Manifest, ontology: Ontology, chosen: NDArray[np.int64]
) -> tuple[Tensor, dict[str, Tensor]]:
    names = [manifest.inputs[index] for index in chosen.tolist()]
    description = predictor.description
    if description.task == "features":
        vectors = load_features(manifest.root, names)
        check_width(str(manifest.root), vectors.shape[1], description.shape[0])
        finite = np.isfinite(vectors).all(axis=1)
        if not finite.all():
            raise LecoError(f"{manifest.root / names[int(np.argmin(finite))]}: holds NaN or infinity")
        inputs = torch.from_numpy(vectors)
    else:
        inputs = torch.stack([read_image(manifest.root / name, description) for name in names])
    given = {name: torch.from_numpy(labels[chosen]) for name, labels in manifest.labels.items()}
    return predictor.probs(inputs), known_labels(given, ontology)


def _pixels(
    predictor: Predictor, manifest: Manifest, ontology: Ontology, chosen: NDArray[np.int64]
) -> tuple[Tensor, dict[str, Tensor]]:
    """One image, at the size that the model sees it in, as in training."""
    (index,) = chosen.tolist()
    side = predictor.description.side
    assert side is not None
    pixels = decode_image(manifest.root / manifest.inputs[index])
    small = scaled(pixels, side)
    given = {}
    for version, paths in manifest.masks.items():
        if paths[index]:
            labels = _checked_mask(manifest.root / paths[index], ontology, version, pixels.shape[:2])
            given[version] = letterbox_mask(labels, side)[None, : small.shape[0], : small.shape[1]].long()
    return predictor.pixel_probs(channels_first(small)[None]), known_labels(given, ontology)


def _checked_mask(path: Path, ontology: Ontology, version: str, size: tuple[int, ...]) -> NDArray[np.int32]:
    fault = MaskRule.of(ontology, version).fault(read_mask(path))
    if fault:
        raise LecoError(f"{path}: {fault.message}")
    labels = decode_mask(path)
    if labels.shape != size:
        raise LecoError(f"{path}: is {labels.shape[1]}x{labels.shape[0]}, but its image is {size[1]}x{size[0]}")
    return labels


def check_comparable(first: Description, second: Description) -> None:
    """Refuse to compare models that take different things."""
    if first.task != second.task:
        raise LecoError(
            f"a model for {first.task} and one for {second.task} cannot be compared: they take other inputs"
        )
