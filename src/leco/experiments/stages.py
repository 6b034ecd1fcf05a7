"""An experiment as a chain of stages: one training per period, and its teachers; equal stages are trained once."""

import importlib.metadata
import json
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from safetensors.torch import load_file, save
from torch import Tensor, nn

from leco.data.benchmarks import Benchmark
from leco.data.periods import Split, annotate
from leco.data.streams import Steps
from leco.data.views import normalise
from leco.errors import LecoError
from leco.evaluation import scores
from leco.experiments.config import Experiment, fingerprint
from leco.experiments.store import Store
from leco.methods.method import Method
from leco.methods.terms import terms
from leco.models import Network, build_backbone
from leco.ontology.files import write_bytes
from leco.ontology.ontology import Ontology
from leco.training.checkpoint import read_checkpoint, write_checkpoint
from leco.training.evaluate import confusions
from leco.training.handover import hand_over
from leco.training.loop import Job, Report, Training

_PACKAGES = ("leco", "torch", "timm", "numpy")
_SAVE_EVERY = float(os.environ.get("LECO_SAVE_EVERY", "30"))  # seconds between checkpoints
Watch = Callable[["Stage", Report], object]


@dataclass(frozen=True)
class Stage:
    """One training. Its fingerprint covers all that its result depends on."""

    period: int
    method: str
    strategy: str
    annotation: str
    previous: "Stage | None"
    teacher: "Stage | None"
    common: str  # the rest of the experiment, and its data, as JSON

    @property
    def fingerprint(self) -> str:
        """Names the folder of the stage."""
        own = {"period": self.period, "method": self.method, "strategy": self.strategy, "annotation": self.annotation}
        links = {name: getattr(self, name) for name in ("previous", "teacher")}
        return fingerprint(own | {n: s and s.fingerprint for n, s in links.items()} | {"common": self.common})

    def __str__(self) -> str:
        return f"TP{self.period} {self.method} {self.strategy} {self.annotation}"


def plan(experiment: Experiment, benchmark: Benchmark, split: Split) -> list[Stage]:
    """The stages of an experiment, in the order they can run in; the last one is what was asked for.

    The first period has nothing to take over, so all experiments share it; a teacher is the `ce` model of the same
    period, which is a row of the paper's tables itself.
    """
    common = json.dumps(
        {
            "benchmark": experiment.benchmark,
            "training": experiment.training.model_dump(),
            "head_start": experiment.head_start,
            "seed": experiment.seed,
            "ontology": benchmark.ontology.fingerprint,
            "split": split.fingerprint,
        },
        sort_keys=True,
    )
    method = Method.parse(experiment.method)
    stages = [Stage(0, "ce", "scratch", "label-new", None, None, common)]
    for period in range(1, len(split.periods)):
        previous, teacher = stages[-1], None
        if method.needs_teacher:
            teacher = Stage(period, "ce", experiment.strategy, experiment.annotation, previous, None, common)
            stages.append(teacher)
        stages.append(Stage(period, str(method), experiment.strategy, experiment.annotation, previous, teacher, common))
    return stages


