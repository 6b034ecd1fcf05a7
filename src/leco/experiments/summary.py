"""What lists and tables need of a stage, small enough to read ten thousand of: `summary.json` beside `result.json`."""

import hashlib
import json
from collections.abc import Mapping
from typing import Any

_TAKEN = ("ontology", "samples", "best_step", "validation_score", "seconds", "images_per_second", "device", "threads")
_ALSO_TAKEN = ("processes", "packages")


def summarise(config: Mapping[str, Any], result: Mapping[str, Any]) -> dict[str, Any]:
    """The configuration, and of the result what is one number for each version."""
    metric = result.get("metric") or guess_metric(config, result)
    test = {name: scores[metric] for name, scores in (result["test"] or {}).items()}
    taken = {name: result.get(name) for name in (*_TAKEN, *_ALSO_TAKEN)}
    return {"config": dict(config), "metric": metric, "data": result.get("data") or _data(config, result)} | {
        "test": test,
        **taken,
    }


def guess_metric(config: Mapping[str, Any], result: Mapping[str, Any]) -> str:
    """The metric of a stage that was stored before results named theirs: the one that models were chosen by.

    >>> stored = {"validation_score": 0.5, "validation": {"v1": {"macc": 0.7, "miou": 0.5}}}
    >>> guess_metric({"version": "v1", "material": "own 0123"}, stored)
    'miou'
    """
    scores = (result.get("validation") or {}).get(config["version"], {})
    if scores and "miou" in scores and scores["miou"] != scores["macc"]:
        return "miou" if result["validation_score"] == scores["miou"] else "macc"
    return "miou" if str(config["material"]).startswith(("camvid", "mapillary")) else "macc"


def _data(config: Mapping[str, Any], result: Mapping[str, Any]) -> str | None:
    """What tells the data of a first period apart, whatever the seed: classes, and how many samples there are."""
    if config["period"] or not result["test"]:
        return None
    tested = [(row["class"], row["support"]) for row in result["test"][config["version"]]["per_class"]]
    held_out = (result["validation"] or {}).get(config["version"], {}).get("per_class", [])
    content = json.dumps([tested, sum(row["support"] for row in held_out)])
    return hashlib.blake2b(content.encode(), digest_size=8).hexdigest()
