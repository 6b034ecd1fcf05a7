"""Training of one stage, from its start or last checkpoint to its result."""

import importlib.metadata
import json
import shutil
import time
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from lightning_fabric import Fabric
from safetensors.torch import save
from torch import Tensor, nn

from leco.data.batches import Steps
from leco.data.benchmarks.benchmark import budget_of
from leco.dataset import Periods
from leco.devices import keep_memory, precision_of, seed_dropout
from leco.errors import DivergedError, LecoError
from leco.evaluation.evaluate import Judge, as_record
from leco.experiments.bundles import describe
from leco.experiments.embedded import Scaled, network_on_features, on_stored_features
from leco.experiments.machine import Machine
from leco.experiments.masking import masks
from leco.experiments.recording import recording
from leco.experiments.shrinking import shrunken
from leco.experiments.stages import Stage, choose
from leco.experiments.store import AnyStore, Store
from leco.io import write_bytes
from leco.methods.terms import terms
from leco.models.heads import hand_over
from leco.models.lora import add_adapters, merge
from leco.models.network import AnyNetwork, Network
from leco.models.weights import Weights, find_weights
from leco.records import CONFIG, FORMAT, METRICS_LINES, SUMMARY, Config, Result, forget_after, parse
from leco.training.checkpoint import read_checkpoint
from leco.training.finish import HEADS, Head, adjusted, balance_teacher, fit_head, with_head
from leco.training.frozen import on_features
from leco.training.loop import Job, Report, Training
from leco.training.priors import class_counts

_PACKAGES = ("leco", "torch", "timm", "numpy")
Watch = Callable[[Stage, Report], object]
Finish = Callable[[AnyNetwork], AnyNetwork]


def run_stage(
    stage: Stage,
    periods: Periods,
    store: AnyStore,
    machine: Machine,
    watch: Watch = lambda *_: None,
    *,
    may_diverge: bool = False,
) -> Result:
    """Train one stage, or continue from its checkpoint, and return its result; a complete one is only looked up.

    A stage that `may_diverge`, since there are others to choose from, is then complete without a model.
    """
    fabric = machine.fabric(stage.training.network.precision, stage.training.network.shard)
    if fabric.device.type == "cpu" and isinstance(store, Store):
        keep_memory()
    leads = fabric.is_global_zero
    if not fabric.broadcast(store.result(stage.fingerprint) is not None):
        partial = nullcontext(store.partial / stage.fingerprint if isinstance(store, Store) else None)
        with store.working(stage.fingerprint) if leads else partial as folder:
            if not fabric.broadcast(store.result(stage.fingerprint) is not None):
                if leads and isinstance(store, Store):
                    store.set_aside(stage.fingerprint, machine.say)
                _train_stage(
                    stage, periods, store, machine, fabric, folder=folder, watch=watch, may_diverge=may_diverge
                )
            elif leads and folder is not None:  # another process has just completed it
                shutil.rmtree(folder, ignore_errors=True)
        fabric.barrier()
    return store.require(stage.fingerprint)


def _train_stage(
    stage: Stage,
    periods: Periods,
    store: AnyStore,
    machine: Machine,
    fabric: Fabric,
    *,
    folder: Path | None,
    watch: Watch,
    may_diverge: bool,
) -> None:
    """Train to the end, or until asked to stop, evaluate the best network, and keep it with its result."""
    if stage.teacher is not None and (fate := store.require(stage.teacher.fingerprint).diverged):
        _complete_diverged(stage, store, fabric, f"its teacher: {fate}")
        return
    periods = replace(periods, views=periods.views.changed(stage.training.views))
    held_out = periods.annotated(stage.period, stage.annotation).validation
    seen = embed_stage(stage, periods, store, machine) if stage.on_features else shrunken(periods, store, machine)
    judge = Judge(seen, stage.period, held_out, fabric, stage.training.segmentation.window, machine.workers)
    training, network, finish = make_training(stage, store, machine, judge)
    if folder is not None:
        _resume(stage, periods, training, folder, machine)
    try:
        with recording(training, folder, machine) as record:
            for report in training.run():
                if fabric.is_global_zero:
                    watch(stage, report)
                record(report)
    except DivergedError as problem:
        if not may_diverge:
            raise
        _complete_diverged(stage, store, fabric, str(problem))
        return
    training.restore_best()  # and with it the heads of `network`
    network = training.whole or network
    merge(network.backbone)
    started = time.perf_counter()
    network = finish(network).eval()  # `training.best` stays as it is, for those who resume
    seconds = training.seconds + time.perf_counter() - started
    calibration = {} if seen.modality.has_masks else judge.calibration(network)
    right = calibration[stage.version].right if stage.version in calibration else None
    result = _result(stage, judge, training, network, seconds=seconds, validation_right=right)
    store.remember(stage.fingerprint, network)
    if not fabric.is_global_zero:
        return
    if folder is not None and isinstance(store, Store):
        weights = {name: tensor.cpu().contiguous() for name, tensor in network.state_dict().items()}
        write_bytes(folder / "model.safetensors", save(weights))
        for name, content in pictures(judge, network).items():
            write_bytes(folder / name, content)
        store.keep_ontology(periods.ontology)
        describe(stage, periods, network, calibration).write(folder / "bundle.json")
        result.summary(_config(stage)).write(folder / SUMMARY)
    store.complete(stage.fingerprint, result)


