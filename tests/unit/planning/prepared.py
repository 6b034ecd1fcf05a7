"""Plans of small data, in the process of the tests."""

from pathlib import Path
from typing import Any

from leco.dataset import make_material
from leco.experiments.experiment import experiment
from leco.planning.prepare import Prepared, prepare
from leco.experiments.run import Machine


def prepared(folder: Path, runs: Path | None = None, *, tested: bool = True, **options: Any) -> Prepared:
    """Measure what `leco plan` would."""
    wanted = experiment(str(folder / "experiment.yaml"), {}, {})
    options = {"draws": 5, "machine": Machine(), "watch": lambda *_: None} | options
    return prepare(wanted, make_material(wanted, folder, tested), runs or folder / "runs", **options)
