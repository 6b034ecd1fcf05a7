"""Stores of made-up stages in the format of real ones, for tests of lists and reports."""

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from leco import Ontology
from leco.data import UNTESTED
from leco.data.periods import Annotation
from leco.experiments.stages import Stage
from leco.methods.method import Method
from leco.nested import merge
from leco.records import Config, Result, parse
from leco.settings import Settings

CLASSES = {"v1": ["a|b", "other"], "v2": ["<script>alert(1)</script>", "x&y", "$c$", "d_e"]}
PARENTS = {"<script>alert(1)</script>": "a|b", "x&y": "a|b", "$c$": "other", "d_e": "other"}
METHODS = {"ce": 0.50, "joint": 0.55, "lpl": 0.57, "ce+st-hard": 0.52, "lpl+st-hard": 0.58, "lpl+st-hard/cond": 0.60}


def ontology(classes: Mapping[str, Sequence[str]] = CLASSES) -> Ontology:
    """Two versions whose classes have names that need escaping."""
    newest = {name: {"from": PARENTS[name]} for name in classes["v2"]}
    versions = [{"name": "v1", "classes": list(classes["v1"])}, {"name": "v2", "classes": newest}]
    return Ontology.from_dict({"name": "odd <names>", "versions": versions})


def make_stages(
    seeds: Iterable[int],
    methods: Mapping[str, float] = METHODS,
    benchmark: str = "cifar-leco-1k",
    periods: int = 2,
    cells: Iterable[tuple[str, str, float]] = (("scratch", "label-new", 0.45), ("finetune", "all-fine", 0.62)),
    annotation: Annotation = "label-new",
    **training: Any,
) -> list[tuple[Stage, float]]:
    """Stages as `plan` makes them, each with its score: methods with finetune and one annotation, other cells of ce."""
    usual = {"batches": {"steps": 40, "evaluate_every": 20}, "network": {"backbone": "wrn-16-1"}}
    settings = Settings.model_validate(merge(usual, training))
    experiments = [(method, "finetune", annotation, score) for method, score in methods.items()]
    experiments += [("ce", strategy, labels, score) for strategy, labels, score in cells]
    found: dict[str, tuple[Stage, float]] = {}
    for seed in seeds:
        material = f"{benchmark} {hashlib.sha256(f'{benchmark} {seed}'.encode()).hexdigest()[:16]}"
        noise = ((seed * 7919) % 13 - 6) / 1_000
        for method, strategy, labels, score in experiments:
            previous: tuple[Stage, ...] = ()
            for period in range(periods):
                common: dict[str, Any] = {
                    **{
                        "material": material,
                        "learned": f"{material}{UNTESTED}",
                        "version": f"v{period + 1}",
                        "period": period,
                        "seed": seed,
                    },
                    "strategy": strategy if period else "scratch",
                    "annotation": labels if period else "label-new",
                    **{"head_start": False, "previous": () if strategy == "scratch" else previous},
                }
                plain = Stage(method=Method(), training=settings.used_by(Method(), common["strategy"]), **common)
                parsed = Method.parse(method) if period else Method()
                stage = plain
                if parsed != Method():
                    own = settings.used_by(parsed, common["strategy"])
                    stage = Stage(
                        method=parsed, training=own, teacher=plain if parsed.needs_teacher else None, **common
                    )
                if stage.teacher is not None:
                    found.setdefault(plain.fingerprint, (plain, methods.get("ce", 0.5) + noise))
                found.setdefault(stage.fingerprint, (stage, score + noise + seed % 3 / 500))
                previous = (stage,)
    return list(found.values())


def write_stage(
    runs: Path,
    stage: Stage,
    score: float,
    classes: Mapping[str, Sequence[str]] = CLASSES,
    metric: str = "macc",
    **changes: Any,
) -> Path:
    """Write one complete stage whose test score is `score`."""
    folder = runs / "stages" / stage.fingerprint
    folder.mkdir(parents=True)
    versions = {name: names for name, names in classes.items() if name <= stage.version}
    tested = {}
    for back, (name, names) in enumerate(reversed(list(versions.items()))):
        value = min(score + 0.1 * back, 1.0)
        rows = [{"class": c, "support": 10 + 7 * i, "accuracy": value, "iou": value} for i, c in enumerate(names)]
        tested[name] = {"macc": value, "miou": value, "per_class": rows, "absent": []}
    result = {
        **{"stage": str(stage), "version": stage.version, "metric": metric, "data": "0123456789abcdef"},
        **{
            "budget": "other",
            "ontology": ontology().fingerprint,
            "samples": 60,
            "best_step": 40,
            "validation_score": score,
        },
        **{"validation": tested, "test": tested, "pseudo_labels": {}, "seed": stage.seed, "seconds": 2.0},
        **{"images_per_second": 100.0, "device": "cpu", "processes": 1, "threads": 1, "notes": []},
        "packages": {"leco": "0.1.0", "torch": "2.6.0"},
    } | changes
    config = parse(Config, json.dumps(stage.config()), "config.json")
    config.write(folder / "config.json")
    (folder / "model.safetensors").touch()
    result = parse(Result, json.dumps(result), "result.json")
    result.write(folder / "result.json")
    means = {"ce": 0.5} | ({"kept": 0.9, "agreement": 0.8} if "+" in str(stage.method) else {})
    lines = [{"step": step, "score": score * step / 40, "learning_rate": 0.1, "means": means} for step in (20, 40)]
    (folder / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    result.summary(config).write(folder / "summary.json")
    return folder


def write_store(runs: Path, stages: Iterable[tuple[Stage, float]], **options: Any) -> Path:
    """Write many complete stages, and their ontology."""
    for stage, score in stages:
        write_stage(runs, stage, score, **options)
    history = ontology()
    (runs / "ontologies").mkdir(parents=True, exist_ok=True)
    history.save(runs / "ontologies" / f"{history.fingerprint}.json")
    return runs