def embed_stage(stage: Stage, periods: Periods, store: AnyStore, machine: Machine) -> Periods:
    """Return the samples of a stage as features of its backbone, computed now or found in the store."""
    assert isinstance(store, Store)  # features are kept in files
    weights = starting_weights(stage)
    assert weights is not None
    unlabelled = stage.annotation == "with-unlabelled"
    return on_stored_features(periods, stage.training.network, weights, store, machine, unlabelled=unlabelled)


def _config(stage: Stage, **more: str) -> Config:
    return parse(Config, json.dumps(stage.config() | more), CONFIG)


def _result(stage: Stage, judge: Judge, training: Training, network: AnyNetwork, **more: Any) -> Result:
    """The scores of a trained network, and the circumstances of its training; the test split is read once, here."""
    periods, fabric = judge.periods, judge.fabric
    return Result(
        format=FORMAT,
        stage=str(stage),
        version=stage.version,
        metric=periods.modality.metric,
        data=periods.data,
        ontology=periods.ontology.fingerprint,
        samples=len(periods.annotated(stage.period, stage.annotation).newest.indices),
        best_step=training.best_step,
        validation_score=training.best_score if judge.has_validation else None,
        validation=as_record(judge.validation(network)),
        test=as_record(judge.test(network)),
        budget=budget_of(periods.name, stage.training),
        labels={} if periods.modality.has_masks else _labels(stage, periods),
        pseudo_labels={name: training.means[name] for name in ("kept", "agreement") if name in training.means},
        seed=stage.seed,
        feature_scale=periods.normalise.factor if isinstance(periods.normalise, Scaled) else 1.0,
        images_per_second=training.images / training.step_seconds,
        device=fabric.device.type,
        precision=precision_of(fabric),
        processes=fabric.world_size,
        sharded=training.whole is not None,
        parts=training.thrift.parts,
        threads=torch.get_num_threads(),
        packages={name: importlib.metadata.version(name) for name in _PACKAGES},
        **more,
    )


def pictures(judge: Judge, network: AnyNetwork) -> dict[str, bytes]:
    """Return pictures of predictions on the test set, if the modality has any."""
    tested = judge.periods.tested(judge.period)
    if not judge.periods.modality.has_masks or not len(tested):
        return {}
    from leco.experiments.overlays import overlay_sheet

    return {"overlays.png": overlay_sheet(judge, network.eval())}


def _resume(stage: Stage, periods: Periods, training: Training, folder: Path, machine: Machine) -> None:
    checkpoint, problems = read_checkpoint(folder, training.misfit)
    if checkpoint is not None:
        training.resume(checkpoint)
    if training.job.fabric.is_global_zero:
        for problem in problems:
            machine.say(f"{problem}; continuing from step {training.step}")
        _config(stage, source=periods.source, learned=stage.untested.fingerprint).write(folder / CONFIG)
        forget_after(folder / METRICS_LINES, training.step)


def _complete_diverged(stage: Stage, store: AnyStore, fabric: Fabric, problem: str) -> None:
    if fabric.is_global_zero:
        result = Result(format=FORMAT, stage=str(stage), version=stage.version, diverged=problem, seed=stage.seed)
        store.complete(stage.fingerprint, result)


def finishing(stage: Stage, periods: Periods, job: Job) -> Finish:
    """Return the changes to a trained network before it is evaluated and stored: another head, adjusted logits."""
    fit, strength = HEADS[stage.training.finish.head], stage.training.finish.adjust
    counts = newest_counts(stage, periods) if strength else None
    if counts is not None and not counts.any():
        raise LecoError(
            f"training.finish.adjust: no sample is labelled in {stage.version}, so class frequencies are unknown; "
            "set it to 0"
        )

    fits: list[Head] = []  # cache: if the features never change, one fit is enough

    def finish(network: AnyNetwork) -> AnyNetwork:
        if fit is not None:
            if not fits or (stage.strategy != "freeze" and any(True for _ in network.backbone.parameters())):
                fits[:] = [fit_head(network, job, fit)]
            network = with_head(network, *fits)
        return network if counts is None else adjusted(network, counts, strength)

    return finish


def _labels(stage: Stage, periods: Periods) -> dict[str, int]:
    """Number of newest labels of each class that a stage trains on, by the names that reports use."""
    names = periods.until(stage.period).newest.handles
    return dict(zip(names, newest_counts(stage, periods).tolist(), strict=True))


