"""How good a network is, on validation and on test, at its own version and at every older one."""

from dataclasses import dataclass
from typing import Any

import torch
from lightning_fabric import Fabric
from torch import Tensor, nn

from leco.data.draws import Draws
from leco.data.periods import Part
from leco.data.samples import Samples
from leco.evaluation import scores
from leco.experiments.material import Material
from leco.training.evaluate import confusions


@dataclass(frozen=True, eq=False)
class Judge:
    """Scores networks of one period; of several processes, each looks at its share of the samples."""

    material: Material
    period: int
    held_out: Part
    fabric: Fabric

    @property
    def has_validation(self) -> bool:
        """Whether there are samples to choose a model by."""
        return len(self.held_out.indices) > 0

    def score(self, network: nn.Module) -> float:
        """What models are chosen by: mean per-class accuracy on validation, at the period's version."""
        found = self.validation(network)
        assert found is not None
        return float(found[self.material.versions[self.period]]["macc"])

    def validation(self, network: nn.Module) -> dict[str, Any] | None:
        """All scores on the held-out samples; None if there are none."""
        return self._scores(network, self.material.pool, self.held_out.indices)

    def test(self, network: nn.Module) -> dict[str, Any] | None:
        """All scores on the test set; None if there is none."""
        return self._scores(network, self.material.test, self.material.tested(self.period))

    def _scores(self, network: nn.Module, samples: Samples, indices: Tensor) -> dict[str, Any] | None:
        if not len(indices):
            return None
        ontology, fabric = self.material.until(self.period), self.fabric
        share = indices[fabric.global_rank :: fabric.world_size]
        matrices = confusions(network, samples, share, ontology, self._prepare, fabric.device)
        found = {}
        for name, mine in matrices.items():
            whole = fabric.all_reduce(mine, reduce_op="sum")
            assert isinstance(whole, Tensor)
            s = scores(whole, ontology[name].handles)
            found[name] = {"macc": s.macc, "per_class": s.table(), "absent": list(s.absent)}
        return found

    def _prepare(self, inputs: Tensor, draws: Draws) -> torch.Tensor:
        return self.material.normalise(self.material.views.evaluate(inputs, draws))
