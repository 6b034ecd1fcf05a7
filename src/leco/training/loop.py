"""Training of one period, from the first step to the last; resumable at any step."""

import copy
import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import torch
from lightning_fabric import Fabric
from torch import Tensor, nn

from leco.data.batches import Pool, Step, Steps, evaluated_together, loader
from leco.data.rng import Draws
from leco.data.views.sets import ViewSet
from leco.devices import compiled, gradient_scaler, make_fabric, over_all, place, seed_dropout, share_statistics
from leco.errors import DivergedError, LecoError
from leco.methods.terms import Combined, Term, all_losses, combine, forward_once
from leco.models.layers import norms, trained_parameters
from leco.models.network import AnyNetwork
from leco.ontology.evidence import Evidence
from leco.placement import send, sent_ahead
from leco.records import Notes, Saved, Spent
from leco.settings import Settings, Strategy
from leco.training.averaging import Average
from leco.training.checkpoint import Checkpoint, misfit
from leco.training.optimisers import OPTIMISERS, kept, numbers_kept, parameter_groups, rate_factor, restore
from leco.training.parts import Thrift, is_out_of_memory, slices, sum_of_parts, whole_counts
from leco.training.priors import log_priors, with_priors
from leco.training.readings import READ_EVERY, Pace, Unread, read
from leco.training.sharding import divided, gathered, shards


@dataclass(frozen=True, eq=False)
class Job:
    """Everything a run needs. Its result is a function of this and of the initial weights."""

    steps: Steps
    terms: Sequence[Term]
    views: ViewSet
    normalise: Callable[[Tensor], Tensor]  # uint8 images, or features, to what the network takes
    strategy: Strategy
    settings: Settings
    seed: int
    teacher: nn.Module | None = None
    fabric: Fabric = field(default_factory=lambda: make_fabric("cpu"))
    workers: int = 0


@dataclass(frozen=True)
class Report:
    """Progress after one step."""

    step: int
    losses: dict[str, float]  # as last read from the device
    learning_rate: float
    images_per_second: float  # since they were read before
    # Set at evaluation steps only: the validation score (if there is a validation set), and the means since the last
    # evaluation of all losses and of the health of the pseudo-labels.
    score: float | None = None
    means: dict[str, float] = field(default_factory=dict)


