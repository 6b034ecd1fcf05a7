"""Checks of an experiment on your own data before training: all problems at once."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from leco.data.manifest.manifest import Manifest
from leco.data.manifest_samples import few_samples, fits_memory
from leco.data.vectors import Tick
from leco.dataset import Dataset, ManifestDataset, Periods
from leco.dataset.check import LOOKED_INTO, Checked, check_labels, check_manifest, check_ontology
from leco.dataset.dataset import manifest_periods
from leco.errors import LecoError
from leco.experiments.experiment import Experiment, ExperimentError, File, experiment
from leco.experiments.memory import check_batches
from leco.experiments.stages import Plan, plan
from leco.experiments.timing import Reading, measure_reading
from leco.experiments.train import check_network, inputs_of, misfits
from leco.methods.method import Method
from leco.modalities import MODALITIES, Modality
from leco.model.bundle import Bundle, read_bundle
from leco.ontology.ontology import Ontology

_FEW = 64  # samples to measure with


@dataclass
class CheckedExperiment(Checked):
    """Findings about an experiment before it is run."""

    experiment: Experiment | None = None
    start: Bundle | None = None  # the model to start from, if one is given and complete
    periods: Periods | None = None  # with a few samples in place of all
    plan: Plan | None = None
    reading: Reading | None = None


def check(
    source: str,
    settings: dict[str, str],
    most: int | None = LOOKED_INTO,
    tick: Tick = lambda *_: None,
    start: Path | None = None,
    *,
    device: str = "auto",
) -> CheckedExperiment:
    """Check the experiment, its ontology, its manifest and its start, first separately and then together.

    At most `most` images are decoded. `start` and `device` are those of `leco run`.
    """
    found = CheckedExperiment(Path(source))
    try:
        own, named = _own_data(Path(source))
    except LecoError as error:
        found.add(found.problems, "experiment", str(error))
        return found
    _check_start(found, start or named)
    try:
        found.experiment = experiment(source, {"start": start}, settings)
    except ExperimentError as error:
        found.add(found.problems, "experiment", *error.problems)
    except LecoError as error:
        found.add(found.problems, "experiment", str(error))
    if isinstance(own.get("ontology"), Path):
        check_ontology(found, own["ontology"])
    if isinstance(own.get("manifest"), Path):
        root = own["root"] if isinstance(own.get("root"), Path) else own["manifest"].parent
        check_manifest(found, own["manifest"], root, most, tick)
    if found.ontology and found.manifest:
        history = found.experiment is None or found.experiment.method != str(Method())
        check_labels(found, found.ontology, found.manifest, history)
    if found.experiment and found.ontology and found.manifest:
        _check_training(found, found.experiment, found.ontology, found.manifest, device)
    elif found.experiment:
        _check_apart(found, found.experiment)
    return found


def _own_data(source: Path) -> tuple[dict[str, Any], Path | None]:
    """Return the data section of an experiment, valid or not, and the model it starts from."""
    values = File.read(source).values
    own = values.get("data")
    if "benchmark" in values or not isinstance(own, dict):
        raise LecoError(f"{source}: has no data of your own to check; add `data` with `manifest` and `ontology`")
    return own, values["start"] if isinstance(values.get("start"), Path) else None


def _check_start(found: CheckedExperiment, folder: Path | None) -> None:
    """Check that the model to start from exists and is complete."""
    try:
        if folder is not None:
            bundle = read_bundle(folder)
            bundle.network()
            found.start = bundle
    except LecoError as error:
        found.add(found.problems, "start", str(error))


def _modality(wanted: Experiment) -> Modality:
    """Return the modality of your own data, or images if the manifest cannot be read."""
    try:
        return wanted.dataset(Path()).modality
    except LecoError:
        return MODALITIES["classification"]


def _check_apart(found: CheckedExperiment, wanted: Experiment) -> None:
    """Check the backbone and the start without data."""
    modality = _modality(wanted)
    try:
        modality.check_backbone(wanted.training.network.backbone)
    except LecoError as error:
        found.add(found.problems, "experiment", f"training.network.backbone: {error}")
    if found.start is not None:
        mine = {"task": modality.name, "backbone": wanted.training.network.backbone}
        found.add(found.problems, "start", *misfits(found.start, found.ontology, mine))


def _check_training(
    found: CheckedExperiment, wanted: Experiment, ontology: Ontology, manifest: Manifest, device: str
) -> None:
    """Plan the stages, and check that the network takes the inputs, and that batches fit into memory."""
    assert wanted.data is not None
    more: Any = {"root": wanted.data.root, "image_size": wanted.data.image_size, "modality": wanted.data.modality}
    data: ManifestDataset = Dataset.from_manifest(wanted.data.manifest, ontology, **more)
    try:
        lazy = data.modality.read(manifest, ontology, data.image_size)
        samples = few_samples(manifest, lazy, _FEW)
        periods = manifest_periods(data, manifest, samples, wanted.seed, wanted.training.network)
    except LecoError as error:
        found.add(found.problems, "labels", str(error))
        _check_apart(found, wanted)
        return
    if found.start is not None:
        wrong = misfits(found.start, ontology, inputs_of(wanted, periods))
        found.add(found.problems, "start", *wrong)
        if not wrong:
            periods = periods.started(found.start, found.start.description.normaliser())
    found.periods = periods
    try:
        found.plan = plan(wanted, periods)
    except LecoError as error:
        about = "experiment" if str(error).startswith("training.") else "start"
        found.add(found.problems, about, str(error))
        return
    found.reading = measure_reading(lazy, fits_memory(manifest, ontology, data.image_size))
    try:
        check_network(found.plan, periods)
    except LecoError as error:
        place = "" if str(error).startswith("training.") else "training.network.backbone: "
        found.add(found.problems, "experiment", f"{place}{error}")
        return
    try:
        check_batches(found.plan, periods, device)
    except LecoError as error:
        found.add(found.problems, "experiment", str(error))


def planned(found: CheckedExperiment) -> list[dict[str, Any]]:
    """Return the stages that a run would train, with their numbers of samples and steps."""
    if found.plan is None or found.periods is None:
        return []
    rows = []
    for stage in found.plan.stages:
        annotated = found.periods.annotated(stage.period, stage.annotation)
        history = [] if stage.method == Method() else annotated.history
        batches = stage.training.batches
        rows.append(
            {
                "stage": str(stage),
                "version": stage.version,
                "steps": batches.steps,
                "images": batches.steps * batches.size,
                "new": len(annotated.newest.indices),
                "history": sum(len(part.indices) for part in history),
                "validation": len(annotated.validation.indices),
                "test": len(found.periods.tested(stage.period)),
            }
        )
    return rows
