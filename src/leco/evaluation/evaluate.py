"""Evaluation of a network on samples: one confusion matrix at each version, whole set at once."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from lightning_fabric import Fabric
from torch import Tensor, nn

from leco.data.periods import Part
from leco.data.rng import Draws
from leco.data.samples import Samples
from leco.dataset import Material
from leco.evaluation import confusion, known_labels, predict_at, scores, without_nameless
from leco.evaluation.calibration import likeliest, record, spread
from leco.model.description import Record
from leco.models.dense.sliding_window import sliding_window
from leco.ontology.ontology import Ontology
from leco.training.loop import DivergedError

# Raw inputs and the ids of their samples to probabilities (n, c, ...) over the newest classes.
Predict = Callable[[Tensor, Tensor], Tensor]


@torch.no_grad()
def confusions(
    predict: Predict, samples: Samples, indices: Tensor, ontology: Ontology, batch_size: int = 512
) -> dict[str, Tensor]:
    """Confusion matrices of the newest version and every older one.

    Older versions are predicted by adding up what the classes that came from one class have.
    """
    newest = ontology.newest.name
    matrices = {version.name: torch.zeros(len(version), len(version) + 1).long() for version in ontology.versions}
    for ids in indices.split(batch_size):  # type: ignore[no-untyped-call]
        probs = predict(samples.inputs.read(ids), ids)
        for version, true in labels_of(samples, ids, ontology).items():
            predicted = predict_at(probs, ontology.transition(newest, version)).cpu()
            matrices[version] += confusion(predicted, without_nameless(true), len(ontology[version]))
    return matrices


def labels_of(samples: Samples, ids: Tensor, ontology: Ontology) -> dict[str, Tensor]:
    """What is known of some samples at every version."""
    return known_labels({v.name: samples.labels[v.name].read(ids) for v in ontology.versions}, ontology)


@dataclass(frozen=True, eq=False)
class Judge:
    """Scores networks of one period; of several processes, each looks at its share of the samples."""

    material: Material
    period: int
    held_out: Part
    fabric: Fabric
    window: int = 720  # of segmentation

    @property
    def has_validation(self) -> bool:
        """Whether there are samples to choose a model by."""
        return len(self.held_out.indices) > 0

    def score(self, network: nn.Module) -> float:
        """What models are chosen by, on validation, at the period's version: mAcc, or mIoU in segmentation."""
        found = self.validation(network)
        assert found is not None
        return float(found[self.material.versions[self.period]][self.material.metric])

    def validation(self, network: nn.Module) -> dict[str, Any] | None:
        """All scores on the held-out samples; None if there are none."""
        return self._scores(network, self.material.pool, self.held_out.indices)

    def test(self, network: nn.Module) -> dict[str, Any] | None:
        """All scores on the test set; None if there is none."""
        return self._scores(network, self.material.test, self.material.tested(self.period))

    @torch.no_grad()
    def calibration(self, network: nn.Module) -> dict[str, Record]:
        """How sure the network is of held-out samples, at every version, and whether it is right."""
        ontology, pool = self.material.until(self.period), self.material.pool
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
        """Probabilities over the newest classes of raw inputs: (n, c), or of pixels (n, c, h, w)."""
        version, device = self.material.versions[self.period], self.fabric.device
        draws = Draws(0, 0, ids.to(device))
        ready = self.material.normalise(self.material.views.evaluate(inputs.to(device), draws))
        if self.material.task == "segmentation":
            probs = self._segment(network, ready, ids, samples)
        else:
            probs = network(ready)[version].float().softmax(dim=1).cpu()
        if not probs.isfinite().all():
            raise DivergedError(
                f"the network's answers at {version} are no numbers any more; try a smaller learning rate"
            )
        return probs

    def _segment(self, network: nn.Module, ready: Tensor, ids: Tensor, samples: Samples) -> Tensor:
        version = self.material.versions[self.period]
        stride = 2 * self.window // 3
        if samples.sizes is None:
            return sliding_window(network, ready, version, self.window, stride)
        (height, width), *_ = samples.sizes.read(ids).tolist()  # one at a time: the rest of the square is padding
        probs = sliding_window(network, ready[:, :, :height, :width], version, self.window, stride)
        return nn.functional.pad(probs, (0, ready.shape[3] - width, 0, ready.shape[2] - height))

    @torch.no_grad()
    def _scores(self, network: nn.Module, samples: Samples, indices: Tensor) -> dict[str, Any] | None:
        if not len(indices):
            return None
        ontology, fabric = self.material.until(self.period), self.fabric
        share = indices[fabric.global_rank :: fabric.world_size]
        was_training = network.training
        network.eval()
        batch_size = 512 if self.material.task != "segmentation" else 8 if samples.sizes is None else 1
        matrices = confusions(
            lambda inputs, ids: self.predict(network, inputs, ids, samples), samples, share, ontology, batch_size
        )
        network.train(was_training)
        found = {}
        for name, mine in matrices.items():
            whole = fabric.all_reduce(mine, reduce_op="sum")
            assert isinstance(whole, Tensor)
            counted = self.material.evaluated if name == self.material.ontology.newest.name else ()
            s = scores(whole, ontology[name].handles).of(counted)
            found[name] = {"macc": s.macc, "miou": s.miou, "per_class": s.table(), "absent": list(s.absent)}
        return found
