"""One stage, trained from its start, or from where it was stopped, to its result."""

import importlib.metadata
import json
import math
import os
import shutil
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from lightning_fabric import Fabric
from safetensors.torch import save
from torch import Tensor, nn

from leco.data.batches import Steps
from leco.data.views.segmentation import JointCrop, photometric
from leco.dataset import Material
from leco.devices import keep_memory, make_fabric
from leco.errors import LecoError
from leco.evaluation.evaluate import Judge
from leco.experiments.bundling import describe
from leco.experiments.networks import load_network, make_network, previous_network
from leco.experiments.overlays import overlay_sheet
from leco.experiments.stages import Stage
from leco.experiments.store import Store, summarise
from leco.io import write_bytes
from leco.methods.terms import terms
from leco.models.network import AnyNetwork, Network
from leco.training.checkpoint import read_checkpoint, write_checkpoint
from leco.training.finish import Head, adjusted, balance_teacher, class_counts, fit_head, with_head
from leco.training.frozen import on_features
from leco.training.loggers import events
from leco.training.loop import DivergedError, Job, Report, Training

_PACKAGES = ("leco", "torch", "timm", "numpy")
Watch = Callable[[Stage, Report], object]
Finish = Callable[[AnyNetwork], AnyNetwork]


class Stopped(KeyboardInterrupt):
    """A run was asked to stop, and has saved what it had."""


@dataclass(frozen=True)
class Machine:
    """Where stages run; none of this changes what they find, but for rounding."""

    device: str = "auto"
    workers: int = 0  # processes that read files ahead
    stop: Callable[[], bool] = lambda: False  # asked after every step
    say: Callable[[str], object] = lambda _: None  # told what is not as it should be
    saved: Callable[[Path], object] = lambda _: None  # told the folder of every checkpoint that was written


def run_stage(
    stage: Stage, material: Material, store: Store, machine: Machine, watch: Watch, may_diverge: bool = False
) -> None:
    """Train one stage, or go on where it was stopped; nothing happens if it is complete.

    A stage that `may_diverge`, since there are others to choose from, then is complete without a model.
    """
    fabric = make_fabric(machine.device, stage.training.precision)
    if fabric.device.type == "cpu":
        keep_memory()
    if fabric.broadcast(store.result(stage.fingerprint) is not None):
        return
    leads = fabric.is_global_zero
    with store.working(stage.fingerprint) if leads else nullcontext(store.partial / stage.fingerprint) as folder:
        if fabric.broadcast(store.result(stage.fingerprint) is not None):  # another process has just completed it
            if leads:
                shutil.rmtree(folder, ignore_errors=True)
            return
        held_out = material.annotated(stage.period, stage.annotation).validation
        if stage.teacher is not None and (fate := store.require(stage.teacher.fingerprint).get("diverged")):
            _complete_diverged(stage, store, folder, leads, f"its teacher: {fate}")
            return
        judge = Judge(material, stage.period, held_out, fabric, stage.training.window)
        training, network, finish = make_training(stage, material, store, machine, fabric, judge)
        checkpoint, problems = read_checkpoint(folder)
        if checkpoint is not None:
            training.resume(checkpoint)
        for problem in problems if leads else ():
            machine.say(f"{problem}; going on from step {training.step}")
        if leads:
            config = stage.config() | {"source": material.source, "learned": stage.untested.fingerprint}
            write_bytes(folder / "config.json", json.dumps(config, indent=1).encode())
            forget_after(folder / "metrics.jsonl", training.step)
        try:
            last = _train(stage, training, folder, machine, fabric, watch)
        except DivergedError as problem:
            if not may_diverge:
                raise
            _complete_diverged(stage, store, folder, leads, str(problem))
            return
        training.network.load_state_dict(training.best)  # and with it the heads of `network`
        network = finish(network)  # `training.best` stays as it is, for those who resume
        result = {
            "stage": str(stage),
            "version": stage.version,
            "metric": material.metric,
            "data": material.data,
            "ontology": material.ontology.fingerprint,
            "samples": len(material.annotated(stage.period, stage.annotation).newest.indices),
            "best_step": training.best_step,
            "validation_score": training.best_score if judge.has_validation else None,
            "validation": judge.validation(network),
            "test": judge.test(network),  # read once, here
            "pseudo_labels": {name: last[name] for name in ("kept", "agreement") if name in last},
            "seed": stage.seed,
            "seconds": training.seconds,
            "images_per_second": training.images / training.step_seconds,
            "device": fabric.device.type,
            "processes": fabric.world_size,
            "threads": torch.get_num_threads(),
            "packages": {name: importlib.metadata.version(name) for name in _PACKAGES},
        }
        if leads:
            weights = {name: tensor.cpu().contiguous() for name, tensor in network.state_dict().items()}
            write_bytes(folder / "model.safetensors", save(weights))
            if material.task == "segmentation" and result["test"] is not None:
                write_bytes(folder / "overlays.png", overlay_sheet(judge, network.eval()))
            content = json.dumps(material.ontology.to_dict(), ensure_ascii=False).encode()
            store.keep_ontology(material.ontology.fingerprint, content)
            write_bytes(folder / "bundle.json", describe(stage, judge, network).write().encode())
            write_bytes(folder / "result.json", json.dumps(result, indent=1).encode())
            write_bytes(folder / "summary.json", json.dumps(summarise(stage.config(), result)).encode())
            store.complete(stage.fingerprint)
    fabric.barrier()


