"""Find the stored stages that an experiment still needs."""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from leco.experiments.experiment import experiment
from leco.experiments.grid import shared_periods
from leco.experiments.stages import plan


@dataclass(frozen=True)
class Trained:
    """The fields of a stored stage that vary in a grid."""

    material: str  # name of the data
    method: str
    strategy: str
    annotation: str
    head_start: bool
    seed: int


def needed(
    source: str,
    stored: Iterable[Trained],
    common: dict[str, Any],
    settings: dict[str, str],
    *,
    root: Path,
    memory: Path,
) -> set[str]:
    """Return the fingerprints of the stages that a benchmark or an experiment.yaml needs.

    Includes every combination of method, strategy, annotation, head start and seed that is stored for its data, with
    all previous stages and teachers, but only with its present settings.
    """
    name = shared_periods(experiment(source, common, settings), root, memory).name
    found: set[str] = set()
    for cell in dict.fromkeys(stage for stage in stored if stage.material == name):
        changes = {"method": cell.method, "strategy": cell.strategy, "annotation": cell.annotation, "seed": cell.seed}
        wanted = experiment(source, {**common, **changes, "head_start": cell.head_start}, settings)
        found |= {stage.fingerprint for stage in plan(wanted, shared_periods(wanted, root, memory)).stages}
    return found
