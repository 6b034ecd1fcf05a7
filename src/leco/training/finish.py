"""Changes to a trained network before it is evaluated and stored: closed-form heads, logit adjustment, balancing."""

from collections.abc import Callable

import torch
from torch import Tensor, nn

from leco.devices import place
from leco.errors import DivergedError, LecoError
from leco.methods.choice import averaged_head, choose_head
from leco.methods.gaussian import gaussian_head
from leco.methods.linear import linear_head
from leco.methods.refine import balancing_bias
from leco.models.heads import with_own_heads
from leco.models.network import AnyNetwork
from leco.placement import has_float64
from leco.registry import Registry
from leco.training.loop import Job, as_evaluated
from leco.training.priors import class_counts

Head = tuple[Tensor, Tensor]  # weight (c, d) and bias (c,)
FitHead = Callable[[Tensor, Tensor], Head]  # features (n, d) and evidence (n, c) of all samples -> a linear head
HEADS: Registry[FitHead | None] = Registry("head")
HEADS.register("trained", __name__)(None)  # keeps the trained head
HEADS.register("gaussian")(gaussian_head)
HEADS.register("linear")(linear_head)
HEADS.register("linear+gaussian")(averaged_head)


@HEADS.register("best")
def best_head(features_nd: Tensor, evidence_nc: Tensor) -> Head:
    """Fit several heads, and return the one that cross-validation on the newest labels chooses."""
    _, found = choose_head(features_nd, evidence_nc)
    return found.weight, found.bias


def log_frequencies(counts: Tensor) -> Tensor:
    """Log frequency of each class, with mean 0; a class that never occurs counts as the rarest that does."""
    logs = counts.clamp(min=int(counts[counts > 0].min())).log()
    return logs - logs.mean()


@torch.no_grad()
def adjusted(network: AnyNetwork, counts: Tensor, strength: float) -> AnyNetwork:
    """Return the network with `strength` times the log class frequency subtracted from its newest logits.

    A strength of 1 amounts to a uniform class prior. Everything but the heads is shared with `network`, which is not
    modified.
    """
    other, (classifier, *_) = with_own_heads(network)
    assert classifier.bias is not None
    classifier.bias.sub_(strength * log_frequencies(counts).to(classifier.bias))
    return other


@torch.no_grad()
def balance_teacher(job: Job) -> None:
    """Adjust the bias of the teacher's head so that it predicts every class on history at its expected frequency.

    A teacher rarely predicts classes that it has seen little of; within the classes that an old label allows, this can
    be corrected.
    """
    steps, teacher = job.steps, job.teacher
    if teacher is None or not len(steps.history.indices):
        return
    head = teacher.heads[-1]  # type: ignore[index]
    assert isinstance(head, nn.Linear)  # pixels are refused before anything is trained
    newest = steps.evidence.ontology.newest
    place(teacher, job.fabric.device).eval()
    seen = [(teacher(inputs)[newest.name], evidence) for inputs, evidence in as_evaluated(job, steps.history)]
    logits, evidence = (torch.cat(parts) for parts in zip(*seen, strict=True))
    frequencies = class_counts(steps.samples.labels[newest.name], steps.new.indices, len(newest))
    head.bias.add_(balancing_bias(logits, evidence, frequencies))


@torch.no_grad()
def fit_head(network: AnyNetwork, job: Job, fit: FitHead = gaussian_head) -> Head:
    """Fit a head to the features of all samples; if the method uses history, with old labels as evidence."""
    backbone, training = place(network.backbone, job.fabric.device), network.backbone.training
    backbone.eval()
    pools = (job.steps.new, job.steps.history)
    seen = [(backbone(inputs), evidence) for pool in pools for inputs, evidence in as_evaluated(job, pool)]
    backbone.train(training)
    features, evidence = (torch.cat(parts) for parts in zip(*seen, strict=True))
    if not has_float64(features.device):  # which heads are fitted in
        features, evidence = features.cpu(), evidence.cpu()
    if not features.isfinite().all():
        raise DivergedError("features are NaN or infinite; try a smaller learning rate")
    return fit(features, evidence)


@torch.no_grad()
def with_head(network: AnyNetwork, head: Head) -> AnyNetwork:
    """Return the network with another newest head; the backbone is shared with `network`, which is not modified."""
    other, (classifier, *_) = with_own_heads(network)
    assert classifier.bias is not None
    for part, mine, wanted in zip(("weight", "bias"), head, (classifier.weight, classifier.bias), strict=False):
        if not isinstance(mine, Tensor) or mine.shape != wanted.shape:
            found = tuple(mine.shape) if isinstance(mine, Tensor) else type(mine).__name__
            raise LecoError(
                f"training.finish.head: its {part} is {found}, but must have the shape {tuple(wanted.shape)}"
            )
        wanted.copy_(mine)
    return other
