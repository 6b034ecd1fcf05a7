"""The evaluator: predictions of networks, and their scores at the newest version and every older one."""

import copy
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

import torch
from lightning_fabric import Fabric
from torch import Tensor, nn

from leco.data.periods import Part
from leco.data.rng import Draws
from leco.data.samples import Samples
from leco.dataset.periods import Periods
from leco.devices import in_turn, over_all
from leco.errors import DivergedError, LecoError
from leco.evaluation.calibration import Record, likeliest, record, spread
from leco.evaluation.compare import Pairs
from leco.evaluation.confusion import check_range, known_labels, pairs_counted, predict_at, without_nameless
from leco.evaluation.scores import Scores, scores
from leco.modalities.modality import Modality, Normalise
from leco.ontology.ontology import Ontology
from leco.ontology.version import NO_LABEL
from leco.placement import send
from leco.records import VersionScores


class NotFiniteError(LecoError):
    """Predictions that are NaN or infinite."""


@dataclass(frozen=True, eq=False)
class Predictor:
    """A network with its preprocessing: raw inputs to probabilities of its newest classes."""

    network: nn.Module
    modality: Modality
    normalise: Normalise
    ontology: Ontology  # until the version that the network is for
    device: torch.device
    window: int = 720  # of segmentation

    @torch.no_grad()
    def on_device(self, inputs: Tensor, sizes: Tensor | None = None) -> Tensor:
        """The same as `probs`, unchecked and left on the device, which is not waited for."""
        ready = self.normalise(send(inputs, self.device))
        return self.modality.probs(self.network, ready, self.ontology.newest.name, window=self.window, sizes=sizes)

    def probs(self, inputs: Tensor, sizes: Tensor | None = None) -> Tensor:
        """Probabilities (n, c, ...) of uint8 images or feature vectors; `sizes` are those of images before padding."""
        probs = self.on_device(inputs, sizes).cpu()
        check_finite(bool(probs.isfinite().all()), self.ontology.newest.name)
        return probs


def check_finite(finite: bool, version: str) -> None:
    """Refuse predictions that are not finite."""
    if not finite:
        raise NotFiniteError(f"predictions at {version} are NaN or infinite")


@dataclass(frozen=True, eq=False)
class Candidate:
    """A model to score, and the samples at its input size."""

    ontology: Ontology  # until the version that it is for
    samples: Samples
    # Raw inputs and the ids of their samples -> probabilities (n, c, ...), on any device; `Judged` checks them.
    predict: Callable[[Tensor, Tensor], Tensor]


@dataclass(frozen=True, eq=False)
class Judged:
    """Confusion matrices by version; for two models, also how often each was better, by true class and in all.

    Matrices stay on the device of the predictions until they are read.
    """

    tallies: tuple["Tally", ...]  # of each model
    better: dict[str, Tensor] = field(default_factory=dict)  # by shared version: (c + 1, 2), the last row of all
    pairs: dict[str, Pairs] = field(default_factory=dict)  # by shared version

    def matrices(self, model: int) -> dict[str, Tensor]:
        """Read the confusion matrices of one model, (c, c + 1) by version."""
        return self.tallies[model].read()

    def scores(self, model: int, ontology: Ontology, evaluated: Sequence[str] = ()) -> dict[str, Scores]:
        """The scores of one model; versions without any label are left out."""
        return {
            name: scores(matrix, ontology[name].handles).of(evaluated if name == ontology.newest.name else ())
            for name, matrix in self.matrices(model).items()
            if matrix.any()
        }

    def of_all(self, fabric: Fabric) -> "Judged":
        """Add up what all processes have counted."""
        tallies = tuple(tally.of_all(fabric) for tally in self.tallies)
        better = {name: over_all(counts.to(fabric.device)).cpu() for name, counts in self.better.items()}
        pairs = {name: Pairs() for name in self.pairs}
        for found in in_turn(fabric, [self.pairs]) if pairs else ():
            for name, whole in pairs.items():
                whole.update(found[name])
        return Judged(tallies, better, pairs)


