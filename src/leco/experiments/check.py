"""Whether an experiment on own data can be run: all that is wrong with it at once, before anything is trained."""

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
from leco.experiments.run import build_network
from leco.experiments.stages import Plan, plan
from leco.experiments.timing import Reading, measure_reading
from leco.experiments.train import inputs_of, misfits
from leco.methods.method import Method
from leco.modalities import MODALITIES, Modality
from leco.model.bundle import Bundle, read_bundle
from leco.ontology.ontology import Ontology

_FEW = 64  # samples to measure with


@dataclass
class CheckedExperiment(Checked):
    """All that is known of an experiment before it is run."""

    experiment: Experiment | None = None
    start: Bundle | None = None  # the model that training would start from, if it is given and whole
    periods: Periods | None = None  # with a few samples that stand for all
    plan: Plan | None = None
    reading: Reading | None = None


def check(
    source: str,
    settings: dict[str, str],
    most: int | None = LOOKED_INTO,
    tick: Tick = lambda *_: None,
    start: Path | None = None,
) -> CheckedExperiment:
    """Check the experiment, its ontology, its manifest and its start, each on its own and then together.

    Of more than `most` images, only so many are decoded. `start` is as of `leco run`.
    """
    found = CheckedExperiment(Path(source))
    try:
        own, named = _own_data(Path(source))
    except LecoError as error:
        found.say(found.problems, "experiment", str(error))
        return found
    _check_start(found, start or named)
    try:
        found.experiment = experiment(source, {"start": start}, settings)
    except ExperimentError as error:
        found.say(found.problems, "experiment", *error.problems)
    except LecoError as error:
        found.say(found.problems, "experiment", str(error))
    if isinstance(own.get("ontology"), Path):
        check_ontology(found, own["ontology"])
    if isinstance(own.get("manifest"), Path):
        root = own["root"] if isinstance(own.get("root"), Path) else own["manifest"].parent
        check_manifest(found, own["manifest"], root, most, tick)
    if found.ontology and found.manifest:
        history = found.experiment is None or Method.parse(found.experiment.method) != Method()
        check_labels(found, found.ontology, found.manifest, history)
    if found.experiment and found.ontology and found.manifest:
        _check_training(found, found.experiment, found.ontology, found.manifest)
    elif found.experiment:
        _check_apart(found, found.experiment)
    return found


def _own_data(source: Path) -> tuple[dict[str, Any], Path | None]:
    """The data that an experiment names, right or wrong, and the model it starts from."""
    values = File.read(source).values
    own = values.get("data")
    if "benchmark" in values or not isinstance(own, dict):
        raise LecoError(f"{source}: has no own data (`data` with `manifest` and `ontology`), which is what is checked")
    return own, values["start"] if isinstance(values.get("start"), Path) else None


def _check_start(found: CheckedExperiment, folder: Path | None) -> None:
    """Whether the model that training would start from exists, and is whole."""
    try:
        if folder is not None:
            bundle = read_bundle(folder)
            bundle.network()
            found.start = bundle
    except LecoError as error:
        found.say(found.problems, "start", str(error))


def _modality(wanted: Experiment) -> Modality:
    """The modality of own data; images, if their manifest cannot be read."""
    try:
        return wanted.dataset(Path()).modality
    except LecoError:
        return MODALITIES["classification"]


def _check_apart(found: CheckedExperiment, wanted: Experiment) -> None:
    """The backbone and the start, where nothing can be tried."""
    modality = _modality(wanted)
    try:
        modality.check_backbone(wanted.training.network.backbone)
    except LecoError as error:
        found.say(found.problems, "experiment", f"training.network.backbone: {error}")
    if found.start is not None:
        mine = {"task": modality.name, "backbone": wanted.training.network.backbone}
        found.say(found.problems, "start", *misfits(found.start, found.ontology, mine))


def _check_training(found: CheckedExperiment, wanted: Experiment, ontology: Ontology, manifest: Manifest) -> None:
    """The stages that will be trained, and whether the network takes such inputs."""
    assert wanted.data is not None
    more: Any = {"root": wanted.data.root, "image_size": wanted.data.image_size, "modality": wanted.data.modality}
    data: ManifestDataset = Dataset.from_manifest(wanted.data.manifest, ontology, **more)
    try:
        lazy = data.modality.read(manifest, ontology, data.image_size)
        samples = few_samples(manifest, lazy, _FEW)
        periods = manifest_periods(data, manifest, samples, wanted.seed, wanted.training.network)
    except LecoError as error:
        found.say(found.problems, "labels", str(error))
        _check_apart(found, wanted)
        return
    if found.start is not None:
        wrong = misfits(found.start, ontology, inputs_of(wanted, periods))
        found.say(found.problems, "start", *wrong)
        if not wrong:
            periods = periods.started(found.start, found.start.description.normaliser())
    found.periods = periods
    try:
        found.plan = plan(wanted, periods)
    except LecoError as error:
        about = "experiment" if str(error).startswith("training.") else "start"
        found.say(found.problems, about, str(error))
        return
    found.reading = measure_reading(lazy, fits_memory(manifest, ontology, data.image_size))
    try:
        build_network(found.plan.stages[0], periods)
    except LecoError as error:
        found.say(found.problems, "experiment", f"training.network.backbone: {error}")


def planned(found: CheckedExperiment) -> list[dict[str, Any]]:
    """The stages that a run would train: on which samples, and for how long."""
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