def newest_counts(stage: Stage, periods: Periods) -> Tensor:
    """Number of newest labels of each class that a stage trains on: (classes,)."""
    newest = periods.annotated(stage.period, stage.annotation).newest
    return class_counts(periods.pool.labels[stage.version], newest.indices, len(periods.until(stage.period).newest))


def make_training(stage: Stage, store: AnyStore, machine: Machine, judge: Judge) -> tuple[Training, AnyNetwork, Finish]:
    """Prepare the training of a stage; return it, the network that it trains, and the final changes to it."""
    periods = judge.periods
    teacher = None if stage.teacher is None else stored_network(stage.teacher, periods, store)
    job = make_job(stage, periods, machine.workers, judge.fabric, teacher)
    if stage.training.pseudo_labels.balance:
        balance_teacher(job)
    network = make_network(stage, periods, previous_network(stage, periods, store))
    finish = finishing(stage, periods, job)
    banked = on_features(job, network, stage.training.transfer)
    backbone = network.backbone

    def score(trained: nn.Module) -> float:
        assert isinstance(trained, AnyNetwork)
        if banked is not None:
            assert isinstance(trained, Network)
            trained = trained.on(backbone)
        return judge.score(finish(trained))

    training = Training(*(banked or (job, network)), score if judge.has_validation else None, machine.say)
    return training, network, finish


def make_job(stage: Stage, periods: Periods, workers: int, fabric: Fabric, teacher: nn.Module | None) -> Job:
    """Prepare the steps of a stage, independent of the network."""
    settings, modality = stage.training, periods.modality
    if stage.on_features:  # of the frozen layers
        settings = settings.change(network={"frozen_layers": 0.0})
    annotated = periods.annotated(stage.period, stage.annotation)
    summands = terms(stage.method, settings.pseudo_labels, settings.history, settings.loss)
    if not any(request.part == "history" for term in summands for request in term.needs):
        annotated = replace(annotated, history=())
    steps = Steps(
        periods.pool,
        annotated,
        periods.until(stage.period).evidence(),
        # Without history, the whole batch is new: every method gets the same number of images (appendix E).
        settings.batches.size // 2 if annotated.history else settings.batches.size,
        stage.seed,
        steps=settings.batches.steps,
        rank=fabric.global_rank,
        ranks=fabric.world_size,
        crop=modality.crop(settings.segmentation),
        masks=masks(stage, periods),
    )
    return Job(
        steps,
        summands,
        modality.training_views(periods.views, stage.method, settings.views),
        periods.normalise,
        stage.strategy,
        settings=settings,
        seed=stage.seed,
        teacher=teacher,
        fabric=fabric,
        workers=workers,
    )


def make_network(stage: Stage, periods: Periods, previous: AnyNetwork | None) -> AnyNetwork:
    """Build the network of a stage, initialised from the previous one, with adapters if they are trained."""
    seed_dropout(stage.seed)  # and everything drawn on the CPU; `torch.manual_seed` would initialise other devices
    network = build_network(stage, periods, starting_weights(stage))
    for module in network.modules():
        if isinstance(module, nn.modules.batchnorm._BatchNorm):
            module.momentum = stage.training.network.norm_momentum
    if previous is not None:
        hand_over(previous, network, periods.until(stage.period), stage.strategy, stage.head_start)
    add_adapters(network.backbone, stage.training.network.lora, periods.shape)
    return network


def starting_weights(stage: Stage) -> Weights | None:
    """Return the weights that the network of a stage starts from; None if they are random, or those of a stage."""
    settings = stage.training.network
    found = find_weights(settings.backbone, settings.weights)
    if found is not None and found.digest != stage.weights:
        raise LecoError(f"{found.path}: changed since the run was planned; run the same command again")
    return found


def build_network(stage: Stage, periods: Periods, weights: Weights | None = None) -> AnyNetwork:
    """Build a network with the heads of a stage: one, or for joint training one per version."""
    ontology = periods.until(stage.period)
    versions = ontology.versions if stage.method.needs_old_heads else (ontology.newest,)
    settings = stage.training.network
    if stage.on_features and not periods.modality.embeds:  # the samples are features already
        return network_on_features(settings, periods, versions, weights)
    return periods.modality.network(settings.backbone, periods.shape, versions, weights)


def previous_network(stage: Stage, periods: Periods, store: AnyStore) -> AnyNetwork | None:
    """Return the network that a stage starts from, if any: that of a bundle, or of the best previous stage."""
    if periods.start is not None and stage.start:
        return periods.start.network()
    return stored_network(choose(stage.previous, store), periods, store) if stage.previous else None


def stored_network(stage: Stage, periods: Periods, store: AnyStore) -> AnyNetwork:
    """Return the network of a complete stage."""
    name = stage.training.network.backbone
    return store.network(stage.fingerprint, lambda: build_network(stage, periods), name)