class Tally:
    """Confusion matrices of one model by version, and whether all its predictions were finite."""

    def __init__(self, ontology: Ontology) -> None:
        self.newest = ontology.newest.name
        self._sizes = {version.name: len(version) for version in ontology.versions}
        self._matrices: dict[str, Tensor] = {}
        self._finite: Tensor | None = None

    def check(self, probs: Tensor) -> None:
        """Note whether predictions are finite."""
        finite = probs.isfinite().all()
        self._finite = finite if self._finite is None else self._finite & finite

    def add(self, version: str, predicted: Tensor, true: Tensor) -> None:
        """Count predictions and labels of a version, both on the device."""
        found = pairs_counted(predicted, true, self._sizes[version])
        self._matrices[version] = found if version not in self._matrices else self._matrices[version].add_(found)

    def of_all(self, fabric: Fabric) -> "Tally":
        """Add up the counts of all processes, which may have no label of a version."""
        whole, device = copy.copy(self), fabric.device
        empty = {name: torch.zeros(size, size + 1).long() for name, size in self._sizes.items()}
        whole._matrices = {name: over_all(counts.to(device)) for name, counts in (empty | self._matrices).items()}
        finite = torch.tensor(True) if self._finite is None else self._finite
        whole._finite = over_all((~finite).long().to(device)) == 0
        return whole

    def read(self) -> dict[str, Tensor]:
        """Return the matrices on the CPU, all in one copy; refuse predictions that were not finite."""
        shapes = {name: (size, size + 1) for name, size in self._sizes.items()}
        if self._finite is None:
            return {name: torch.zeros(shape).long() for name, shape in shapes.items()}
        flat = [self._matrices[name].flatten() for name in shapes if name in self._matrices]
        finite, *counts = torch.cat([self._finite.long().view(1), *flat]).cpu().split([1, *map(len, flat)])  # type: ignore[no-untyped-call]
        check_finite(bool(finite), self.newest)
        known = iter(counts)
        return {
            name: next(known).view(shape) if name in self._matrices else torch.zeros(shape).long()
            for name, shape in shapes.items()
        }


@torch.no_grad()
def judge(
    models: Sequence[Candidate],
    indices: Tensor,
    ontology: Ontology,
    *,
    batch_size: int,
    metric: str = "macc",
    workers: int = 0,
    fabric: Fabric | None = None,
) -> Iterator[Judged]:
    """Score one or two models on samples; yield the result so far after every batch.

    Each process of a `fabric` takes its share of the samples; the last result is that of all. A sample counts at every
    version that it has a label of, or for which one follows from a label of a newer one. Older versions are predicted
    by adding up the probabilities of the classes that came from one class.
    """
    histories = [model.ontology for model in models]
    names = [{version.name for version in history.versions} for history in histories]
    tallies = tuple(Tally(history) for history in histories)
    shared = [v.name for v in ontology.versions if len(models) > 1 and all(v.name in known for known in names)]
    better = {name: torch.zeros(len(ontology[name]) + 1, 2).long() for name in shared}
    pairs = {name: Pairs() for name in shared}
    if fabric is not None:  # in their order, on which bootstrap intervals depend
        indices = indices.tensor_split(fabric.world_size)[fabric.global_rank]
    parts = indices.split(batch_size) if len(indices) else ()  # type: ignore[no-untyped-call]
    given = [model.samples.each(partial(read_part, model.samples, ontology), parts, workers) for model in models]
    for ids, *read in zip(parts, *given, strict=True):
        counted: list[dict[str, Tensor]] = [{} for _ in models]
        for number, (model, (inputs, labels)) in enumerate(zip(models, read, strict=True)):
            history, probs = model.ontology, model.predict(inputs, ids)
            tallies[number].check(probs)
            for name in (name for name in labels if name in names[number]):
                true = without_nameless(labels[name])
                check_range(true, len(history[name]))
                predicted = predict_at(probs, history.transition(history.newest.name, name))
                tallies[number].add(name, predicted, send(true, predicted.device))
                if shared:
                    counted[number][name] = tally(predicted.cpu(), true, len(history[name]))
        for name in (name for name in shared if all(name in found for found in counted)):
            first, second = (found[name] for found in counted)
            better[name] += wins(hits(first), hits(second))
            parts = 3 if metric == "miou" else 2  # mIoU needs false positives, mAcc does not
            pairs[name].add(first[:, :parts], second[:, :parts])
        yield Judged(tallies, better, pairs)
    if not len(indices):
        yield Judged(tallies, better, pairs)
    if fabric is not None and fabric.world_size > 1:
        yield Judged(tallies, better, pairs).of_all(fabric)


