"""Bundles of stages: the description stored with a stage, and the bundle written from it."""

from collections.abc import Sequence
from pathlib import Path

from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

import leco
from leco.dataset import Periods
from leco.errors import LecoError
from leco.evaluation.calibration import Record
from leco.experiments.stages import Stage
from leco.experiments.store import Store
from leco.modalities import MODALITIES
from leco.model.bundle import write_bundle
from leco.model.description import DESCRIPTION, FORMAT, Description, Metrics, Trial, read_description
from leco.models.backbones import build_backbone
from leco.models.names import top_of, trunk_of
from leco.models.network import AnyNetwork
from leco.models.weights import find_weights
from leco.ontology.files import load
from leco.records import CONFIG, Config, checked_stage, read_config


def describe(stage: Stage, periods: Periods, network: AnyNetwork, calibration: dict[str, Record]) -> Description:
    """Return the `bundle.json` of a trained stage."""
    modality = periods.modality
    ontology = periods.until(stage.period)
    mean, std = modality.statistics(periods.normalise)
    annotated = periods.annotated(stage.period, stage.annotation)
    # Of whole images, nothing is cut off.
    shape = periods.shape if stage.training.views.whole and periods.views.whole else periods.raw_shape
    samples = {stage.version: len(annotated.newest.indices)}
    for part in annotated.history:  # samples of the newest version in the history have no label
        name = "unlabelled" if part.version == stage.version else part.version
        samples[name] = samples.get(name, 0) + len(part.indices)
    module = MODALITIES.module(modality.name)
    sizes = modality.bundled(max(shape, periods.shape, key=max), stage.training.segmentation)
    return Description(
        format=FORMAT,
        leco=leco.__version__,
        name=periods.name,
        task=modality.name,
        model=stage.training.network.backbone,
        heads=network.versions,
        shape=tuple(periods.shape),
        side=sizes["side"],
        window=sizes["window"],
        mean=tuple(mean),
        std=tuple(std),
        versions=tuple(version.name for version in ontology.versions),
        trained=stage.version,
        ontology=ontology.fingerprint,
        evaluated=periods.evaluated if stage.version == periods.ontology.newest.name else (),
        samples=samples,
        held_out={"validation": len(annotated.validation.indices), "test": len(periods.tested(stage.period))},
        training=stage.config(),
        modules=(module,) if module else (),
        calibration=calibration,
    )


def bundle_stage(
    store: Store, fingerprint: str, target: Path, *, trial: str = "", trials: Sequence[Trial] = ()
) -> None:
    """Write the bundle of a complete stage from the store alone.

    A stage that was trained on its validation samples takes its calibration from the stage `trial`, which was not.
    """
    result = store.require(fingerprint)
    folder = store.folder(fingerprint)
    if result.diverged:
        raise LecoError(f"{folder}: the stage diverged and has no model; choose another stage")
    if not (folder / DESCRIPTION).is_file():
        raise LecoError(f"{folder}: has no {DESCRIPTION}; delete the folder and train the stage again")
    store.check_weights(fingerprint)
    checked_stage(folder, CONFIG)
    description = read_description(folder)
    calibration = read_description(store.folder(trial)).calibration if trial else description.calibration
    description = description.model_copy(update={"calibration": calibration, "trials": tuple(trials)})
    try:
        ontology = load(store.ontologies / f"{result.ontology}.json").until(description.newest)
    except LecoError as error:
        raise LecoError(f"{error}; run the same experiment again to write it anew") from None
    if ontology.fingerprint != description.ontology:
        raise LecoError(f"{store.ontologies / result.ontology}.json: is not the ontology that {folder} was trained for")
    try:
        weights = load_file(store.weights(fingerprint))
    except (SafetensorError, OSError) as error:
        raise LecoError(f"{store.weights(fingerprint)}: cannot be read: {error}") from None
    weights = _with_backbone(weights, description, read_config(folder / CONFIG), result.feature_scale)
    metrics = Metrics(validation=result.validation, test=result.test)
    write_bundle(target, description, ontology, weights, metrics)


def _with_backbone(
    heads: dict[str, Tensor], description: Description, config: Config, feature_scale: float
) -> dict[str, Tensor]:
    """Add the pretrained backbone to heads that were trained on its features; other networks are complete."""
    network = config.training.get("network", {})
    if not network.get("embed"):
        return heads
    found = find_weights(description.model, str(network.get("weights")))
    if found is None or found.digest != config.weights:
        raise LecoError(
            f"{description.model}: the weights on this machine are not those that the heads were trained on; "
            "install them, or delete the stage to train it again"
        )
    backbone = build_backbone(trunk_of(description.model), description.shape, found).state_dict()
    stacked, divided = bool(top_of(description.model)), bool(network.get("frozen_layers"))
    hidden = any(name.startswith("backbone.") for name in heads)
    whole = {f"backbone.{'trunk.' * stacked}{name}": tensor for name, tensor in backbone.items()}
    for name, tensor in heads.items():
        takes_features = name.endswith(".weight") and (name.startswith("backbone.") or not hidden)
        place = name if divided else name.replace("backbone.", "backbone.top.", 1)
        whole[place] = tensor * feature_scale if takes_features else tensor
    return whole


def bundle_place(runs: Path, stage: Stage, method: str = "") -> Path:
    """Default folder for the bundle of a stage, named after a method, by default that of the stage."""
    data = stage.material.rsplit(" ", 1)[0][:40]  # file names have a limited length
    name = f"{data}-{method or stage.method}-{stage.seed}-{stage.fingerprint[:8]}"
    return runs / "bundles" / name.replace("/", "-")