def _complete_diverged(stage: Stage, store: Store, folder: Path, leads: bool, problem: str) -> None:
    if leads:
        result = {"stage": str(stage), "version": stage.version, "diverged": problem, "seed": stage.seed}
        nothing = dict.fromkeys(("validation_score", "validation", "test", "seconds"))
        write_bytes(folder / "result.json", json.dumps(result | nothing).encode())
        store.complete(stage.fingerprint)


def _train(
    stage: Stage, training: Training, folder: Path, machine: Machine, fabric: Fabric, watch: Watch
) -> dict[str, float]:
    """Train to the end, or until asked to stop, saving now and then; return the last means."""
    save_every = seconds_between_checkpoints()
    saved, means = time.monotonic(), _last_means(folder / "metrics.jsonl")
    leads = fabric.is_global_zero
    with (
        (folder / "metrics.jsonl").open("a") if leads else nullcontext(None) as metrics,
        events(folder, training.step) if leads else nullcontext(None) as note,
    ):
        for report in training.run():
            if leads:
                watch(stage, report)
            if report.means:
                means = report.means
                if metrics is not None and note is not None:
                    line: dict[str, Any] = {
                        "step": report.step,
                        "score": report.score,
                        "learning_rate": report.learning_rate,
                    }
                    line |= {"means": means}
                    try:
                        metrics.write(json.dumps(line) + "\n")
                        metrics.flush()
                    except OSError as error:
                        raise LecoError(f"{metrics.name}: cannot be written: {error.strerror}") from None
                    note(line)
            # All processes stop after the same step.
            stop = bool(fabric.all_reduce(torch.tensor(float(machine.stop())), reduce_op="sum"))
            if leads and (stop or time.monotonic() - saved > save_every):
                write_checkpoint(folder, training.checkpoint())
                machine.saved(folder)
                saved = time.monotonic()
            if stop:
                raise Stopped
    return means


def seconds_between_checkpoints() -> float:
    """Half a minute, or what LECO_SAVE_EVERY says."""
    text = os.environ.get("LECO_SAVE_EVERY", "30")
    try:
        seconds = float(text)
    except ValueError:
        seconds = math.nan
    if not seconds >= 0:
        raise LecoError(f"LECO_SAVE_EVERY={text}: say a number of seconds, such as 30")
    return seconds


def _last_means(metrics: Path) -> dict[str, float]:
    """Of a run that was stopped between its last step and its result."""
    lines = metrics.read_text().splitlines() if metrics.is_file() else []
    means: dict[str, float] = json.loads(lines[-1])["means"] if lines else {}
    return means


def forget_after(metrics: Path, step: int) -> None:
    """Drop the lines that a killed run wrote after its last checkpoint: those steps are made again."""
    if metrics.is_file():
        kept = [line for line in metrics.read_bytes().splitlines(keepends=True) if 0 <= _step(line) <= step]
        write_bytes(metrics, b"".join(kept))


