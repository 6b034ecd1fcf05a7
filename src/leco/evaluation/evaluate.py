"""The evaluator: predictions of networks, and their scores at the newest version and every older one."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import torch
from lightning_fabric import Fabric
from torch import Tensor, nn

from leco.data.periods import Part
from leco.data.rng import Draws
from leco.data.samples import Samples
from leco.dataset.periods import Periods
from leco.errors import DivergedError, LecoError
from leco.evaluation.calibration import Record, likeliest, record, spread
from leco.evaluation.compare import Pairs
from leco.evaluation.confusion import confusion, known_labels, predict_at, without_nameless
from leco.evaluation.scores import Scores, scores
from leco.modalities.modality import Modality, Normalise
from leco.ontology.ontology import Ontology
from leco.ontology.version import NO_LABEL


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
    def probs(self, inputs: Tensor, sizes: Tensor | None = None) -> Tensor:
        """Probabilities (n, c, ...) of uint8 images or feature vectors; `sizes` are those of images before padding."""
        version = self.ontology.newest.name
        ready = self.normalise(inputs.to(self.device))
        probs = self.modality.probs(self.network, ready, version, window=self.window, sizes=sizes)
        if not probs.isfinite().all():
            raise NotFiniteError(f"predictions at {version} are NaN or infinite")
        return probs


@dataclass(frozen=True, eq=False)
class Candidate:
    """A model to score, and the samples at its input size."""

    ontology: Ontology  # until the version that it is for
    samples: Samples
    predict: Callable[[Tensor, Tensor], Tensor]  # raw inputs and the ids of their samples -> probabilities (n, c, ...)


@dataclass(frozen=True, eq=False)
class Judged:
    """Confusion matrices by version; for two models, also how often each was better, by true class and in all."""

    matrices: tuple[dict[str, Tensor], ...]  # of each model: (c, c + 1)
    better: dict[str, Tensor] = field(default_factory=dict)  # by shared version: (c + 1, 2), the last row of all
    pairs: dict[str, Pairs] = field(default_factory=dict)  # by shared version

    def scores(self, model: int, ontology: Ontology, evaluated: Sequence[str] = ()) -> dict[str, Scores]:
        """The scores of one model; versions without any label are left out."""
        return {
            name: scores(matrix, ontology[name].handles).of(evaluated if name == ontology.newest.name else ())
            for name, matrix in self.matrices[model].items()
            if matrix.any()
        }


@torch.no_grad()
def judge(
    models: Sequence[Candidate], indices: Tensor, ontology: Ontology, *, batch_size: int, metric: str = "macc"
) -> Iterator[Judged]:
    """Score one or two models on samples; yield the result so far after every batch.

    A sample counts at every version that it has a label of, or for which one follows from a label of a newer one. Older
    versions are predicted by adding up the probabilities of the classes that came from one class.
    """
    histories = [model.ontology for model in models]
    names = [{version.name for version in history.versions} for history in histories]
    matrices = tuple(
        {v.name: torch.zeros(len(v), len(v) + 1).long() for v in history.versions} for history in histories
    )
    shared = [v.name for v in ontology.versions if len(models) > 1 and all(v.name in known for known in names)]
    better = {name: torch.zeros(len(ontology[name]) + 1, 2).long() for name in shared}
    pairs = {name: Pairs() for name in shared}
    for ids in indices.split(batch_size) if len(indices) else ():  # type: ignore[no-untyped-call]
        counted: list[dict[str, Tensor]] = [{} for _ in models]
        for number, model in enumerate(models):
            history, labels = model.ontology, labels_of(model.samples, ids, ontology)
            probs = model.predict(model.samples.inputs.read(ids), ids)
            for name in (name for name in labels if name in names[number]):
                true = without_nameless(labels[name])
                predicted = predict_at(probs, history.transition(history.newest.name, name)).cpu()
                matrices[number][name] += confusion(predicted, true, len(history[name]))
                if shared:
                    counted[number][name] = tally(predicted, true, len(history[name]))
        for name in (name for name in shared if all(name in found for found in counted)):
            first, second = (found[name] for found in counted)
            better[name] += wins(hits(first), hits(second))
            parts = 3 if metric == "miou" else 2  # mIoU needs false positives, mAcc does not
            pairs[name].add(first[:, :parts], second[:, :parts])
        yield Judged(matrices, better, pairs)
    if not len(indices):
        yield Judged(matrices, better, pairs)


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
        for ids in spread(self.held_out.indices).split(512) if self.has_validation else ():  # type: ignore[no-untyped-call]
            probs = self.predict(network, pool.inputs.read(ids), ids, pool)
            for version, true in labels_of(pool, ids, ontology).items():
                answers[version].append((*likeliest(probs, ontology, version), true))
        return {
            version: record(*(torch.cat(column) for column in zip(*parts, strict=True)))
            for version, parts in answers.items()
            if parts
        }

    def predict(self, network: nn.Module, inputs: Tensor, ids: Tensor, samples: Samples) -> Tensor:
        """Probabilities (n, c, ...) of the period's classes."""
        periods, device = self.periods, self.fabric.device
        seen = periods.views.evaluate(inputs.to(device), Draws(0, 0, ids.to(device)))
        sizes = None if samples.sizes is None else samples.sizes.read(ids)
        history = periods.until(self.period)
        predictor = Predictor(network, periods.modality, periods.normalise, history, device, self.window)
        try:
            return predictor.probs(seen, sizes)
        except NotFiniteError as error:
            raise DivergedError(f"{error}; try a smaller learning rate") from None

    def _scores(self, network: nn.Module, samples: Samples, indices: Tensor) -> dict[str, Scores] | None:
        if not len(indices):
            return None
        periods, fabric = self.periods, self.fabric
        ontology = periods.until(self.period)
        share = indices[fabric.global_rank :: fabric.world_size]
        was_training = network.training
        network.eval()
        candidate = Candidate(ontology, samples, lambda inputs, ids: self.predict(network, inputs, ids, samples))
        batch_size = periods.modality.evaluation_batch(samples)
        *_, judged = judge([candidate], share, ontology, batch_size=batch_size)
        network.train(was_training)
        found = {}
        for name, mine in judged.matrices[0].items():
            whole = fabric.all_reduce(mine, reduce_op="sum")
            assert isinstance(whole, Tensor)
            counted = periods.evaluated if name == periods.ontology.newest.name else ()
            found[name] = scores(whole, ontology[name].handles).of(counted)
        return found


def as_record(found: Mapping[str, Scores] | None) -> dict[str, object] | None:
    """Return scores by version as JSON files hold them."""
    if found is None:
        return None
    return {
        name: {"macc": s.macc, "miou": s.miou, "per_class": s.table(), "absent": list(s.absent)}
        for name, s in found.items()
    }
