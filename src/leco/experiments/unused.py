"""Which stored stages an experiment still needs."""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from leco.experiments.experiment import experiment
from leco.experiments.grid import shared_periods
from leco.experiments.stages import plan


@dataclass(frozen=True)
class Trained:
    """What was varied in a stored stage."""

    material: str  # name of the data
    method: str
    strategy: str
    annotation: str
    head_start: bool
    seed: int


def needed(
    source: str, stored: Iterable[Trained], common: dict[str, Any], settings: dict[str, str], root: Path
) -> set[str]:
    """Fingerprints of the stages that a benchmark or an experiment.yaml needs.

    With any method, strategy, annotation, head start and seed that is stored for its data, and each of them alone with
    everything it starts from and is taught by: but only with the settings that it has now.
    """
    name = shared_periods(experiment(source, common, settings), root).name
    found: set[str] = set()
    for cell in dict.fromkeys(stage for stage in stored if stage.material == name):
        changes = {"method": cell.method, "strategy": cell.strategy, "annotation": cell.annotation, "seed": cell.seed}
        wanted = experiment(source, {**common, **changes, "head_start": cell.head_start}, settings)
        found |= {stage.fingerprint for stage in plan(wanted, shared_periods(wanted, root)).stages}
    return found
