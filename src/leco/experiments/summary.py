"""`summary.json`: the part of a stage's result that lists and tables need; ten thousand are read in a second.

Nothing here imports torch.
"""

from collections.abc import Mapping
from typing import Any

_TAKEN = (
    *(
        "metric",
        "data",
        "budget",
        "ontology",
        "samples",
        "best_step",
        "validation_score",
        "seconds",
        "images_per_second",
    ),
    *("device", "threads", "processes", "packages"),
)


def summarise(config: Mapping[str, Any], result: Mapping[str, Any]) -> dict[str, Any]:
    """Return the configuration, and one test score for each version."""
    test = {name: scores[result["metric"]] for name, scores in (result["test"] or {}).items()}
    return {"config": dict(config), "test": test, **{name: result[name] for name in _TAKEN}}