def read_part(samples: Samples, ontology: Ontology, ids: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
    """Return the inputs of some samples, and their labels as `labels_of` does."""
    return samples.inputs.read(ids), labels_of(samples, ids, ontology)


def labels_of(samples: Samples, ids: Tensor, ontology: Ontology) -> dict[str, Tensor]:
    """Return the labels of some samples at every version, as far as they are known."""
    given = {v.name: samples.labels[v.name].read(ids) for v in ontology.versions if v.name in samples.labels}
    return known_labels(given, ontology)


def tally(predicted: Tensor, true: Tensor, num_classes: int) -> Tensor:
    """Count the elements of each sample (n, ...) by class: true, correct and predicted ones, (n, 3, c)."""
    n = len(true)
    known = true != NO_LABEL
    first = num_classes * torch.arange(n).view(-1, *[1] * (true.dim() - 1)).expand_as(true)[known]
    true, predicted = true[known], predicted[known]
    right, named = predicted == true, predicted != NO_LABEL
    places = ((first + true), (first + true)[right], (first + predicted)[named])
    return torch.stack([torch.bincount(place, minlength=n * num_classes).view(n, -1) for place in places], dim=1)


def hits(counts: Tensor) -> Tensor:
    """Return, for each sample of `tally`, the share of correct elements of each class, and of all: (n, c + 1).

    NaN where a sample has no element of a class.
    """
    total, good = torch.cat([counts, counts.sum(dim=2, keepdim=True)], dim=2).double()[:, :2].unbind(dim=1)
    return good / total  # 0 / 0 is NaN


def wins(first: Tensor, second: Tensor) -> Tensor:
    """Return the number of samples that each of two models was better at, by class and in all: (c + 1, 2)."""
    return torch.stack([(first > second).sum(dim=0), (second > first).sum(dim=0)], dim=1)


@dataclass(frozen=True, eq=False)
class Judge:
    """Score networks of one period; each of several processes evaluates its share of the samples."""

    periods: Periods
    period: int
    held_out: Part
    fabric: Fabric
    window: int = 720  # of segmentation
    workers: int = 0  # processes that read files ahead

    @property
    def has_validation(self) -> bool:
        """Whether any samples are held out to choose a model by."""
        return len(self.held_out.indices) > 0

    def score(self, network: nn.Module) -> float:
        """Return the score that models are chosen by: the modality's metric on validation, at the period's version."""
        found = self.validation(network)
        assert found is not None
        return float(getattr(found[self.periods.versions[self.period]], self.periods.modality.metric))

    def validation(self, network: nn.Module) -> dict[str, Scores] | None:
        """All scores on the held-out samples; None if there are none."""
        return self._scores(network, self.periods.pool, self.held_out.indices)

    def test(self, network: nn.Module) -> dict[str, Scores] | None:
        """All scores on the test set; None if there is none."""
        return self._scores(network, self.periods.test, self.periods.tested(self.period))

    @torch.no_grad()
    def calibration(self, network: nn.Module) -> dict[str, Record]:
        """How confident the network is of held-out samples, at every version, and whether it is right."""
        ontology, pool = self.periods.until(self.period), self.periods.pool
        answers: dict[str, list[tuple[Tensor, ...]]] = {version.name: [] for version in ontology.versions}
        network.eval()
        together = self.periods.modality.evaluation_batch(pool, self.periods.shape)
        parts = spread(self.held_out.indices).split(together) if self.has_validation else ()  # type: ignore[no-untyped-call]
        for ids, (inputs, labels) in zip(
            parts, pool.each(partial(read_part, pool, ontology), parts, self.workers), strict=True
        ):
            probs = self.predict(network, inputs, ids, pool)
            for version, true in labels.items():
                answers[version].append((*likeliest(probs, ontology, version), true))
        return {
            version: record(*(torch.cat(column).cpu() for column in zip(*parts, strict=True)))
            for version, parts in answers.items()
            if parts
        }

    def predict(self, network: nn.Module, inputs: Tensor, ids: Tensor, samples: Samples) -> Tensor:
        """Probabilities (n, c, ...) of the period's classes, on the device."""
        periods, device = self.periods, self.fabric.device
        seen = periods.views.evaluate(send(inputs, device), Draws(0, 0, ids, device))
        sizes = None if samples.sizes is None else samples.sizes.read(ids)
        history = periods.until(self.period)
        predictor = Predictor(network, periods.modality, periods.normalise, history, device, self.window)
        return predictor.on_device(seen, sizes)

    def _scores(self, network: nn.Module, samples: Samples, indices: Tensor) -> dict[str, Scores] | None:
        if not len(indices):
            return None
        periods = self.periods
        ontology = periods.until(self.period)
        was_training = network.training
        network.eval()
        candidate = Candidate(ontology, samples, lambda inputs, ids: self.predict(network, inputs, ids, samples))
        batch_size = periods.modality.evaluation_batch(samples, periods.shape)
        *_, judged = judge(
            [candidate], indices, ontology, batch_size=batch_size, workers=self.workers, fabric=self.fabric
        )
        network.train(was_training)
        found = {}
        try:
            counted = judged.matrices(0)
        except NotFiniteError as error:
            raise DivergedError(f"{error}; try a smaller learning rate") from None
        for name, matrix in counted.items():
            evaluated = periods.evaluated if name == periods.ontology.newest.name else ()
            found[name] = scores(matrix, ontology[name].handles).of(evaluated)
        return found


def as_record(found: Mapping[str, Scores] | None) -> dict[str, VersionScores] | None:
    """Return scores by version as stores and bundles keep them."""
    if found is None:
        return None
    return {
        name: VersionScores.model_validate({"macc": s.macc, "miou": s.miou, "per_class": s.table(), "absent": s.absent})
        for name, s in found.items()
    }
