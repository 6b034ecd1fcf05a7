"""A trained network whose head is fitted anew, in closed form, to the features of all that it learned from."""

import torch

from leco.methods.gaussian import gaussian_head
from leco.training.devices import place
from leco.training.handover import AnyNetwork, with_own_heads
from leco.training.loop import Job, as_evaluated


@torch.no_grad()
def with_gaussian_head(network: AnyNetwork, job: Job) -> AnyNetwork:
    """The network with a head of Gaussian classes; all but the heads is shared with `network`, which stays as it is.

    Where the method uses history, old labels have their say in it, as evidence.
    """
    backbone, training = place(network.backbone, job.fabric.device), network.backbone.training
    backbone.eval()
    pools = (job.steps.new, job.steps.history)
    seen = [(backbone(inputs), evidence) for pool in pools for inputs, evidence in as_evaluated(job, pool)]
    backbone.train(training)
    weight, bias = gaussian_head(*(torch.cat(parts) for parts in zip(*seen, strict=True)))
    other, (classifier, *_) = with_own_heads(network)
    assert classifier.bias is not None
    classifier.weight.copy_(weight)
    classifier.bias.copy_(bias)
    return other
