"""Labels that a stage leaves out (appendix C of the paper)."""

from functools import partial

import torch

from leco.data.batches import Mask, without_classes, without_contradictions
from leco.dataset import Periods
from leco.experiments.stages import Stage


def masks(stage: Stage, periods: Periods) -> list[Mask]:
    """Return the changes to the labels that a stage trains on."""
    history, found = stage.training.history, list[Mask]()
    if history.mask_contradictions:
        found.append(partial(without_contradictions, guess=history.guess_contradictions))
    if periods.evaluated and not stage.training.segmentation.unevaluated and stage.version == periods.versions[-1]:
        classes = periods.ontology.newest.classes
        dropped = torch.tensor([name not in periods.evaluated for name in classes])
        found.append(partial(without_classes, dropped=dropped))
    return found
