"""One of each kind of thing that can be registered, as a user's own module has it: `leco --import tests.toys run …`."""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from leco.data.benchmarks import Benchmark, Recipe, register
from leco.data.benchmarks.benchmark import labelled
from leco.data.inputs import ALONE, InputBatch, Share, vector_batches
from leco.data.manifest.manifest import Manifest
from leco.data.manifest_samples import lazy_samples
from leco.data.rng import Draws
from leco.data.samples import InMemory, Samples
from leco.data.views.sets import ViewSet, unchanged
from leco.errors import LecoError
from leco.methods import Method, Term, label_nll, register_term
from leco.methods.terms import HISTORY, Loss, Mean, Outputs, Step
from leco.modalities import Modality, Vectors, register_modality
from leco.models.network import Network
from leco.models.weights import Weights
from leco.ontology.evidence import UNLABELLED, Evidence
from leco.ontology.ontology import Ontology
from leco.ontology.version import Version
from leco.settings import HistorySettings, NetworkSettings, OptimiserSettings, PseudoLabelSettings
from leco.training.finish import HEADS
from leco.training.loggers import LOGGERS, Line
from leco.training.optimisers import OPTIMISERS, SCHEDULES

# Terms: one for pseudo-labels, one for coarse labels.


@register_term("entropy", "pseudo")
def entropy(method: Method, settings: PseudoLabelSettings, _: HistorySettings) -> Term:
    """Entropy minimisation on history, where the network is more confident than the threshold."""

    def loss(outputs: Outputs, step: Step, evidence: Evidence) -> Loss:
        if step.history is None:
            return Loss([])
        log_probs = outputs[HISTORY][evidence.ontology.newest.name].log_softmax(dim=1)
        kept = log_probs.exp().amax(dim=1) > settings.threshold
        counted = torch.ones_like(kept)
        entropies = -(log_probs.exp() * log_probs).sum(dim=1) * kept
        return Loss([Mean.over(entropies, counted)], {"kept": Mean.over(kept, counted)})

    return Term("entropy", (HISTORY,), loss)


@register_term("brier", "coarse")
def brier(_: Method, __: PseudoLabelSettings, ___: HistorySettings) -> Term:
    """The squared probability that the old label is wrong."""

    def loss(outputs: Outputs, step: Step, evidence: Evidence) -> Loss:
        if step.history is None:
            return Loss([])
        rows = step.history.rows
        nll = label_nll(outputs[HISTORY][evidence.ontology.newest.name], rows, evidence)
        return Loss([Mean.over((1 - (-nll).exp()).square(), rows != UNLABELLED)])

    return Term("brier", (HISTORY,), loss)


# An optimiser whose state is tensors and numbers, of parameters and of their group; and a schedule.


class Careful(torch.optim.Optimizer):
    """Momentum that counts less the more steps there were, with gradients scaled by the largest so far."""

    def __init__(self, parameters: Iterable[nn.Parameter], lr: float) -> None:
        super().__init__(parameters, {"lr": lr, "largest": 0.0})

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:
        for group in self.param_groups:
            seen = [p for p in group["params"] if p.grad is not None]
            norm = torch.stack([p.grad.norm() for p in seen]).norm().item()
            group["largest"] = max(group["largest"], norm)
            for parameter in seen:
                state = self.state[parameter]
                state["steps"] = state.get("steps", 0) + 1
                buffer = state.setdefault("buffer", torch.zeros_like(parameter))
                buffer.mul_(0.9).add_(parameter.grad / max(group["largest"], 1e-8))
                parameter.sub_(buffer, alpha=group["lr"] / state["steps"] ** 0.5)


@OPTIMISERS.register("careful")
def careful(parameters: Iterable[nn.Parameter], settings: OptimiserSettings) -> torch.optim.Optimizer:
    return Careful(parameters, settings.learning_rate[0])


@SCHEDULES.register("triangle")
def triangle(step: int, steps: int) -> float:
    """Up, and down again."""
    return 1 - abs(2 * (step + 1) / (steps + 1) - 1)


# A head.


@HEADS.register("nearest-mean")
def nearest_mean(features: Tensor, evidence: Tensor) -> tuple[Tensor, Tensor]:
    """The class whose mean is closest, of the samples that are certain to be of one class."""
    certain = evidence.isfinite().sum(dim=1) == 1
    members = F.one_hot(evidence[certain].argmax(dim=1), evidence.shape[1]).to(features)
    means = members.T @ features[certain] / members.sum(dim=0).clamp(min=1).unsqueeze(1)
    return 2 * means, -means.square().sum(dim=1)


# Loggers: one that works, and one that does not.


@LOGGERS.register("lines")
class Lines:
    def __init__(self, folder: Path, step: int) -> None:
        self.path = folder / "lines.txt"
        before = self.path.read_text().splitlines() if self.path.is_file() else []
        self.lines = [line for line in before if json.loads(line)["step"] <= step]

    def write(self, line: Line) -> None:
        self.lines.append(json.dumps({"step": line["step"], "means": line["means"]}))
        self.path.write_text("\n".join(self.lines) + "\n")

    def close(self) -> None:
        pass


@LOGGERS.register("broken")
class Broken:
    def __init__(self, folder: Path, step: int) -> None:
        pass

    def write(self, line: Line) -> None:
        raise RuntimeError("the server does not answer")

    def close(self) -> None:
        raise RuntimeError("the server does not answer")


