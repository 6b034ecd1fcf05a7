"""One period's training, from first step to last, in any number of sittings."""

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from leco.data.draws import Draws
from leco.data.streams import Step, Steps, loader
from leco.data.views.sets import ViewSet
from leco.errors import LecoError
from leco.methods.terms import Term, forward_once
from leco.models.network import Network
from leco.training.averaging import Average
from leco.training.checkpoint import Checkpoint
from leco.training.handover import Strategy, trained_parameters
from leco.training.schedules import SCHEDULES


@dataclass(frozen=True)
class Optimisation:
    """How weights are changed; defaults are the paper's for CIFAR (appendix E)."""

    learning_rate: float = 0.06
    weight_decay: float = 5e-4
    momentum: float = 0.9
    nesterov: bool = False
    schedule: str = "cosine"
    average: float = 0.999
    average_warm_up: bool = True
    head_steps: int = 0  # of `lp-ft`
    evaluate_every: int = 1_000


@dataclass(frozen=True, eq=False)
class Job:
    """All that a run needs. Its result is a function of this, and of the weights it starts from."""

    steps: Steps
    terms: Sequence[Term]
    views: ViewSet
    normalise: Callable[[Tensor], Tensor]  # uint8 images, or features, to what the network takes
    strategy: Strategy
    optimisation: Optimisation
    seed: int
    teacher: nn.Module | None = None
    device: torch.device = field(default_factory=lambda: torch.device("cpu"))


@dataclass(frozen=True)
class Report:
    """What one step tells whoever watches."""

    step: int
    losses: dict[str, float]
    learning_rate: float
    images_per_second: float
    score: float | None  # validation, where it was measured


class Training:
    """A network being trained: `run` goes on until the end; `checkpoint` and `resume` carry all of it over."""

    def __init__(self, job: Job, network: Network, validate: Callable[[nn.Module], float]) -> None:
        self.job, self.network, self.validate = job, network.to(job.device), validate
        optimisation = job.optimisation
        self.optimiser = torch.optim.SGD(
            network.parameters(),
            lr=optimisation.learning_rate,
            momentum=optimisation.momentum,
            weight_decay=optimisation.weight_decay,
            nesterov=optimisation.nesterov,
        )
        self.average = Average(network, optimisation.average, optimisation.average_warm_up)
        self.best = {name: tensor.clone() for name, tensor in self.average.model.state_dict().items()}
        self.best_score, self.best_step, self.step = -math.inf, 0, 0

    def run(self) -> Iterator[Report]:
        """Train to the end, yielding after each step, so that the caller may save, print or stop."""
        job, total = self.job, len(self.job.steps)
        networks: dict[str, Any] = {"student": self.network}
        if job.teacher is not None:
            networks["teacher"] = job.teacher.to(job.device).eval()
        for batch in loader(job.steps, start=self.step):
            started = time.perf_counter()
            rate = job.optimisation.learning_rate * SCHEDULES[job.optimisation.schedule](self.step, total)
            self._enter_step(rate)
            views = make_views(job, batch, self.step)
            outputs = forward_once(networks, views, job.terms)
            evidence = job.steps.evidence
            losses = {term.name: term.loss(outputs, batch, evidence) for term in job.terms}
            values = {name: loss.item() for name, loss in losses.items()}
            check_losses(values, self.step, rate)
            torch.stack(list(losses.values())).sum().backward()  # type: ignore[no-untyped-call]
            self.optimiser.step()
            self.optimiser.zero_grad(set_to_none=True)
            self.average.update(self.network, self.step)
            self.step += 1
            seen = len(batch.new) + (len(batch.history) if batch.history else 0)
            speed = seen / (time.perf_counter() - started)
            due = self.step % job.optimisation.evaluate_every == 0 or self.step == total
            score = self._evaluate() if due else None
            yield Report(self.step, values, rate, speed, score)

    def _enter_step(self, rate: float) -> None:
        """Set what depends on the step alone, so that a resumed run cannot differ."""
        torch.manual_seed(self.job.seed * 1_000_003 + self.step)  # dropout, where a backbone has it
        self.network.train()
        strategy, head_steps = self.job.strategy, self.job.optimisation.head_steps
        trained = {id(p) for p in trained_parameters(self.network, strategy, self.step, head_steps)}
        for parameter in self.network.parameters():
            parameter.requires_grad_(id(parameter) in trained)
        if not any(id(p) in trained for p in self.network.backbone.parameters()):
            self.network.backbone.eval()  # frozen means BatchNorm's statistics, too
        for group in self.optimiser.param_groups:
            group["lr"] = rate

    def _evaluate(self) -> float:
        score = self.validate(self.average.model)
        if score > self.best_score:
            self.best_score, self.best_step = score, self.step
            self.best = {name: tensor.clone() for name, tensor in self.average.model.state_dict().items()}
        return score

    def checkpoint(self) -> Checkpoint:
        """Everything that the rest of the run depends on."""
        tensors: dict[str, Tensor] = {}
        for part, state in self._states().items():
            tensors |= {f"{part}/{name}": tensor for name, tensor in state.items()}
        score = self.best_score if math.isfinite(self.best_score) else None
        return Checkpoint(self.step, tensors, {"best_score": score, "best_step": self.best_step})

    def resume(self, checkpoint: Checkpoint) -> None:
        """Go on from a checkpoint as if nothing had happened."""
        self.network.load_state_dict(_part(checkpoint.tensors, "network"))
        self.average.model.load_state_dict(_part(checkpoint.tensors, "average"))
        self.best = _part(checkpoint.tensors, "best")
        parameters = dict(self.network.named_parameters())
        for name, momentum in _part(checkpoint.tensors, "momentum").items():
            self.optimiser.state[parameters[name]]["momentum_buffer"] = momentum.to(self.job.device)
        score = checkpoint.notes["best_score"]
        self.best_score = -math.inf if score is None else float(score)
        self.best_step, self.step = int(checkpoint.notes["best_step"]), checkpoint.step

    def _states(self) -> dict[str, Mapping[str, Tensor]]:
        momentum = {
            name: self.optimiser.state[parameter]["momentum_buffer"]
            for name, parameter in self.network.named_parameters()
            if self.optimiser.state[parameter].get("momentum_buffer") is not None
        }
        return {
            "network": self.network.state_dict(),
            "average": self.average.model.state_dict(),
            "best": self.best,
            "momentum": momentum,
        }


def _part(tensors: Mapping[str, Tensor], part: str) -> dict[str, Tensor]:
    return {name.removeprefix(f"{part}/"): t for name, t in tensors.items() if name.startswith(f"{part}/")}


def make_views(job: Job, batch: Step, step: int) -> dict[tuple[str, str], Tensor]:
    """The views that the terms ask for, each made once, on the model's device."""
    parts = {"new": batch.new, "history": batch.history}
    wanted = dict.fromkeys((request.part, request.view) for term in job.terms for request in term.needs)
    made: dict[tuple[str, str], Tensor] = {}
    for part, view in wanted:
        samples = parts[part]
        if samples is not None:
            draws = Draws(job.seed, step, samples.ids.to(job.device))
            made[part, view] = job.normalise(getattr(job.views, view)(samples.inputs.to(job.device), draws))
    return made


def check_losses(losses: Mapping[str, float], step: int, rate: float) -> None:
    """Stop at the first loss that is no number, and say which."""
    for name, loss in losses.items():
        if not math.isfinite(loss):
            raise LecoError(
                f"step {step}: the loss of the term {name!r} is {loss} at a learning rate of {rate:g}; "
                "try a smaller learning rate"
            )
