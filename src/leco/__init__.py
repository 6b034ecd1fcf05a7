"""Train the best model for the newest label ontology on everything ever labelled under the older ones.

    Dataset --train--> Model --predict / evaluate / upgrade / export-->

Names are imported when first used, so that ``import leco`` and the command line stay fast: torch takes seconds.
"""

import os
import sys
from importlib import import_module
from typing import TYPE_CHECKING

__version__ = "0.2.0"

if sys.platform == "darwin":  # read when torch is imported: what Apple's GPUs cannot do, the CPU does
    os.environ.setdefault("PYTORCH_ENABLE_MPS_FALLBACK", "1")

if TYPE_CHECKING:
    from leco.dataset.benchmark import benchmark
    from leco.dataset.dataset import Dataset
    from leco.errors import LecoError
    from leco.estimator import LecoClassifier
    from leco.experiments.train import train
    from leco.methods.method import Method
    from leco.model.evaluation import Evaluation
    from leco.model.model import Model, load
    from leco.model.predictions import Predictions
    from leco.ontology.changes import Change
    from leco.ontology.evidence import Evidence
    from leco.ontology.ontology import Ontology
    from leco.ontology.transition import Transition
    from leco.ontology.version import Version
    from leco.settings import Settings

__all__ = [
    "Change",
    "Dataset",
    "Evaluation",
    "Evidence",
    "LecoClassifier",
    "LecoError",
    "Method",
    "Model",
    "Ontology",
    "Predictions",
    "Settings",
    "Transition",
    "Version",
    "benchmark",
    "load",
    "train",
]
_HOMES = {
    "Change": "leco.ontology.changes",
    "Dataset": "leco.dataset.dataset",
    "Evaluation": "leco.model.evaluation",
    "Evidence": "leco.ontology.evidence",
    "LecoClassifier": "leco.estimator",
    "LecoError": "leco.errors",
    "Method": "leco.methods.method",
    "Model": "leco.model.model",
    "Ontology": "leco.ontology.ontology",
    "Predictions": "leco.model.predictions",
    "Settings": "leco.settings",
    "Transition": "leco.ontology.transition",
    "Version": "leco.ontology.version",
    "benchmark": "leco.dataset.benchmark",
    "load": "leco.model.model",
    "train": "leco.experiments.train",
}


def __getattr__(name: str) -> object:
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'leco' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
