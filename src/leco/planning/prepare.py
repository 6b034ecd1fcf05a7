"""What a plan is made of, for any budget and costs: measured once, and kept."""

import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import torch

from leco.dataset import Material
from leco.errors import LecoError
from leco.experiments.experiment import Experiment
from leco.experiments.run import Machine, Stopped, Watch
from leco.io import write_text
from leco.planning.curves import Curves, fit_curves
from leco.planning.features import Directions, Extractor, Learned, find_extractor
from leco.planning.full import FullTraining
from leco.planning.known import NEWEST, Known, gather_known
from leco.planning.measure import PRIORS, Head, Learner, choose_prior, measure, read_kept

FORMAT = 1  # of what is measured; raised when a change of code changes it
DRAWS = 10  # every newest sample is held out twice
FEWEST_SAMPLES = 10


@dataclass(frozen=True, eq=False)
class Ground:
    """Frozen features of all samples, what is known of them, and the head that suggests labels."""

    material: Material
    known: Known
    extractor: Extractor
    directions: Directions
    head: Head
    seed: int
    folder: Path  # of what is kept


@dataclass(frozen=True, eq=False)
class Prepared:
    """What a plan is made of, for any budget and costs."""

    ground: Ground
    curves: Curves
    full: bool
    draws: int


def find_ground(
    wanted: Experiment, material: Material, runs: Path, machine: Machine, watch: Watch, backbone: str | None = None
) -> Ground:
    """Read the features, and find the head for them: all that a batch needs."""
    seed, material = wanted.seed, material.without_test()
    extractor = find_extractor(wanted, material, Learned(runs), backbone, machine, watch)
    known, directions = gather_known(material, extractor, seed)
    _check_enough(known, material)
    key = json.dumps([FORMAT, material.fingerprint, extractor.fingerprint, seed])
    folder = runs / "plans" / hashlib.sha256(key.encode()).hexdigest()[:16]
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise LecoError(f"{folder}: cannot be written: {error.strerror}") from None
    head = Head.on(known, _prior(known, seed, folder / "prior.json"))
    return Ground(material, known, extractor, directions, head, seed, folder)


def prepare(
    wanted: Experiment,
    material: Material,
    runs: Path,
    machine: Machine,
    watch: Watch,
    backbone: str | None = None,
    full: bool = False,
    draws: int = DRAWS,
    tick: Callable[[], object] = lambda: None,
) -> Prepared:
    """Measure the learning curves, or take what was measured before from `runs/plans`."""
    ground = find_ground(wanted, material, runs, machine, watch, backbone)
    known, seed = ground.known, ground.seed
    learner: Learner = (
        FullTraining(wanted, ground.material, known, Learned(runs), machine, watch) if full else ground.head
    )

    def fitted() -> None:
        tick()
        if machine.stop():
            raise Stopped

    curves = fit_curves(known, measure(known, learner, draws, seed, ground.folder, fitted), seed)
    if material.evaluated:  # of Mapillary's classes, not all count
        counts = torch.tensor([name in material.evaluated for name in known.evidence.ontology.newest.handles])
        curves = replace(curves, observed=curves.observed & counts)
    return Prepared(ground, curves, full, draws)


def _check_enough(known: Known, material: Material) -> None:
    count, version = len(known.samples(NEWEST)), material.versions[-1]
    if count < FEWEST_SAMPLES:
        raise LecoError(f"{count} training samples are labelled in {version}: a curve needs {FEWEST_SAMPLES} at least")
    if int((known.labelled > 0).sum()) < 2:
        raise LecoError(f"all training samples labelled in {version} are of one class: there is no accuracy to plan")


def _prior(known: Known, seed: int, path: Path) -> float:
    if path.is_file():
        kept = read_kept(path, "prior")
        if kept not in PRIORS:
            raise LecoError(f"{path}: is damaged; delete it, and it is found anew")
        return float(str(kept))
    prior = choose_prior(known, seed)
    write_text(path, json.dumps({"prior": prior}) + "\n")
    return prior
