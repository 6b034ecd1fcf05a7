"""A trained network whose head is fitted anew, in closed form, to the features of all that it learned from."""

import torch
from torch import Tensor

from leco.methods.gaussian import gaussian_head
from leco.training.devices import place
from leco.training.handover import AnyNetwork, with_own_heads
from leco.training.loop import DivergedError, Job, as_evaluated

Head = tuple[Tensor, Tensor]  # weight (c, d) and bias (c,)


@torch.no_grad()
def fit_head(network: AnyNetwork, job: Job) -> Head:
    """A head of Gaussian classes; where the method uses history, old labels have their say in it, as evidence."""
    backbone, training = place(network.backbone, job.fabric.device), network.backbone.training
    backbone.eval()
    pools = (job.steps.new, job.steps.history)
    seen = [(backbone(inputs), evidence) for pool in pools for inputs, evidence in as_evaluated(job, pool)]
    backbone.train(training)
    features, evidence = (torch.cat(parts) for parts in zip(*seen, strict=True))
    if not features.isfinite().all():
        raise DivergedError("features are no numbers any more; try a smaller learning rate")
    return gaussian_head(features, evidence)


@torch.no_grad()
def with_head(network: AnyNetwork, head: Head) -> AnyNetwork:
    """The network with another newest head; all but the heads is shared with `network`, which stays as it is."""
    other, (classifier, *_) = with_own_heads(network)
    assert classifier.bias is not None
    classifier.weight.copy_(head[0])
    classifier.bias.copy_(head[1])
    return other