class Training:
    """A network in training: `run` continues to the last step; `checkpoint` and `resume` save and restore its state."""

    def __init__(
        self,
        job: Job,
        network: AnyNetwork,
        validate: Callable[[nn.Module], float] | None,
        say: Callable[[str], object] = lambda _: None,
    ) -> None:
        self.job, self.network, self.validate, self.say = job, network, validate, say
        settings, fabric = job.settings, job.fabric
        shares = shards(fabric)  # only contiguous tensors, and on the CPU until each has a part
        network.to(memory_format=torch.contiguous_format) if shares else place(network, fabric.device)
        self.average = Average(network, settings.average)
        self.whole = copy.deepcopy(network).eval() if shares else None  # what is evaluated of a divided network
        self.distributed = fabric.world_size > 1
        if self.distributed:
            share_statistics(network, fabric.device)
        frozen_layers = settings.network.frozen_layers
        self.trained = trained_parameters(network.backbone, frozen_layers)  # of the backbone, unless it is frozen
        self.kept_norms = list(norms(network.backbone, frozen_layers, all_of_them=settings.network.frozen_norm))
        network.backbone.requires_grad_(False)
        for parameter in self.trained:
            parameter.requires_grad_(not self.distributed or job.strategy != "freeze")
        self.thrift = Thrift(network)
        self.thrift.set(settings.batches.parts, settings.network.recompute)
        self.student = fabric.setup_module(network)
        if shares:
            fabric.setup_module(self.average.model)
        self.state = OPTIMISERS[settings.optimiser.name](
            parameter_groups(network, settings.optimiser), settings.optimiser
        )
        self.optimiser: Any = fabric.setup_optimizers(self.state)
        self.scaler = gradient_scaler(fabric)
        self.best = {name: tensor.clone() for name, tensor in self.average.model.state_dict().items()}
        self.best_score, self.best_step, self.step = -math.inf, 0, 0
        self.unread: list[Unread] = []
        self.read_every = 1 if fabric.device.type == "cpu" else READ_EVERY
        self.losses: dict[str, float] = {}  # of the step that was read last
        self.sums: dict[str, tuple[float, float]] = {}  # totals and counts since the last evaluation
        self.means: dict[str, float] = {}  # of the last evaluation
        self.seconds, self.step_seconds, self.images = 0.0, 0.0, 0  # with and without evaluation

    def run(self) -> Iterator[Report]:
        """Train to the end, yielding after each step, so that the caller may save, print or stop."""
        job, total, fabric = self.job, len(self.job.steps), self.job.fabric
        evidence = job.steps.evidence.to(fabric.device)
        settings, every = job.settings.optimiser, job.settings.batches.evaluate_every
        compiles = job.settings.network.compile
        networks: dict[str, Any] = {"student": compiled(self.student, fabric.device) if compiles else self.student}
        if job.teacher is not None:
            networks["teacher"] = place(job.teacher, fabric.device).eval()
        adjust = job.settings.loss.adjust
        frequencies = log_priors(job.steps, adjust) if adjust else {}
        priors = {part: prior.to(fabric.device) for part, prior in frequencies.items()}
        pace = Pace()
        started = time.perf_counter()
        for batch in sent_ahead(self._read_steps(), fabric.device, Step.moved):
            rate = job.settings.learning_rate * rate_factor(settings, self.step, total)
            frozen = self._enter_step(rate)
            before, found = str(self.thrift), None  # type: str, Combined | None
            while found is None:
                try:
                    found = self._gradients(batch, evidence, networks, priors)
                except RuntimeError as error:
                    self._check_memory(error)
                if found is None:  # and the error, and with it the tensors of the step, is gone
                    self._save_memory(rate)
            if str(self.thrift) != before:
                self.say(f"step {self.step}: out of memory; continuing with {self.thrift}")
            self.unread.append(Unread(self.step, rate, found.terms, found.health))
            if frozen:
                self.network.backbone.zero_grad(set_to_none=True)
            if settings.clip:
                # Infinite gradients show in the losses, which are checked; a GPU need not be asked in every step.
                fabric.clip_gradients(self.student, self.optimiser, max_norm=settings.clip, error_if_nonfinite=False)
            self.optimiser.step()
            self.optimiser.zero_grad(set_to_none=True)
            self.average.update(self.network, self.step)
            self.step += 1
            evaluates = self.step % every == 0 or self.step == total
            reads = evaluates or self.step % self.read_every == 0
            if reads:
                self._read()
            seen = len(batch) * fabric.world_size
            took = time.perf_counter() - started
            self.step_seconds, self.images = self.step_seconds + took, self.images + seen
            pace.add(seen, took, whole=reads)
            report = Report(self.step, self.losses, rate, pace.speed)
            if evaluates:
                report = replace(report, score=self._evaluate(), means=self._means())
            self.seconds += time.perf_counter() - started
            yield report
            started = time.perf_counter()

    def _read_steps(self) -> Iterator[Step]:
        """Read the remaining steps, and check their labels while they are on the CPU."""
        for batch in loader(self.job.steps, self.step, self.job.workers):
            for term in self.job.terms:
                term.check(batch, self.job.steps.evidence)
            yield batch

    def _check_memory(self, error: RuntimeError) -> None:
        """Raise an error again unless memory ran out, and it can be saved."""
        if not is_out_of_memory(error):
            raise error
        if self.distributed:  # the other processes wait for this one
            remedy = f"set training.batches.parts to {2 * self.thrift.parts}, or use more processes"
            raise LecoError(f"step {self.step}: out of memory; {remedy}") from None

    def _save_memory(self, rate: float) -> None:
        """Prepare to repeat a step that ran out of memory, with less."""
        self.optimiser.zero_grad(set_to_none=True)
        self.thrift.increase(self.job.steps.batch_size)
        if self.job.fabric.device.type == "cuda":
            torch.cuda.empty_cache()
        self._enter_step(rate)

    def _gradients(
        self, batch: Step, evidence: Evidence, networks: Mapping[str, Any], priors: Mapping[str, Tensor]
    ) -> Combined:
        """Add the gradients of a step, part by part, to the parameters; return its losses."""
        job, fabric, found = self.job, self.job.fabric, list[Combined]()
        add_up: Callable[[Tensor], Tensor] = self._add_up
        views = make_views(job, batch, self.step)
        places = list(slices(len(batch.new), self.thrift.parts))
        for at in places:
            part, seen = batch, views
            if len(places) > 1:
                part, seen = batch.part(at), {name: view[at] for name, view in views.items()}
            waits = (
                fabric.no_backward_sync(self.student) if self.distributed and at is not places[-1] else nullcontext()
            )
            with waits:
                with fabric.autocast():
                    outputs = forward_once(networks, seen, job.terms)
                if priors:
                    outputs = with_priors(outputs, priors, evidence.ontology.newest.name)
                if len(places) > 1 and not found:
                    add_up = self._of_whole(whole_counts(job.terms, outputs, batch, evidence, places))
                losses = combine(all_losses(job.terms, outputs, part, evidence), add_up)
                del outputs  # logits that no gradient depends on need not wait for it
                fabric.backward(losses.loss * fabric.world_size)  # gradients are averaged over the processes
            found.append(replace(losses, loss=losses.loss.detach()))
            del losses  # so that the memory of its graph can be used again
        return found[0] if len(found) == 1 else sum_of_parts(found, self._add_up)

    def _of_whole(self, counts: Tensor) -> Callable[[Tensor], Tensor]:
        """Return a function that divides means of a part by the counts of the whole batch, of all processes."""
        whole = self._add_up(counts)
        return lambda sums: torch.stack((sums[:, 0], whole), dim=1)

    def _enter_step(self, rate: float) -> bool:
        """Set state that depends on the step, so that resuming changes nothing; return if the backbone is frozen."""
        job = self.job
        # Dropout, if the backbone has it: different masks in every process.
        seed_dropout((job.seed * 1_000_003 + self.step) * job.fabric.world_size + job.fabric.global_rank)
        frozen = heads_only(job.strategy, self.step, job.settings.transfer.head_steps)
        self.network.train()
        self.network.backbone.train(not frozen)  # freezes BatchNorm's statistics, too
        for norm in self.kept_norms:
            norm.eval()
        if not self.distributed:  # distributed processes must agree on gradients beforehand
            for parameter in self.trained:
                parameter.requires_grad_(not frozen)
        for group in self.state.param_groups:
            group["lr"] = rate * group.get("factor", 1.0)
        return frozen

    def _add_up(self, parts: Tensor) -> Tensor:
        return over_all(parts) if self.distributed else parts

    def _read(self) -> None:
        """Read the losses and counts of the last steps, check them, and add them to the means."""
        for step, rate, losses, health in read(self.unread):
            check_losses(losses, step, rate)
            self.losses = losses
            for name, (total, count) in (health | {n: (v, 1.0) for n, v in losses.items()}).items():
                before = self.sums.get(name, (0.0, 0.0))
                self.sums[name] = (before[0] + total, before[1] + count)
        self.unread.clear()

    def _means(self) -> dict[str, float]:
        self.means = {name: total / count for name, (total, count) in self.sums.items() if count}
        self.sums = {}
        return self.means

    def _evaluate(self) -> float | None:
        """Validate the average, and keep it if it is the best so far; without validation, keep the last one."""
        score, average = None, self.average.model
        try:
            if self.validate is not None and self.whole is None:
                score = self.validate(average)
            elif self.validate is not None and self.whole is not None:
                score = self.validate(self._filled(self.whole, average.state_dict()))
                self.whole.cpu()  # the device needs its memory
        except DivergedError as problem:
            raise DivergedError(f"step {self.step}: {problem}") from None
        if score is None or score > self.best_score:
            self.best_score, self.best_step = -math.inf if score is None else score, self.step
            self.best = {name: tensor.clone() for name, tensor in average.state_dict().items()}
        return score

    def _filled(self, whole: nn.Module, tensors: Mapping[str, Tensor]) -> nn.Module:
        """Load tensors, divided among processes or not, into a network that no other process is needed for."""
        whole.load_state_dict(gathered(tensors))
        return place(whole, self.job.fabric.device)

    def restore_best(self) -> None:
        """Load the best weights into the network or, if it is divided among processes, into `whole`."""
        if self.whole is None:
            self.network.load_state_dict(self.best)
        else:
            self._filled(self.whole, self.best)

    def checkpoint(self) -> Checkpoint:
        """Return everything that the rest of the run depends on."""
        self._read()
        tensors: dict[str, Tensor] = {}
        for part, state in self._states().items():
            tensors |= {f"{part}/{name}": tensor for name, tensor in gathered(state).items()}
        score = self.best_score if math.isfinite(self.best_score) else None
        notes = Notes(
            best_score=score,
            best_step=self.best_step,
            sums=self.sums,
            means=self.means,
            time=Spent(seconds=self.seconds, step_seconds=self.step_seconds, images=self.images),
            optimiser=numbers_kept(kept(self.network, self.state), self.job.settings.optimiser.name),
            thrift=Saved(parts=self.thrift.parts, recomputes=self.thrift.recomputes),
            scaler=None if self.scaler is None else self.scaler.state_dict(),
        )
        return Checkpoint(self.step, tensors, notes)

    def misfit(self, checkpoint: Checkpoint) -> str | None:
        """Say why this run cannot be resumed from a checkpoint, such as one of another version; None if it can."""
        steps = len(self.job.steps)
        shapes = {name: tuple(parameter.shape) for name, parameter in self.network.named_parameters()}
        known = {*shapes, *(name.rpartition("/")[0] for name in kept(self.network, self.state))}
        if checkpoint.step > steps:
            return f"its step is {checkpoint.step:,}, of {steps:,}"
        if unknown := {name.rpartition("/")[0] for name in checkpoint.notes.optimiser} - known:
            return f"{min(unknown)} is unknown"
        networks = {part: state for part, state in self._states().items() if part != "optimiser"}
        return misfit(checkpoint.tensors, networks, shapes)

    def resume(self, checkpoint: Checkpoint) -> None:
        """Restore a checkpoint; the run continues exactly as if it had not been interrupted."""
        notes = checkpoint.notes
        for part, module in (("network", self.network), ("average", self.average.model)):
            module.load_state_dict(self._shares(_part(checkpoint.tensors, part)))
        self.best = self._shares(_part(checkpoint.tensors, "best"))
        restore(self.network, self.state, _part(checkpoint.tensors, "optimiser") | notes.optimiser)
        if self.scaler is not None and notes.scaler is not None:
            self.scaler.load_state_dict(notes.scaler)
        self.thrift.set(notes.thrift.parts, notes.thrift.recomputes)
        self.best_score = -math.inf if notes.best_score is None else notes.best_score
        self.best_step, self.step = notes.best_step, checkpoint.step
        self.sums, self.means = dict(notes.sums), dict(notes.means)
        self.seconds, self.step_seconds, self.images = notes.time.seconds, notes.time.step_seconds, notes.time.images

    def _shares(self, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Return this process's parts of the tensors of a network."""
        like = self.network.state_dict()
        return {name: divided(tensor, like[name]) for name, tensor in tensors.items()}

    def _states(self) -> dict[str, Mapping[str, Tensor]]:
        return {
            "network": self.network.state_dict(),
            "average": self.average.model.state_dict(),
            "best": self.best,
            "optimiser": {n: v for n, v in kept(self.network, self.state).items() if isinstance(v, Tensor)},
        }


def _part(tensors: Mapping[str, Tensor], part: str) -> dict[str, Tensor]:
    return {name.removeprefix(f"{part}/"): t for name, t in tensors.items() if name.startswith(f"{part}/")}


def heads_only(strategy: Strategy, step: int, head_steps: int) -> bool:
    """Whether a step trains the heads only; `lp-ft` does so for the first `head_steps`."""
    return strategy == "freeze" or (strategy == "lp-ft" and step < head_steps)


def make_views(job: Job, batch: Step, step: int) -> dict[tuple[str, str], Tensor]:
    """Make the views that the terms need, each once, on the model's device."""
    parts = {"new": batch.new, "history": batch.history}
    wanted = dict.fromkeys((request.part, request.view) for term in job.terms for request in term.needs)
    made: dict[tuple[str, str], Tensor] = {}
    for part, view in wanted:
        samples = parts[part]
        if samples is not None:
            draws = Draws(job.seed, step, samples.ids, samples.inputs.device)
            made[part, view] = job.normalise(getattr(job.views, view)(samples.inputs, draws))
    return made


def as_evaluated(job: Job, pool: Pool) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield batches of all samples of a pool, normalised, in the evaluation view, with the evidence of their labels."""
    steps, device = job.steps, job.fabric.device
    if not len(pool.indices):
        return
    together = evaluated_together(steps.samples.inputs.read(pool.indices[:1]).shape[1:])
    parts = torch.arange(len(pool.indices)).split(together)  # type: ignore[no-untyped-call]
    for batch in steps.samples.each(partial(steps.read, pool), parts):
        seen = job.views.evaluate(send(batch.inputs, device), Draws(job.seed, 0, batch.ids, device))
        yield job.normalise(seen), send(steps.evidence.gather(batch.rows), device)


def check_losses(losses: Mapping[str, float], step: int, rate: float) -> None:
    """Raise an error that names the first loss that is NaN or infinite."""
    for name, loss in losses.items():
        if not math.isfinite(loss):
            raise DivergedError(
                f"step {step}: the loss of the term {name!r} is {loss} at a learning rate of {rate:g}; "
                "try a smaller learning rate"
            )
