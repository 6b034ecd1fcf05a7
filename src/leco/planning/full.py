"""Real training in place of a head on frozen features: each point of the curve is a stage of the store."""

import hashlib
import json
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from leco.data.periods import Annotated, Annotation, Part
from leco.dataset import Material
from leco.devices import make_fabric
from leco.evaluation.evaluate import Judge
from leco.experiments.experiment import Experiment
from leco.experiments.networks import load_network
from leco.experiments.run import Machine, Watch
from leco.experiments.stages import Plan, Stage, choose, plan
from leco.experiments.store import UNTESTED, Store
from leco.planning.features import train
from leco.planning.known import Known


@dataclass(frozen=True, eq=False)
class FullTraining:
    """The experiment's own method on a subsample; earlier periods are trained once, on all that they have.

    What is held out also chooses the best step of a training, as validation does, which flatters it a little.
    """

    wanted: Experiment
    material: Material
    known: Known
    store: Store
    machine: Machine
    watch: Watch

    @property
    def name(self) -> str:
        """What it depends on besides the data."""
        settings = self.wanted.model_dump(mode="json", exclude={"data", "benchmark"})
        return f"full {hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()[:16]}"

    def predict(self, newest: Tensor, history: Tensor, rows: Tensor) -> Tensor:
        """Train on these samples; the likeliest class of each of these rows."""
        whole = self.material
        period = len(whole.versions) - 1
        mine = _with_subsample(whole, newest, history, self.known.sample[rows].unique())  # type: ignore[no-untyped-call]
        earlier = plan(self.wanted, whole)
        train(Plan(earlier.periods[:-1]), whole, self.store, self.machine, self.watch)
        found = plan(self.wanted, mine)
        before = earlier.periods[-2] if period else ()
        last = tuple(_starting_from(stage, before) for stage in found.periods[-1])
        train(Plan((last,)), mine, self.store, self.machine, self.watch)
        return self._predicted(choose(last, self.store), mine, rows)

    @torch.no_grad()
    def _predicted(self, stage: Stage, material: Material, rows: Tensor) -> Tensor:
        held_out = material.annotated(stage.period, stage.annotation).validation
        fabric = make_fabric(self.machine.device, stage.training.precision)
        judge = Judge(material, stage.period, held_out, fabric, stage.training.window)
        network = fabric.to_device(load_network(stage, material, self.store))
        predicted = torch.zeros(len(rows), dtype=torch.int64)
        samples = self.known.sample[rows]
        at_once = 1 if material.task == "segmentation" else 256
        for ids in held_out.indices.split(at_once):  # type: ignore[no-untyped-call]  # in ascending order
            probs = judge.predict(network, material.pool.inputs.read(ids), ids, material.pool)
            likeliest = probs.argmax(dim=1).cpu().view(len(ids), -1)
            mine = torch.isin(samples, ids)
            predicted[mine] = likeliest[torch.searchsorted(ids, samples[mine]), self.known.pixel[rows[mine]]]
        return predicted


def _with_subsample(material: Material, newest: Tensor, history: Tensor, held_out: Tensor) -> Material:
    """The material of the newest period as if only these samples had labels."""
    last = len(material.versions) - 1
    whole = material.annotated(last, "label-new")
    parts = [Part(part.version, part.indices[torch.isin(part.indices, history)]) for part in whole.history]
    kept = tuple(part for part in parts if len(part.indices))
    version = whole.newest.version
    mine = Annotated(Part(version, newest.sort().values), kept, Part(version, held_out))

    def annotated(period: int, annotation: Annotation) -> Annotated:
        return mine if period == last else material.annotated(period, annotation)

    samples = json.dumps([part.indices.tolist() for part in (mine.newest, *mine.history, mine.validation)])
    digest = hashlib.sha256(f"{material.fingerprint} {samples}".encode()).hexdigest()[:16] + UNTESTED
    return replace(material, annotated=annotated, fingerprint=digest, learned=digest)


def _starting_from(stage: Stage, before: tuple[Stage, ...]) -> Stage:
    previous = before if stage.previous else ()
    teacher = None if stage.teacher is None else replace(stage.teacher, previous=previous)
    return replace(stage, previous=previous, teacher=teacher)
