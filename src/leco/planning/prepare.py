"""Features, head and learning curves of an experiment: measured once, and valid for any budget and costs."""

import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import torch

from leco.dataset import Periods
from leco.errors import LecoError
from leco.experiments.embedding import embed
from leco.experiments.experiment import Experiment
from leco.experiments.machine import Machine, Stopped
from leco.experiments.store import Store
from leco.planning.curves import Curves, fit_curves
from leco.planning.features import Extractor, Projection, Reader, find_extractor, gather_known, known_parts
from leco.planning.heads import Head
from leco.planning.known import NEWEST, Known
from leco.planning.measure import DRAWS, LEVELS, choose_prior, measure
from leco.progress import Tick

FORMAT = 1  # of the measurements; to be raised when a change of code changes them
FEWEST_SAMPLES = 10


@dataclass(frozen=True, eq=False)
class Context:
    """Frozen features and labels of all samples, and the head that suggests labels: all that a batch needs."""

    reader: Reader
    known: Known
    projection: Projection
    head: Head
    folder: Path  # of the measurements

    @property
    def periods(self) -> Periods:
        """The data, without the test split."""
        return self.reader.periods

    @property
    def seed(self) -> int:
        """Seed of the experiment."""
        return self.reader.seed


@dataclass(frozen=True, eq=False)
class Prepared:
    """Learning curves of a context: all that a plan needs."""

    context: Context
    curves: Curves
    draws: int


def load_context(
    wanted: Experiment,
    periods: Periods,
    runs: Path,
    machine: Machine,
    backbone: str | Extractor | None = None,
    *,
    tick: Tick = lambda done, total: None,
) -> Context:
    """Read the features of an experiment's samples, and choose the prior of the head for them.

    `tick` is called with the numbers of images that were embedded, and that are to be.
    """
    periods = periods.without_test()
    extractor = backbone
    if not isinstance(extractor, Extractor):
        extractor = find_extractor(wanted, periods, runs, machine, extractor)
    column = None
    if extractor.embedder is not None:
        indices = torch.cat([part.indices for _, part in known_parts(periods)])
        column = embed(periods.pool, indices, extractor.embedder, Store(runs), machine, tick=tick)
    reader = Reader(periods, extractor, wanted.seed, column)
    known, projection = gather_known(reader)
    _check_enough(known, periods.versions[-1])
    key = json.dumps([FORMAT, periods.fingerprint, extractor.fingerprint, wanted.seed])
    folder = runs / "plans" / hashlib.sha256(key.encode()).hexdigest()[:16]
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise LecoError(f"{folder}: cannot be written: {error.strerror}") from None
    head = Head.on(known, choose_prior(known, wanted.seed, folder / "prior.json"))
    return Context(reader, known, projection, head, folder)


def prepare(
    context: Context,
    *,
    draws: int = DRAWS,
    levels: int = LEVELS,
    tick: Callable[[int, int], object] = lambda done, total: None,
    stop: Callable[[], bool] = lambda: False,
) -> Prepared:
    """Measure the learning curves; points that are already in the folder of the context are not measured again."""

    def fitted(done: int, total: int) -> None:
        tick(done, total)
        if stop():
            raise Stopped

    measured = measure(context.head, context.folder, context.seed, draws=draws, levels=levels, tick=fitted)
    curves = fit_curves(context.known, measured, context.seed)
    if evaluated := context.periods.evaluated:  # only some classes of Mapillary count
        handles = context.known.evidence.ontology.newest.handles
        counts = torch.tensor([name in evaluated for name in handles])
        curves = replace(curves, observed=curves.observed & counts)
    return Prepared(context, curves, draws)


def _check_enough(known: Known, version: str) -> None:
    count = len(known.samples(NEWEST))
    if count < FEWEST_SAMPLES:
        raise LecoError(
            f"{count} training samples are labelled in {version}; a learning curve needs at least {FEWEST_SAMPLES}"
        )
    if int((known.labelled > 0).sum()) < 2:
        raise LecoError(f"all training samples labelled in {version} are of one class; a plan needs at least two")
