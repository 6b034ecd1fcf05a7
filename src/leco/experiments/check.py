"""Whether an experiment on own data can be run: all that is wrong with it at once, before anything is trained."""

from collections import defaultdict
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from leco.data.manifest.checks import SPLITS
from leco.data.manifest.manifest import Manifest, NoRowsError, build_manifest
from leco.data.manifest.problems import Problem
from leco.data.manifest.table import Table, read_table
from leco.data.manifest_samples import few_samples, fits_memory, lazy_samples
from leco.data.masks import MaskCounts, mask_counts
from leco.data.vectors import Tick
from leco.dataset import Material, misfits, own_material
from leco.errors import LecoError
from leco.experiments.experiment import Experiment, ExperimentError, File, experiment, own_task
from leco.experiments.networks import build_network
from leco.experiments.stages import Plan, plan
from leco.experiments.timing import Reading, measure_reading
from leco.methods.method import Method
from leco.model.bundle import Bundle, read_bundle
from leco.models.backbones import check_backbone, check_known
from leco.ontology.files import load_all
from leco.ontology.lint import remarks
from leco.ontology.ontology import Ontology
from leco.ontology.transition import Transition
from leco.ontology.version import Version

if TYPE_CHECKING:
    from leco.data.masks import Tally


LOOKED_INTO = 5_000  # images: a hundred thousand photographs would take minutes
_FEW = 64  # samples to measure with


@dataclass(frozen=True)
class Finding:
    """Something that was found, and how often."""

    about: str  # the experiment, the ontology, the manifest, or the labels
    message: str
    count: int = 1


@dataclass
class Checked:
    """All that is known of an experiment before it is run."""

    file: Path
    problems: list[Finding] = field(default_factory=list)  # it cannot be run
    warnings: list[Finding] = field(default_factory=list)  # it will not be as good as it might be
    notes: list[Finding] = field(default_factory=list)
    experiment: Experiment | None = None
    ontology: Ontology | None = None
    manifest: Manifest | None = None  # without the rows that have a problem
    masks: MaskCounts | None = None  # what is in them, if there are some
    start: Bundle | None = None  # what training would start from, if it is given and whole
    material: Material | None = None  # with a few samples that stand for all
    plan: Plan | None = None
    reading: Reading | None = None

    def say(self, where: list[Finding], about: str, *messages: str) -> None:
        """Add to a list."""
        where += [Finding(about, message) for message in messages]


def check(
    source: str,
    settings: dict[str, str],
    most: int | None = LOOKED_INTO,
    tick: Tick = lambda *_: None,
    start: Path | None = None,
) -> Checked:
    """Look at the experiment, its ontology, its manifest and its start, each on its own and then together.

    Of more than `most` images, only so many are decoded. `start` is as of `leco run`.
    """
    found = Checked(Path(source))
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
        found.ontology, wrong = load_all(own["ontology"])
        found.say(found.problems, "ontology", *wrong)
    if isinstance(own.get("manifest"), Path):
        root = own["root"] if isinstance(own.get("root"), Path) else own["manifest"].parent
        _check_manifest(found, own["manifest"], root, most, tick)
    if found.ontology and found.manifest:
        _check_labels(found, found.ontology, found.manifest)
    if found.experiment and found.ontology and found.manifest:
        _check_training(found, found.experiment, found.ontology, found.manifest)
    elif found.experiment:
        _check_model(found, found.experiment)
        _check_fit(found, found.experiment)
    return found


def _own_data(source: Path) -> tuple[dict[str, Any], Path | None]:
    """What an experiment says of its data, right or wrong, and what it starts from."""
    values = File.read(source).values
    own = values.get("data")
    if "benchmark" in values or not isinstance(own, dict):
        raise LecoError(
            f"{source}: names no own data (`data` with `manifest` and `ontology`), which is what is checked"
        )
    return own, values["start"] if isinstance(values.get("start"), Path) else None


def _check_start(found: Checked, folder: Path | None) -> None:
    """Whether the model that training would start from is there, and whole."""
    try:
        if folder is not None:
            bundle = read_bundle(folder)
            bundle.network()
            found.start = bundle
    except LecoError as error:
        found.say(found.problems, "start", str(error))


def _check_fit(found: Checked, wanted: Experiment) -> None:
    """Whether the start fits what is known of the experiment; the shape of its inputs takes samples to be known."""
    if found.start is None:
        return
    tasks = {"own features": "features", "own masks": "segmentation", "own images": "classification"}
    task = tasks[own_task(wanted.data.manifest if wanted.data else None)]
    mine: dict[str, object] = {"task": task, "backbone": wanted.training.model}
    if found.material is not None:
        mine["input shape"] = tuple(found.material.shape)
    wrong = misfits(found.start, found.ontology, mine)
    found.say(found.problems, "start", *wrong)
    if found.material is not None and not wrong:
        found.material = found.material.started(found.start)