def run_stage(
    stage: Stage, experiment: Experiment, benchmark: Benchmark, split: Split, store: Store, watch: Watch
) -> None:
    """Train one stage, or go on where it was stopped; nothing happens if it is complete."""
    if store.result(stage.fingerprint) is not None:
        return
    ontology = benchmark.ontology.until(split.periods[stage.period].version)
    annotated = annotate(split, stage.period, stage.annotation)  # type: ignore[arg-type]
    prepare, views = normaliser(benchmark, split), benchmark.views()
    network = make_network(stage, experiment, benchmark, ontology, store)
    teacher = None if stage.teacher is None else load_network(stage.teacher, experiment, benchmark, store)
    settings = experiment.training
    job = Job(
        Steps(benchmark.pool, annotated, ontology.evidence(), settings.batch_size, experiment.seed, settings.steps),
        terms(Method.parse(stage.method)),
        views,
        prepare,
        stage.strategy,  # type: ignore[arg-type]
        settings.optimisation(),
        experiment.seed,
        teacher,
    )

    def score(model: nn.Module, held_out: bool) -> dict[str, Any]:
        samples = benchmark.pool if held_out else benchmark.test
        indices = annotated.validation.indices if held_out else torch.arange(len(benchmark.test))
        matrices = confusions(model, samples, indices, ontology, lambda x, draws: prepare(views.evaluate(x, draws)))
        found = {name: scores(matrix, ontology[name].handles) for name, matrix in matrices.items()}
        return {name: {"macc": s.macc, "per_class": s.table(), "absent": list(s.absent)} for name, s in found.items()}

    def validate(model: nn.Module) -> float:
        return float(score(model, held_out=True)[ontology.newest.name]["macc"])

    with store.working(stage.fingerprint) as folder:
        training = Training(job, network, validate)
        checkpoint, problems = read_checkpoint(folder)
        if checkpoint is not None:
            training.resume(checkpoint)
        write_bytes(folder / "config.json", json.dumps({"stage": str(stage), "common": stage.common}).encode())
        started, saved, first = time.monotonic(), time.monotonic(), training.step
        forget_after(folder / "metrics.jsonl", first)
        with (folder / "metrics.jsonl").open("a") as metrics:
            for report in training.run():
                watch(stage, report)
                if report.score is not None:
                    line = {"step": report.step, "score": report.score, "losses": report.losses}
                    metrics.write(json.dumps(line) + "\n")
                    metrics.flush()
                if time.monotonic() - saved > _SAVE_EVERY:
                    write_checkpoint(folder, training.checkpoint())
                    saved = time.monotonic()
        seconds = time.monotonic() - started
        network.load_state_dict(training.best)
        result = {
            "stage": str(stage),
            "version": ontology.newest.name,
            "best_step": training.best_step,
            "validation": score(network, held_out=True),
            "test": score(network, held_out=False),  # read once, here
            "seed": experiment.seed,
            "seconds": seconds,
            "steps_per_second": (training.step - first) / seconds if seconds else None,
            "notes": problems,
            "packages": {name: importlib.metadata.version(name) for name in _PACKAGES},
        }
        tensors = {name: tensor.contiguous() for name, tensor in training.best.items()}
        write_bytes(folder / "model.safetensors", save(tensors))
        write_bytes(folder / "result.json", json.dumps(result, indent=1).encode())
    store.complete(stage.fingerprint)


def forget_after(metrics: Path, step: int) -> None:
    """Drop the lines that a killed run wrote after its last checkpoint: those steps are made again."""
    if metrics.is_file():
        lines = metrics.read_text().splitlines(keepends=True)
        kept = [line for line in lines if line.endswith("\n") and json.loads(line)["step"] <= step]
        write_bytes(metrics, "".join(kept).encode())


def make_network(
    stage: Stage, experiment: Experiment, benchmark: Benchmark, ontology: Ontology, store: Store
) -> Network:
    """A new network for a stage, with what it takes over from the one before."""
    torch.manual_seed(experiment.seed)
    network = build_network(stage, experiment, benchmark, ontology, experiment.training.pretrained)
    for module in network.modules():
        if isinstance(module, nn.modules.batchnorm._BatchNorm):
            module.momentum = experiment.training.norm_momentum
    if stage.previous is not None:
        previous = load_network(stage.previous, experiment, benchmark, store)
        hand_over(previous, network, ontology, stage.strategy, experiment.head_start)  # type: ignore[arg-type]
    return network


def load_network(stage: Stage, experiment: Experiment, benchmark: Benchmark, store: Store) -> Network:
    """The network that a complete stage trained."""
    path = store.weights(stage.fingerprint)
    if not path.is_file():
        raise LecoError(f"{path}: the stage {stage} is not complete")
    ontology = benchmark.ontology.until(benchmark.ontology.versions[stage.period].name)
    network = build_network(stage, experiment, benchmark, ontology, pretrained=False)
    network.load_state_dict(load_file(path))
    return network.eval()


def build_network(
    stage: Stage, experiment: Experiment, benchmark: Benchmark, ontology: Ontology, pretrained: bool
) -> Network:
    """A network of the shape that a stage has: one head, or, for joint training, one per version."""
    num_inputs = benchmark.pool.inputs.read(torch.tensor([0])).shape[1]
    versions = ontology.versions if Method.parse(stage.method).coarse == "joint" else (ontology.newest,)
    return Network(build_backbone(experiment.training.model, num_inputs, pretrained), versions)


def normaliser(benchmark: Benchmark, split: Split) -> Callable[[Tensor], Tensor]:
    """Centre and scale each channel as the first period's training samples are spread; features get unit length.

    (Times ten, so that a linear head need not grow large to be sure: see docs/log.md.)
    """
    if benchmark.recipe.task == "features":
        return lambda features: 10 * F.normalize(features, dim=1)
    sample = benchmark.pool.inputs.read(split.periods[0].train[:2_000]).float()
    mean, std = sample.mean(dim=(0, 2, 3)) / 255, sample.std(dim=(0, 2, 3)).clamp(min=1e-6) / 255
    return partial(normalise, mean=mean, std=std)