def _step(line: bytes) -> int:
    """The step of a whole line of metrics, -1 for a broken one."""
    try:
        return int(json.loads(line)["step"]) if line.endswith(b"\n") else -1
    except (ValueError, KeyError, TypeError):
        return -1


def finishing(stage: Stage, material: Material, job: Job) -> Finish:
    """What is done to a trained network before it is scored, and kept: another head, adjusted logits."""
    gaussian, strength = stage.training.head == "gaussian", stage.training.adjust
    counts = newest_counts(stage, material) if strength else None
    if counts is not None and not counts.any():
        raise LecoError(
            f"training.adjust: nothing is labelled in {stage.version}, so no class is frequent; set it to 0"
        )

    fits: list[Head] = []  # where features never change, one does

    def finish(network: AnyNetwork) -> AnyNetwork:
        if gaussian:
            if not fits or (stage.strategy != "freeze" and any(True for _ in network.backbone.parameters())):
                fits[:] = [fit_head(network, job)]
            network = with_head(network, *fits)
        return network if counts is None else adjusted(network, counts, strength)

    return finish


def newest_counts(stage: Stage, material: Material) -> Tensor:
    """(classes,): how many of the newest labels that a stage learns from are of each class."""
    newest = material.annotated(stage.period, stage.annotation).newest
    classes = len(material.until(stage.period).newest)
    return class_counts(material.pool.labels[stage.version], newest.indices, classes)


def make_training(
    stage: Stage, material: Material, store: Store, machine: Machine, fabric: Fabric, judge: Judge
) -> tuple[Training, AnyNetwork, Finish]:
    """All that a stage needs, ready to run, the network that it trains, and what is done to that in the end."""
    teacher = None if stage.teacher is None else load_network(stage.teacher, material, store)
    job = make_job(stage, material, machine.workers, fabric, teacher)
    if stage.training.balance:
        balance_teacher(job)
    network = make_network(stage, material, previous_network(stage, material, store))
    finish = finishing(stage, material, job)
    banked = on_features(job, network, stage.training.draws_a_view)
    backbone = network.backbone

    def score(trained: nn.Module) -> float:
        assert isinstance(trained, AnyNetwork)
        if banked is not None:
            assert isinstance(trained, Network)
            trained = trained.on(backbone)
        return judge.score(finish(trained))

    return Training(*(banked or (job, network)), score if judge.has_validation else None), network, finish


def make_job(stage: Stage, material: Material, workers: int, fabric: Fabric, teacher: nn.Module | None) -> Job:
    """What a stage does in its steps, whatever network it does that to."""
    settings = stage.training
    annotated = material.annotated(stage.period, stage.annotation)
    summands = terms(stage.method, settings.settings())
    if not any(request.part == "history" for term in summands for request in term.needs):
        annotated = replace(annotated, history=())
    steps = Steps(
        material.pool,
        annotated,
        material.until(stage.period).evidence(),
        # Without history, the whole batch is new: every method sees the same number of images (appendix E).
        settings.batch_size // 2 if annotated.history else settings.batch_size,
        stage.seed,
        settings.steps,
        fabric.global_rank,
        fabric.world_size,
        JointCrop(settings.base_size, settings.crop, settings.scale) if material.task == "segmentation" else None,
        settings.mask_contradictions,
    )
    views = material.views
    if material.task == "segmentation" and stage.method.pseudo == "fixmatch":
        views = replace(views, strong=photometric)  # something must tell the strong view from the weak one
    return Job(
        steps,
        summands,
        views,
        material.normalise,
        stage.strategy,
        settings.optimisation(),
        stage.seed,
        teacher,
        fabric,
        workers,
    )


@contextmanager
def stoppable() -> Iterator[Callable[[], bool]]:
    """Yield a question: has Ctrl-C, or a scheduler's SIGTERM, asked to stop? A second one stops at once."""
    asked: list[int] = []

    def ask(number: int, _: object) -> None:
        if asked:
            raise KeyboardInterrupt
        asked.append(number)

    before = {number: signal.signal(number, ask) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield lambda: bool(asked)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