def _check_manifest(found: Checked, path: Path, root: Path, most: int | None, tick: Tick) -> None:
    """Read the manifest; without an ontology, all but its labels can be checked."""
    try:
        table, broken = read_table(path)
        tally: Tally = {}
        ontology = found.ontology or _stand_in(table)
        decode = found.ontology is not None or table.target == "label"
        manifest, problems = build_manifest(
            table, broken, root, ontology, decode=decode, skip_bad=True, tick=tick, most=most, tally=tally
        )
    except NoRowsError as error:
        found.problems += _grouped(path, error.problems.found)
        found.say(found.problems, "manifest", f"{path}: no row is left")
        return
    except LecoError as error:
        headline, *lines = str(error).split("\n")
        found.say(found.problems, "manifest", *([f"{path}: {line.strip()}" for line in lines] or [headline]))
        return
    usable = [p for p in problems.found if found.ontology or p.kind != "bad period"]  # how many there are is not known
    found.problems += _grouped(path, usable)
    found.manifest = manifest
    found.masks = mask_counts(manifest, ontology, tally) if manifest.masks and found.ontology else None
    images = len(set(table["image"])) if table.kind == "image" else 0
    if most is not None and images > most:
        found.say(found.notes, "manifest", f"{path}: {most:,} of {images:,} images were decoded, drawn at random")


def _grouped(path: Path, problems: list[Problem]) -> list[Finding]:
    """Rows with the same fault are one finding, which names the first."""
    groups: dict[tuple[str, str], list[Problem]] = defaultdict(list)
    for problem in problems:
        groups[problem.kind, problem.message].append(problem)
    findings = []
    for same in groups.values():
        more = f" (and {len(same) - 1:,} more such rows)" if len(same) > 1 else ""
        findings.append(Finding("manifest", f"{path}: {same[0]}{more}", len(same)))
    return findings


def _stand_in(table: Table) -> Ontology:
    """An ontology that explains every label, so that the rest of a manifest can be checked without its own."""
    classes = tuple(dict.fromkeys(filter(None, table["label"]))) or ("none",)
    names = dict.fromkeys(filter(None, table["version"])) or {"none": None}
    versions = tuple(Version(name, classes) for name in names)
    same = sparse.eye_array(len(classes), format="csr")
    steps = tuple(Transition(old, new, same) for old, new in pairwise(versions))
    return Ontology("unknown", versions, steps)


def _check_labels(found: Checked, ontology: Ontology, manifest: Manifest) -> None:
    """Whether there are enough labels to learn every class from, and to know how well that went."""
    changes = [ontology.changes(step.old.name, step.new.name) for step in ontology.steps]
    found.say(found.notes, "ontology", *remarks(ontology, changes))
    learns_from_history = found.experiment is None or Method.parse(found.experiment.method) != Method()
    problems, warnings = enough_labels(manifest, ontology, learns_from_history, found.masks)
    found.say(found.problems, "labels", *problems)
    found.say(found.warnings, "labels", *warnings)
    if not (manifest.split == "val").any():
        held_out = "a fifth of each version's training samples is held out to choose a model by"
        found.say(found.notes, "labels", f"there is no val split: {held_out}")


def _check_training(found: Checked, wanted: Experiment, ontology: Ontology, manifest: Manifest) -> None:
    """What will be trained, and whether the model takes such inputs."""
    assert wanted.data is not None
    try:
        lazy = lazy_samples(manifest, ontology, wanted.data.image_size)
        samples = few_samples(manifest, lazy, _FEW)
        found.material = own_material(wanted, wanted.data, ontology, manifest, samples)
    except LecoError as error:
        found.say(found.problems, "labels", str(error))
        _check_model(found, wanted)
        _check_fit(found, wanted)
        return
    _check_fit(found, wanted)
    try:
        found.plan = plan(wanted, found.material)
    except LecoError as error:
        found.say(found.problems, "start", str(error))
        return
    found.reading = measure_reading(lazy, fits_memory(manifest, ontology, wanted.data.image_size))
    try:
        build_network(found.plan.stages[0], found.material, pretrained=False)
    except LecoError as error:
        about = "" if str(error).startswith("training.") else "training.model: "
        found.say(found.problems, "experiment", f"{about}{error}")


