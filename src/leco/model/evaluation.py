"""The scores of a model on labelled samples, and its differences from another model."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from lightning_fabric import Fabric
from torch import Tensor

from leco.data.inputs import at_once
from leco.data.samples import Samples
from leco.dataset import Dataset
from leco.errors import LecoError, nearest
from leco.evaluation.compare import Difference, Overall, compare
from leco.evaluation.evaluate import Candidate, Judged, judge
from leco.evaluation.scores import Scores
from leco.ontology.changes import require_same
from leco.ontology.ontology import Ontology
from leco.progress import progress_bar

if TYPE_CHECKING:
    from leco.model.model import Model


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
        if version not in self.versions:
            raise LecoError(f"no samples were evaluated at {version!r}{nearest(str(version), self.versions)}")
        return self.versions[version].scores

    def __repr__(self) -> str:
        found = ", ".join(f"{name}: {getattr(v.scores, self.metric):.3f}" for name, v in self.versions.items())
        return f"Evaluation({self.metric}; {found})"


def evaluated(models: Sequence["Model"], data: Dataset, split: str, fabric: Fabric) -> Evaluation:
    """Score one model, or compare two, on the samples of a split, of which each process takes its share."""
    modality = data.modality
    candidates, chosen = [], torch.empty(0, dtype=torch.int64)
    for model in models:
        samples, chosen = data.labelled(split, model.description.shape, model.description.side)
        candidates.append(_candidate(model, samples))
    size = 1 if modality.has_masks else min(at_once(model.description.shape, 64) for model in models)
    judged: Judged | None = None
    with progress_bar("evaluating", shown=fabric.is_global_zero) as tick:
        found = judge(candidates, chosen, data.ontology, batch_size=size, metric=modality.metric, fabric=fabric)
        for number, so_far in enumerate(found, start=1):
            judged = so_far
            tick(number * size * fabric.world_size, len(chosen))
    assert judged is not None
    tables = []
    for number, model in enumerate(models):
        with model.checked():
            tables.append(judged.scores(number, model.ontology, model.description.evaluated))
    versions = {}
    for name, mine in reversed(tables[0].items()):
        other = tables[1].get(name) if len(tables) > 1 else None
        if other is None:
            versions[name] = VersionEvaluation(mine)
        else:
            whole, classes = compare(judged, data.ontology[name], mine, other, modality.metric)
            versions[name] = VersionEvaluation(mine, other, whole, tuple(classes))
    if not versions:
        known = ", ".join(models[0].versions)
        raise LecoError(f"{data.name}: no sample of the split {split} has a label of {known}, which the model predicts")
    return Evaluation(modality.metric, versions)


def _candidate(model: "Model", samples: Samples) -> Candidate:
    """A model, and the samples at the size that it sees them in."""
    known = model.description

    def predict(inputs: Tensor, ids: Tensor) -> Tensor:
        sizes = None if samples.sizes is None else samples.sizes.read(ids)
        return model.predictor.on_device(known.modality.prepare(inputs, known.shape), sizes)

    return Candidate(model.ontology, samples, predict)


def longest_ontology(models: Sequence["Model"], given: Ontology | str | Path | None) -> Ontology:
    """The given ontology, or the longest of the models'; each model's must be the beginning of it."""
    if given is None:
        longest = max((model.ontology for model in models), key=lambda ontology: len(ontology.versions))
        name = f"the ontology {longest.name} of the other model"
    elif isinstance(given, Ontology):
        longest, name = given, f"the ontology {given.name}"
    else:
        longest, name = Ontology.load(Path(given)), str(given)
    for model in models:
        require_same(model.ontology, longest, name, model.place)
    return longest


def check_comparable(first: "Model", second: "Model") -> None:
    """Refuse to compare models that take different inputs."""
    tasks = first.description.task, second.description.task
    if tasks[0] != tasks[1]:
        raise LecoError(f"a model for {tasks[0]} and one for {tasks[1]} cannot be compared: their inputs differ")
