"""Train the best model for the newest label ontology on everything ever labelled under the older ones.

Names are imported when first used, so that ``import leco`` and the command line stay fast: torch takes seconds.
"""

from importlib import import_module
from typing import TYPE_CHECKING

__version__ = "0.1.0"

if TYPE_CHECKING:
    from leco.errors import LecoError
    from leco.estimator import LecoClassifier
    from leco.ontology.changes import Change
    from leco.ontology.evidence import Evidence
    from leco.ontology.ontology import Ontology
    from leco.ontology.transition import Transition
    from leco.ontology.version import Version

_HOMES = {
    "Change": "leco.ontology.changes",
    "Evidence": "leco.ontology.evidence",
    "LecoClassifier": "leco.estimator",
    "LecoError": "leco.errors",
    "Ontology": "leco.ontology.ontology",
    "Transition": "leco.ontology.transition",
    "Version": "leco.ontology.version",
}

__all__ = ["Change", "Evidence", "LecoClassifier", "LecoError", "Ontology", "Transition", "Version"]


def __getattr__(name: str) -> object:
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'leco' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