def _check_model(found: Checked, wanted: Experiment) -> None:
    """Whether there is such a model, where it cannot be tried."""
    name, segments = wanted.training.model, own_task(wanted.data.manifest if wanted.data else None) == "own masks"
    try:
        if not segments:
            check_backbone(name)
        elif name != "tiny":
            check_known(name, ["tiny"])
    except LecoError as error:
        found.say(found.problems, "experiment", f"training.model: {error}")


def planned(found: Checked) -> list[dict[str, Any]]:
    """The stages that a run would train: what on, and for how long."""
    if found.plan is None or found.material is None:
        return []
    rows = []
    for stage in found.plan.stages:
        annotated = found.material.annotated(stage.period, stage.annotation)
        history = [] if stage.method == Method() else annotated.history
        rows.append(
            {
                "stage": str(stage),
                "version": stage.version,
                "steps": stage.training.steps,
                "images": stage.training.steps * stage.training.batch_size,
                "new": len(annotated.newest.indices),
                "history": sum(len(part.indices) for part in history),
                "validation": len(annotated.validation.indices),
                "test": len(found.material.tested(stage.period)),
            }
        )
    return rows


FEW = 5  # training labels: fewer are hardly enough, as some of them are held out
_SHOWN = 12  # classes


def enough_labels(
    manifest: Manifest, ontology: Ontology, history: bool, masks: MaskCounts | None = None
) -> tuple[list[str], list[str]]:
    """Problems (nothing can be learnt of a class) and warnings; `history` says that older labels are learnt from.

    A class without a newest label can still be learnt from an old one that can mean nothing else. Of masks, the images
    that a class is in count; where not all of them were read, nothing is a problem for sure.
    """
    newest = ontology.newest
    label, note = ("label", "") if masks is None else ("image that shows it", masks.note)
    labels = "labels" if masks is None else "images that show it"
    counts = _counts(manifest, newest, masks)
    exact = _exact_older_labels(manifest, ontology, masks)
    none = [c for c in range(len(newest)) if not counts["train"][c] and not (history and exact[c])]
    old = [c for c in range(len(newest)) if not counts["train"][c] and history and exact[c]]
    few = [c for c in range(len(newest)) if 0 < counts["train"][c] < FEW]
    problems: list[str] = []
    warnings: list[str] = []
    if none:
        remedy = f"label some, or take them out of {newest.name}"
        text = f"{_classes(none)} of {newest.name} without any training {label}{note}"
        (warnings if note else problems).append(f"{text}: {_names(ontology, none)}; {remedy}")
    if old:
        seen = {c: int(exact[c]) for c in old}
        warnings.append(f"{_classes(old)} of {newest.name} with older labels only{note}: {_names(ontology, old, seen)}")
    if few:
        seen = {c: counts["train"][c] for c in few}
        text = f"{_classes(few)} of {newest.name} with fewer than {FEW} training {labels}{note}"
        warnings.append(f"{text}: {_names(ontology, few, seen)}")
    if not any(counts["test"]):
        warnings.append(f"no test sample is labelled in {newest.name}{note}: nobody will know how good the model is")
    elif untested := [c for c in range(len(newest)) if not counts["test"][c]]:
        text = f"{_classes(untested)} of {newest.name} without a test {label}{note}"
        warnings.append(f"{text}, so how well they are known will not be seen: {_names(ontology, untested)}")
    return problems, warnings


def _counts(manifest: Manifest, version: Version, masks: MaskCounts | None) -> dict[str, list[int]]:
    """How many labels of each class there are, or images that show it, in every split."""
    if masks is None:
        return manifest.counts(version)
    return masks.images.get(version.name, {split: [0] * len(version) for split in SPLITS})


def _exact_older_labels(manifest: Manifest, ontology: Ontology, masks: MaskCounts | None) -> NDArray[np.int64]:
    """For every newest class, how many older training labels can mean that class only."""
    found = np.zeros(len(ontology.newest), dtype=np.int64)
    for version in ontology.versions[:-1]:
        table = ontology.transition(ontology.newest.name, version.name).sparse
        counts = np.array(_counts(manifest, version, masks)["train"])
        only = np.bincount(table.indices, minlength=len(version)) == 1
        found += (table > 0).astype(np.int64) @ np.where(only, counts, 0)
    return found


def _classes(some: list[int]) -> str:
    return f"{len(some):,} class{'es' if len(some) > 1 else ''}"


def _names(ontology: Ontology, some: list[int], counts: dict[int, int] | None = None) -> str:
    shown = [f"{ontology.newest.handle(c)!r}" + (f" ({counts[c]:,})" if counts else "") for c in some[:_SHOWN]]
    return ", ".join(shown) + (", …" if len(some) > _SHOWN else "")
