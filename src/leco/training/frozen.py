"""FreezePrev on cached features: a frozen backbone computes each view once instead of at every step.

Where memory does not hold all views, the steps are divided into equal spans, and each has views of its own.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor, nn

from leco.data.rng import Draws
from leco.data.samples import InMemory
from leco.data.views.sets import ViewSet
from leco.devices import place
from leco.models.network import AnyNetwork, Network
from leco.placement import send
from leco.settings import TransferSettings
from leco.training.loop import Job

_LARGEST = 2**31  # bytes of a bank
_AT_ONCE = 256


@dataclass(eq=False)
class Bank:
    """Cached features of a few views of each sample; a step draws one of them, as it would draw a view.

    Views of later spans of steps are computed when the first of these steps comes.
    """

    place: Tensor  # (pool,) index of a sample in `features`, on the CPU
    compute: Callable[[int, int], Tensor]  # features (samples, views, d) of the views from one number to another
    views: int  # of all spans
    spans: int
    steps: int
    span: int = -1  # the one that `features` belong to
    features: Tensor = field(default_factory=lambda: torch.empty(0))

    def __call__(self, _: Tensor, draws: Draws) -> Tensor:
        """Features of one view of each sample."""
        self.enter(min(draws.step * self.spans // self.steps, self.spans - 1))
        views = self.features.shape[1]
        which = draws.at_home.integers("bank", 0, views).squeeze(1)
        rows = send(self.place[draws.ids] * views + which, self.features.device)
        return self.features.view(-1, self.features.shape[2]).index_select(0, rows)

    def enter(self, span: int) -> None:
        """Compute the views of a span, unless they are there."""
        if span != self.span:
            self.features = torch.empty(0)  # frees the memory
            self.features = self.compute(*(number * self.views // self.spans for number in (span, span + 1)))
            self.span = span


def number_of_views(job: Job, features: int, transfer: TransferSettings) -> tuple[int, int]:
    """Number of cached views per sample, and of those that fit into memory; 0 if a bank would not save time, or none.

    Heads learn less from fewer views (docs/lab-book/log.md).
    """
    samples = len(job.steps.new.indices) + len(job.steps.history.indices)
    drawn = len(job.steps) * job.steps.batch_size * (2 if len(job.steps.history.indices) else 1)
    if drawn < 2 * samples:
        return 0, 0
    fitting = _LARGEST // (sum(len(indices) for indices in drawn_in(job).values()) * features * 4)
    views = min(max(1, drawn // (samples * transfer.draws_per_view)), transfer.max_views)
    return (views, min(views, fitting)) if fitting else (0, 0)


def drawn_in(job: Job) -> dict[str, Tensor]:
    """Samples that are drawn in each view: FixMatch uses the weak one for history only."""
    parts = {"new": job.steps.new.indices, "history": job.steps.history.indices}
    wanted: dict[str, set[str]] = {}
    for request in (request for term in job.terms for request in term.needs):
        wanted.setdefault(request.view, set()).add(request.part)
    return {view: torch.cat([parts[part] for part in sorted(who)]).unique() for view, who in sorted(wanted.items())}  # type: ignore[no-untyped-call]


def on_features(job: Job, network: AnyNetwork, transfer: TransferSettings) -> tuple[Job, Network] | None:
    """Return the same training on cached features: the job, and a network that shares the heads of `network`.

    None if that is impossible: the backbone is trained or computes nothing, features are maps (segmentation), the
    teacher has other features, or not even one view of all samples fits into memory.
    """
    if job.strategy != "freeze" or not isinstance(network, Network):
        return None
    backbone, teacher = network.backbone, job.teacher
    if not any(True for _ in backbone.parameters()):
        return None
    if teacher is not None and not (isinstance(teacher, Network) and _equal(teacher.backbone, backbone)):
        return None
    views, at_once = number_of_views(job, network.heads[0].in_features, transfer)  # type: ignore[arg-type]
    if not views:
        return None
    spans = -(-views // at_once)
    place(backbone, job.fabric.device).eval()
    banks = {
        view: make_bank(job, backbone, view, indices, views, spans=spans) for view, indices in drawn_in(job).items()
    }
    nothing = InMemory(torch.zeros(len(job.steps.samples), 0))  # inputs are no longer read
    banked = replace(
        job,
        steps=job.steps.on(replace(job.steps.samples, inputs=nothing)),
        views=ViewSet(banks.get("weak", job.views.weak), banks.get("strong", job.views.strong), job.views.evaluate),
        normalise=lambda features: features,
        teacher=None if teacher is None else teacher.on(nn.Identity()),
    )
    return banked, network.on(nn.Identity())


def make_bank(job: Job, backbone: nn.Module, kind: str, indices: Tensor, views: int, *, spans: int = 1) -> Bank:
    """Return a bank of some samples, with the views of the first steps."""
    steps, device, view = job.steps, job.fabric.device, getattr(job.views, kind)

    @torch.no_grad()
    def compute(first: int, end: int) -> Tensor:
        features, done = torch.empty(0), 0
        parts = indices.split(_AT_ONCE)  # type: ignore[no-untyped-call]
        read = steps.samples.each(steps.samples.inputs.read, parts, job.workers)
        for ids, on_cpu in zip(parts, read, strict=True):
            inputs = send(on_cpu, device)
            draws = [Draws(job.seed, number, ids, device) for number in range(first, end)]
            seen = [job.normalise(view(inputs, each)) for each in draws]
            computed = torch.stack([backbone(images) for images in seen], dim=1)
            if not done:
                features = computed.new_empty(len(indices), *computed.shape[1:])
            features[done : done + len(ids)] = computed
            done += len(ids)
        return features

    where = torch.zeros(len(steps.samples), dtype=torch.int64)
    where[indices] = torch.arange(len(indices))
    return Bank(where, compute, views, spans, len(steps))


def _equal(one: nn.Module, other: nn.Module) -> bool:
    mine, theirs = one.state_dict(), other.state_dict()
    return mine.keys() == theirs.keys() and all(torch.equal(mine[name].cpu(), theirs[name].cpu()) for name in mine)