# A modality: signals of two channels, read from vectors of both, one after the other.

CHANNELS, LENGTH = 2, 16


@dataclass(frozen=True)
class Standardised:
    """Each channel centred and scaled by statistics of the training signals."""

    mean: Tensor
    std: Tensor

    def __call__(self, signals: Tensor) -> Tensor:
        return (signals - self.mean.to(signals)[:, None]) / self.std.to(signals)[:, None]


class Convolutions(nn.Sequential):
    def __init__(self, channels: int, width: int) -> None:
        first, second = nn.Conv1d(channels, width, 5, padding=2), nn.Conv1d(width, width, 3, padding=1)
        pooled = (nn.AdaptiveMaxPool1d(1), nn.Flatten())
        super().__init__(first, nn.BatchNorm1d(width), nn.ReLU(), second, nn.ReLU(), *pooled)
        self.num_features = width


def two_channels(vectors: Tensor) -> Tensor:
    return vectors.view(len(vectors), CHANNELS, -1)


def noisy(signals: Tensor, draws: Draws) -> Tensor:
    noise = draws.normal("noise", signals[0].numel()).view_as(signals)
    return signals + 0.1 * noise


@register_modality
class Signals(Modality):
    name = "signals"
    inputs_are = "signals"
    suffixes = (".npy",)
    purpose = "classifies signals"
    example = "signals.npy"

    def read(self, manifest: Manifest, ontology: Ontology, side: int) -> Samples:
        samples = lazy_samples(manifest, ontology, side)
        vectors = samples.inputs.read(torch.arange(len(samples)))
        return replace(samples, inputs=InMemory(two_channels(vectors)))

    def views(self, samples: Samples, train: Tensor) -> ViewSet:
        return ViewSet(unchanged, noisy, unchanged)

    def normaliser(self, samples: Samples, train: Tensor, network: NetworkSettings) -> Standardised:
        signals = samples.inputs.read(train)
        return Standardised(signals.mean(dim=(0, 2)), signals.std(dim=(0, 2)))

    def statistics(self, normalise: Any) -> tuple[Sequence[float], Sequence[float]]:
        return normalise.mean.tolist(), normalise.std.tolist()

    def restored_normaliser(self, mean: Sequence[float], std: Sequence[float]) -> Standardised:
        return Standardised(torch.tensor(mean), torch.tensor(std))

    def defaults(
        self, image_size: int, backbone: str | None = None, samples: int = 0, weights: str | None = None
    ) -> dict[str, Any]:
        return SETTINGS

    def network(
        self, backbone: str, shape: Sequence[int], versions: Sequence[Version], weights: Weights | None = None
    ) -> Network:
        self.check_backbone(backbone)
        return Network(Convolutions(shape[0], int(backbone.removeprefix("conv-"))), versions)

    def check_backbone(self, name: str) -> None:
        if not name.removeprefix("conv-").isdecimal():
            raise LecoError(f"{name!r} is not a network for signals; use conv-WIDTH")

    def inputs(
        self,
        arguments: Sequence[str],
        shape: Sequence[int],
        side: int | None,
        *,
        size: int,
        root: Path | None,
        share: Share = ALONE,
    ) -> Iterator[InputBatch]:
        for batch in islice(vector_batches(arguments, CHANNELS * shape[1], root), share[0], None, share[1]):
            yield replace(batch, inputs=two_channels(batch.inputs)) if batch.names else batch


# A benchmark of that modality.

SETTINGS: Mapping[str, Any] = {
    "network": {"backbone": "conv-8", "norm_momentum": 0.1},
    "optimiser": {"learning_rate": (0.05,)},
    "batches": {"steps": 30, "size": 16, "evaluate_every": 10},
}


def ontology() -> Ontology:
    """Slow and fast waves; then with their form."""
    forms = {f"{speed}-{form}": {"from": speed} for speed in ("slow", "fast") for form in ("sine", "square")}
    versions = [{"name": "v1", "classes": ["slow", "fast"]}, {"name": "v2", "classes": forms}]
    return Ontology.from_dict({"name": "waves", "versions": versions})


def waves(count: int, seed: int) -> tuple[Tensor, Tensor]:
    """Signals (n, channels, length), and their newest labels."""
    generator = torch.Generator().manual_seed(seed)
    labels = torch.arange(count) % 4
    phase = torch.rand(count, CHANNELS, 1, generator=generator)
    cycles = torch.where(labels < 2, 1.0, 3.0)[:, None, None]
    sines = (2 * torch.pi * (cycles * torch.arange(LENGTH) / LENGTH + phase)).sin()
    signals = torch.where((labels % 2 == 0)[:, None, None], sines, sines.sign())
    return 3 + signals + 0.2 * torch.randn(signals.shape, generator=generator), labels


def build(recipe: Recipe, root: Path) -> Benchmark:
    history = ontology()
    (signals, labels), (tested, truth) = waves(400, seed=0), waves(80, seed=1)
    return Benchmark(
        recipe,
        history,
        labelled(InMemory(signals), labels, history),
        lambda: labelled(InMemory(tested), truth, history),
        ViewSet(unchanged, noisy, unchanged),
        strata=labels,
    )


register(Recipe("waves-leco", "signals", (2, 4), 80, "nothing", build, {"paper": SETTINGS, "small": SETTINGS}))


# A modality that is nearly one of leco's own.


@register_modality
class Spectra(Vectors):
    name = "spectra"
    purpose = "classifies spectra"
